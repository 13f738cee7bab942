"""Documents keep their promises: links lead somewhere, and nothing holds on one machine only."""

import re
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:work|root|home|Users)/\w+")
HOST = re.compile(r"https?://([\w.-]+)")

HOSTS = {
    "127.0.0.1",
    "arxiv.org",
    "download.pytorch.org",  # its CPU index, which a reader may choose for a smaller torch
    "github.com",
    "keepachangelog.com",
    "localhost",
    "semver.org",
}
"""Where documents may point. How a machine reaches its package registries is its own affair and stands nowhere here."""


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors in a document."""
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def documents(texts: dict[Path, str]) -> dict[Path, str]:
    """Return the Markdown files."""
    return {file: text for file, text in texts.items() if file.suffix == ".md"}


def test_links_lead_somewhere(root: Path, texts: dict[Path, str]) -> None:
    """Every relative link names a file or folder that exists, and an anchor that the file has."""
    broken = []
    for file, text in documents(texts).items():
        for target in LINK.findall(CODE.sub("", text)):
            path, _, anchor = target.partition("#")
            found = (root / file.parent / path).resolve() if path else root / file
            if "://" in target:
                continue
            if not found.exists() or (anchor and anchor not in anchors(found.read_text())):
                broken.append(f"{file}: {target}")

    assert [] == broken


def test_documents_point_to_known_sites(texts: dict[Path, str]) -> None:
    """A document links only to the sites that are listed here."""
    linked = {(str(file), host) for file, text in documents(texts).items() for host in HOST.findall(text)}

    assert set() == {(file, host) for file, host in linked if host not in HOSTS}


def test_nothing_names_a_path_of_one_machine(texts: dict[Path, str]) -> None:
    """No file names a home or work folder."""
    named = {str(file): MACHINE_PATH.findall(text) for file, text in texts.items()}

    assert {} == {file: paths for file, paths in named.items() if paths}
