"""Functions and files stay small enough to read at a sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES_MAX = 50
FILE_LINES_MAX = 300

EXCEPTIONS: dict[str, int] = {}
"""What is larger all the same, `file` or `file:function`, with its exact size: entries shrink, and then go."""


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of every function in a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def test_functions_and_files_are_small(modules: dict[Path, str]) -> None:
    """Nothing is larger than the limits, save for the exceptions, which are exactly as large as they say."""
    files = {str(file): len(text.splitlines()) for file, text in modules.items()}
    too_large = {file: lines for file, lines in files.items() if lines > FILE_LINES_MAX}
    for file, text in modules.items():
        too_large |= {f"{file}:{name}": lines for name, lines in functions(text) if lines > FUNCTION_LINES_MAX}

    assert EXCEPTIONS == too_large
