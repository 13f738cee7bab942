"""Figure 7: prefix hit rates by the length of the input: what could be hit, and what was."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from autellix.schemas.traces.workloads import arrivals
from autellix.services.simulator.figures.curves import Seeds, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.systems import BFCL, LATS, SHAREGPT, VLLM_OPT, Workload, online
from autellix.services.simulator.scenario import Scenario

WORKLOADS = (SHAREGPT, BFCL, LATS)
BOUNDS = (512, 1024, 2048, 4096, 8192, 16384)
NAMES = ["to 512", "to 1k", "to 2k", "to 4k", "to 8k", "to 16k", "above"]
LIGHT, HEAVY = 0, -2
"""Places in the workload's row of rates."""


class Prompt(NamedTuple):
    """How much of a prompt is shared; tokens."""

    tokens: int
    shared: int


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [_run(w, place, seed, effort) for w in WORKLOADS for place in (LIGHT, HEAVY) for seed in effort.seeds]


def content(effort: Effort, runs: Runs) -> Content:
    """Return the rates by length, of the trace and of the runs, and those of all lengths beside the paper's."""
    tables, panels, claims = [], [], []
    for workload in WORKLOADS:
        heavy = [_run(workload, HEAVY, seed, effort) for seed in effort.seeds]
        light = [_run(workload, LIGHT, seed, effort) for seed in effort.seeds]
        prompts = {
            "in its program": [list(_own(scenario)) for scenario in heavy],
            "in other programs": [list(_foreign(scenario)) for scenario in heavy],
            f"hit at {workload.rates[LIGHT]:g}/s": [list(_hit(scenario, runs)) for scenario in light],
            f"hit at {workload.rates[HEAVY]:g}/s": [list(_hit(scenario, runs)) for scenario in heavy],
        }
        rates = {name: _by_length(seeds) for name, seeds in prompts.items()}
        tables.append(_table(workload, rates))
        panels.append(_panel(workload, rates))
        claims.append([workload.name, "above 0.9", "", _range(rates["in its program"])])
    return Content([compared(["within a program, at the lengths"], claims), *tables], panels)


def _run(workload: Workload, place: int, seed: int, effort: Effort) -> Scenario:
    return online(workload, VLLM_OPT, workload.rates[place], seed, effort, keep_calls=True)


def _own(scenario: Scenario) -> Iterator[Prompt]:
    """Yield what later calls of programs share with earlier ones of theirs."""
    for arrival in arrivals(scenario):
        for call in arrival.program.calls:
            if call.source is not None:
                yield Prompt(call.prompt_tokens, call.shared_prefix_tokens)


def _foreign(scenario: Scenario) -> Iterator[Prompt]:
    """Yield what calls share with other programs."""
    for arrival in arrivals(scenario):
        for call in arrival.program.calls:
            yield Prompt(call.prompt_tokens, call.system_tokens)


def _hit(scenario: Scenario, runs: Runs) -> Iterator[Prompt]:
    """Yield what calls found in the cache."""
    for row in runs.result(scenario).calls:
        yield Prompt(row.prompt_tokens, row.cached_tokens)


def _by_length(seeds: list[list[Prompt]]) -> list[Seeds | None]:
    """Return for each length the shared share of tokens; None if a seed has no such prompt."""
    by_seed = [_shares(prompts) for prompts in seeds]
    return [
        Seeds(tuple(known)) if len(known := [share for share in shares if share is not None]) == len(shares) else None
        for shares in zip(*by_seed, strict=True)
    ]


def _shares(prompts: Iterable[Prompt]) -> list[float | None]:
    tokens, shared = [0] * len(NAMES), [0] * len(NAMES)
    for prompt in prompts:
        length = sum(prompt.tokens > bound for bound in BOUNDS)
        tokens[length] += prompt.tokens
        shared[length] += prompt.shared
    return [part / whole if whole else None for part, whole in zip(shared, tokens, strict=True)]


def _table(workload: Workload, rates: dict[str, list[Seeds | None]]) -> Table:
    rows = [
        [name, *(seeds.text() if (seeds := lengths[place]) else "" for lengths in rates.values())]
        for place, name in enumerate(NAMES)
    ]
    return Table(title=f"{workload.name}: share of prompt tokens", columns=["prompt", *rates], rows=rows)


def _panel(workload: Workload, rates: dict[str, list[Seeds | None]]) -> Panel:
    lines = []
    for name, lengths in rates.items():
        known = {place: seeds for place, seeds in enumerate(lengths) if seeds}
        lines.append(line(name, [*known], [*known.values()]))
    return Panel(
        title=workload.name,
        x_label="prompt tokens",
        y_label="share of prompt tokens",
        lines=lines,
        kind="bars",
        x_names=NAMES,
    )


def _range(lengths: list[Seeds | None]) -> str:
    known = [seeds.mean for seeds in lengths if seeds]
    return f"{min(known):.2f} to {max(known):.2f}"


def setting(effort: Effort) -> str:
    """Return how the numbers are made."""
    return (
        f"In its program: what the trace says a later call shares with an earlier one of its program. In other "
        f"programs: the system prompt. Hit: cached tokens under vllm-opt, one engine, {effort.length}, at a light "
        "load and past the knee."
    )


FIGURE = Figure("fig7", "prefix hit rates by length of the input", setting, scenarios, content)
