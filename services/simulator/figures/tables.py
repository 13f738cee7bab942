"""The tables of a figure, for a terminal and for a page."""

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from autellix.services.simulator.figures.drawing import Table


def for_terminal(table: Table) -> RichTable:
    """Return a table to print."""
    shown = RichTable(title=table.title, box=SIMPLE_HEAD, title_justify="left")
    shown.add_column(table.columns[0])
    for column in table.columns[1:]:
        shown.add_column(column, justify="right")
    for row in table.rows:
        shown.add_row(*row)
    return shown


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, its title before it."""
    rules = ["---", *("---:" for _ in table.columns[1:])]
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.columns, rules, *table.rows)]
    return f"**{table.title}**\n\n" + "\n".join(lines) + "\n"
