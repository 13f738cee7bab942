"""What a figure is: the runs it needs, and what it makes of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from autellix.services.simulator.figures.drawing import Drawing, Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.scenario import Scenario


class Content(NamedTuple):
    """What a figure shows."""

    tables: list[Table]
    panels: list[Panel]


class Figure(NamedTuple):
    """One figure of the paper, or one of our own."""

    name: str
    title: str
    setting: Callable[[Effort], str]
    """How the runs are made, in a sentence or two."""
    scenarios: Callable[[Effort], list[Scenario]]
    content: Callable[[Effort, Runs], Content]
    """Takes runs in which all of `scenarios` have been made."""

    def drawing(self, effort: Effort, runs: Runs) -> Drawing:
        """Return the figure, drawn from runs that have been made."""
        tables, panels = self.content(effort, runs)
        return Drawing(
            figure=self.name,
            title=self.title,
            setting=self.setting(effort),
            seeds=list(effort.seeds),
            tables=tables,
            panels=panels,
        )


def compared(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return the table that puts our numbers beside those of the paper and of an independent simulation.

    Args:
        columns: Names of the row's first cells; those of the three numbers follow.
        rows: The cells: what it is, the paper's number, the independent simulation's, ours.
    """
    return Table(
        title="Beside the paper",
        columns=[*columns, "paper", "independent simulation", "here"],
        rows=[list(row) for row in rows],
    )
