"""What figures make of runs: numbers over seeds, crossings of curves, tables, the page."""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autellix.schemas.spread import Spread
from autellix.services.simulator.figures import fig06, fig12, sweeps
from autellix.services.simulator.figures.curves import (
    Bound,
    Seeds,
    bounds_text,
    crossing,
    interpolated,
    line,
    ratio,
)
from autellix.services.simulator.figures.drawing import Drawing, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.page import PageError, fill
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.systems import AUTELLIX, SHAREGPT, VLLM_OPT
from autellix.services.simulator.figures.tables import as_markdown, for_terminal
from autellix.services.simulator.scenario import Scenario

EFFORT = Effort(seeds=(1, 2), arrivals_s=60, offline_programs=(1,), engines=(1,))
TABLE = Table(title="Rates", columns=["programs/s", "autellix"], rows=[["1", "0.02 ±0.001"], ["2", "unfinished"]])


Latencies = Mapping[tuple[str, float], float]
"""Milliseconds a token by policy and arrival rate."""


class HandMade:
    """Runs of given latencies; the second seed takes twice as long. The share of waiting is the latency in seconds."""

    def __init__(self, latencies_ms: Latencies, hit_rates: Mapping[float, float]) -> None:
        self.latencies_ms = latencies_ms
        self.hit_rates = hit_rates

    def result(self, scenario: Scenario) -> Any:
        """Return as much of a result as curves look at."""
        latency_ms = self.latencies_ms[scenario.policy, scenario.rate_per_s or 0.0] * scenario.seed
        spread = Spread(mean=latency_ms, p50=latency_ms, p95=latency_ms, p99=latency_ms)
        share = Spread(mean=latency_ms / 1000, p50=0.0, p95=0.0, p99=0.0)
        hit_rate = self.hit_rates.get(scenario.rate_per_s or 0.0, 0.9)
        summary = SimpleNamespace(
            limit_hit=latency_ms == inf, ms_per_token=spread, wait_share=share, prefix_hit_rate=hit_rate
        )
        return SimpleNamespace(summary=summary)


def row(wait_ms: float, service_ms: float) -> Any:
    """Return as much of a row as groupings look at."""
    return SimpleNamespace(wait_ms=wait_ms, service_ms=service_ms)


def drawing() -> Drawing:
    """Return a figure with one table."""
    return Drawing(figure="fig1", title="Rates", setting="How.", seeds=[1, 2], tables=[TABLE], panels=[])


def hand_made(latencies_ms: Latencies, hit_rates: Mapping[float, float] | None = None) -> Runs:
    """Return runs of these latencies, and of these hit rates by arrival rate where they are not 0.9."""
    return cast("Runs", HandMade(latencies_ms, hit_rates or {}))


def test_seeds_tell_their_mean_and_how_far_they_lie_apart() -> None:
    """Several seeds are their mean and half their range; of one there is no range; one unfinished spoils all."""
    assert "0.03 ±0.01" == Seeds((0.02, 0.04)).text()
    assert "0.0312" == Seeds((0.03123,)).text()
    assert "unfinished" == Seeds((0.02, inf)).text()


def test_a_line_has_gaps_where_runs_did_not_finish() -> None:
    """Its points are means with the least and the greatest; an unfinished run leaves none of what it touches."""
    drawn = line("x", [1, 2], [Seeds((1.0, 3.0)), Seeds((1.0, inf))])

    assert ([2.0, None], [1.0, 1.0], [3.0, None]) == (drawn.y, drawn.low, drawn.high)


@pytest.mark.parametrize(
    ("latencies", "level", "found"),
    [
        ([1.0, 4.0, 16.0], 2.0, Bound(1.5)),
        ([1.0, 4.0, 16.0], 4.0, Bound(2.0)),
        ([1.0, 4.0, 2.0, 16.0], 3.0, Bound(1.0 + 0.7925, "")),
        ([1.0, inf], 3.0, Bound(1.0)),
        ([1.0, 2.0], 3.0, Bound(2.0, ">")),
        ([4.0, 8.0], 3.0, Bound(1.0, "<")),
    ],
)
def test_curves_cross_a_level(latencies: list[float], level: float, found: Bound) -> None:
    """The first crossing counts; a curve that never or always lies above gives a bound."""
    value, sign = crossing([1.0, 2.0, 3.0, 4.0][: len(latencies)], latencies, level)

    assert pytest.approx(found.value, rel=1e-3) == value
    assert found.sign == sign


@pytest.mark.parametrize(
    ("over", "under", "found"),
    [
        (Bound(3.0), Bound(2.0), Bound(1.5)),
        (Bound(3.0, ">"), Bound(2.0), Bound(1.5, ">")),
        (Bound(3.0), Bound(2.0, ">"), Bound(1.5, "<")),
        (Bound(3.0, ">"), Bound(2.0, "<"), Bound(1.5, ">")),
        (Bound(3.0, ">"), Bound(2.0, ">"), None),
    ],
)
def test_ratios_of_bounds_are_bounds(over: Bound, under: Bound, found: Bound | None) -> None:
    """A ratio is known as far as both sides are."""
    assert found == ratio(over, under)


def test_bounds_of_seeds_are_one_text() -> None:
    """Bounds of one direction are one; of both directions, or unknown for a seed, nothing is known."""
    assert ">1.5 ±0.5" == bounds_text([Bound(1.0), Bound(2.0, ">")])
    assert "-" == bounds_text([Bound(1.0, "<"), Bound(2.0, ">")])
    assert "-" == bounds_text([Bound(1.0), None])


def test_a_curve_is_read_between_its_points_only() -> None:
    """Between two points it is straight, outside there is nothing."""
    assert 15.0 == interpolated([1.0, 2.0], [10.0, 20.0], 1.5)
    assert None is interpolated([1.0, 2.0], [10.0, 20.0], 2.5)


def test_rates_make_a_table() -> None:
    """A row has the numbers of every system at a rate; a system that was not run there has none."""
    runs = hand_made({("fcfs", 1.0): 20.0, ("fcfs", 2.0): inf, ("plas", 1.0): 10.0})
    fcfs = sweeps.at_rates(SHAREGPT, VLLM_OPT, (1.0, 2.0), EFFORT)
    plas = sweeps.at_rates(SHAREGPT, AUTELLIX, (1.0,), EFFORT)
    table = sweeps.rate_table("latency", [fcfs, plas], runs, sweeps.token_latency_s)

    assert ["programs/s", "vllm-opt", "autellix"] == table.columns
    assert [["1", "0.03 ±0.01", "0.015 ±0.005"], ["2", "unfinished", ""]] == table.rows


def test_throughput_is_compared_at_equal_latency() -> None:
    """For each seed the rates at which two curves reach a level are compared."""
    rates, doubling, later = (1.0, 2.0, 3.0), (10.0, 20.0, 40.0), (5.0, 5.0, 20.0)
    runs = hand_made(
        {("fcfs", rate): ms for rate, ms in zip(rates, doubling, strict=True)}
        | {("plas", rate): ms for rate, ms in zip(rates, later, strict=True)}
    )
    ours, theirs = (sweeps.at_rates(SHAREGPT, system, rates, EFFORT) for system in (AUTELLIX, VLLM_OPT))
    found = sweeps.throughput_ratio(ours, theirs, runs, sweeps.token_latency_s, level=0.02)

    assert [Bound(1.5), Bound(2.5, ">")] == found


@pytest.mark.parametrize(("hit_rates", "rate"), [({}, 2.0), ({2.0: 0.8}, 1.0), ({1.0: 0.5}, 2.0)])
def test_the_knee_is_the_last_rate_that_fcfs_bears(hit_rates: dict[float, float], rate: float) -> None:
    """At the knee programs wait for less than a tenth of their response and hit the cache as at the lightest load."""
    latencies_ms = {("fcfs", 1.0): 10.0, ("fcfs", 2.0): 20.0, ("fcfs", 3.0): 80.0, ("fcfs", 4.0): 20.0}
    fcfs = sweeps.at_rates(SHAREGPT, VLLM_OPT, (1.0, 2.0, 3.0, 4.0), EFFORT)
    knee = fig12.knee(fcfs, hand_made(latencies_ms, hit_rates))

    assert rate == knee.rate
    assert pytest.approx(0.015 * rate) == knee.latency_s


def test_rows_are_grouped_by_length() -> None:
    """Waiting and service of a group are summed before they are divided; lengths at a bound are below it."""
    rows = [(1, 10.0, 10.0), (2, 30.0, 10.0), (3, 50.0, 50.0), (9, 7.0, 1.0)]
    grouping = fig06.Grouping("by length", (2, 3, 5), lambda _: ((n, row(wait, ran)) for n, wait, ran in rows))

    assert ["1-2", "3", "4-5", "6+"] == grouping.names
    assert [2.0, 1.0, 0.0, 7.0] == grouping.ratios(cast("Any", None))


def test_tables_are_shown_and_written() -> None:
    """A table keeps its cells on a terminal and in Markdown."""
    shown = for_terminal(TABLE)

    assert ("Rates", 2, 2) == (shown.title, len(shown.columns), shown.row_count)
    assert (
        "**Rates**\n\n| programs/s | autellix |\n| --- | ---: |\n| 1 | 0.02 ±0.001 |\n| 2 | unfinished |\n"
    ) == as_markdown(TABLE)


def test_a_page_is_filled_between_its_marks(tmp_path: Path) -> None:
    """Tables come between a figure's marks, in place of those before; the prose stays, and again changes nothing."""
    page = tmp_path / "page.md"
    page.write_text("Before\n\n<!-- tables of fig1 -->\nold\n<!-- end -->\n\nAfter\n")
    (tmp_path / "fig1.json").write_bytes(drawing().as_json())
    fill(page, tmp_path)
    once = page.read_text()

    assert ["fig1"] == fill(page, tmp_path)
    assert once == page.read_text()
    assert as_markdown(TABLE) in once
    assert "How. Seeds 1, 2;" in once
    assert "old" not in once
    assert (once.startswith("Before\n"), once.endswith("After\n")) == (True, True)


def test_a_page_without_its_figures_is_refused(tmp_path: Path) -> None:
    """A figure that was not drawn, or whose file is something else, is named, and the page stays as it was."""
    page = tmp_path / "page.md"
    page.write_text("<!-- tables of fig1 -->\n<!-- end -->\n")
    with pytest.raises(PageError, match=r"fig1\.json"):
        fill(page, tmp_path)
    (tmp_path / "fig1.json").write_text("{}")
    with pytest.raises(PageError, match=r"fig1\.json: Object missing required field"):
        fill(page, tmp_path)

    assert "<!-- tables of fig1 -->\n<!-- end -->\n" == page.read_text()
