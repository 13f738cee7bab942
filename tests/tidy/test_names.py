"""Names say what a file is for, and every file is there for something."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "stuff"}
PACKAGES = {"schemas", "engine", "services", "client"}
SCRIPTS = {Path("client/examples"), Path("client/examples/frameworks")}


def module_name(file: Path) -> str:
    """Return the name that a file of the packages is imported by."""
    return ".".join(["autellix", *file.with_suffix("").parts])


def is_started_by_name(file: Path) -> bool:
    """Tell whether Python itself or a person starts the file."""
    return file.stem in {"__init__", "__main__"} or file.parent in SCRIPTS


def names_in(text: str) -> Iterator[str]:
    """Yield every dotted name that a module imports or spells out as text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"autellix(?:\.\w+)+", node.value)


def test_no_file_is_a_drawer(files: list[Path]) -> None:
    """No file or folder is named for holding whatever has no other place."""
    assert [] == [str(file) for file in files if SAYS_NOTHING & {file.stem, *file.parts}]


def test_every_module_is_used(modules: dict[Path, str], texts: dict[Path, str]) -> None:
    """Every module is imported by another file, or named in a command that starts it."""
    imported = {name: file for file, text in modules.items() for name in names_in(text) if name != module_name(file)}
    commands = texts[Path("Makefile")] + texts[Path("pyproject.toml")]
    ours = [file for file in modules if file.parts[0] in PACKAGES and not is_started_by_name(file)]

    assert [] == [str(f) for f in ours if module_name(f) not in imported and module_name(f) not in commands]
