"""Puts the tables of figures into a page of Markdown, between the marks that name them; the prose stays."""

import re
from pathlib import Path

from autellix.services.simulator.figures.drawing import Drawing, from_json
from autellix.services.simulator.figures.tables import as_markdown

MARKED = re.compile(r"(<!-- tables of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


class PageError(ValueError):
    """A page that cannot be filled; the text says why."""


def fill(page: Path, folder: Path) -> list[str]:
    """Write the tables of every figure that a page names anew, and return the figures' names.

    Args:
        page: The page.
        folder: Where the JSON files of the figures are.

    Raises:
        PageError: when a figure has no JSON file, or none that makes sense.
    """
    text = page.read_text()
    names = [found[2] for found in MARKED.finditer(text)]
    drawings = {name: _read(folder / f"{name}.json") for name in names}
    page.write_text(MARKED.sub(lambda found: f"{found[1]}{_tables(drawings[found[2]])}{found[3]}", text))
    return names


def _read(file: Path) -> Drawing:
    try:
        return from_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise PageError(f"{file}: {error}") from error


def _tables(drawing: Drawing) -> str:
    seeds = ", ".join(map(str, drawing.seeds))
    tables = "\n".join(map(as_markdown, drawing.tables))
    return f"{drawing.setting} Seeds {seeds}; ± is half the distance of the least and the greatest.\n\n{tables}"
