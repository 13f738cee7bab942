"""What a figure comes to: tables and panels, with every number that is in them. This is what its JSON file holds."""

from typing import Literal

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line, or one colour of bars; its values are means over seeds, None where a run did not finish."""

    label: str
    x: list[float]
    y: list[float | None]
    low: list[float | None]
    """The least value of any seed."""
    high: list[float | None]


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    kind: Literal["lines", "bars", "stacks", "spans"] = "lines"
    """Bars and stacks stand at the places of `x_names`; a span is at a y, and reaches from its low to its high x."""
    x_names: list[str] = []
    y_log: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table; its first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with its numbers."""

    figure: str
    title: str
    setting: str
    """How the runs were made, in a sentence or two."""
    seeds: list[int]
    tables: list[Table]
    panels: list[Panel]

    def as_json(self) -> bytes:
        """Return the figure as JSON; equal runs give equal bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def from_json(data: bytes) -> Drawing:
    """Return the figure in a JSON file.

    Raises:
        msgspec.ValidationError: when it is none.
    """
    return msgspec.json.decode(data, type=Drawing)
