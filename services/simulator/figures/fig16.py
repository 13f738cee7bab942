"""Figure 16: the makespan of programs that are all there from the start."""

from autellix.services.simulator.figures.curves import Seeds, line
from autellix.services.simulator.figures.drawing import Panel, Table
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure, compared
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.figures.sweeps import hit_rate
from autellix.services.simulator.figures.systems import AUTELLIX, MLFQ, SHAREGPT, VLLM, VLLM_OPT, offline
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

AUTO = "auto"
"""The product as it comes: the policy `auto`, and with it the gate."""
SYSTEMS = (VLLM, VLLM_OPT, MLFQ, AUTELLIX, AUTO)
OURS = (AUTELLIX, AUTO)


def run_of(system: str, programs: int, seed: int) -> Scenario:
    """Return one run."""
    if system == AUTO:
        return offline(SHAREGPT, AUTELLIX, programs, seed, policy=AUTO)
    return offline(SHAREGPT, system, programs, seed)


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [run_of(s, programs, seed) for s in SYSTEMS for programs in effort.offline_programs for seed in effort.seeds]


def makespan_s(result: Result) -> float:
    """Return when the last program ended."""
    return result.summary.virtual_ms / 1000


def mean_response_s(result: Result) -> float:
    """Return the mean response of programs."""
    return result.summary.response_ms.mean / 1000 if result.summary.response_ms else float("inf")


VALUES = {"makespan, s": makespan_s, "mean response, s": mean_response_s, "prefix hit rate": hit_rate}


def content(effort: Effort, runs: Runs) -> Content:
    """Return makespans, what Autellix saves of them as in the paper and as it comes, and the mean responses."""
    sizes = effort.offline_programs
    numbers = {
        name: {
            (system, size): Seeds(tuple(value(runs.result(run_of(system, size, seed))) for seed in effort.seeds))
            for system in SYSTEMS
            for size in sizes
        }
        for name, value in VALUES.items()
    }
    spans = numbers["makespan, s"]
    claims = [
        [f"{ours}, over {other}", "-10 to -40 %", "", _saved(ours, other, spans, sizes)]
        for ours in OURS
        for other in SYSTEMS
        if other not in OURS
    ]
    tables = [_table(name, of, sizes) for name, of in numbers.items()]
    lines = [line(system, range(len(sizes)), [spans[system, size] for size in sizes]) for system in SYSTEMS]
    panel = Panel(
        title="sharegpt, all at once",
        x_label="programs",
        y_label="makespan, s",
        lines=lines,
        kind="bars",
        x_names=[f"{size}" for size in sizes],
    )
    return Content([compared(["makespan"], claims), *tables], [panel])


def _saved(ours: str, other: str, spans: dict[tuple[str, int], Seeds], sizes: tuple[int, ...]) -> str:
    return ", ".join(f"{100 * (spans[ours, size].mean / spans[other, size].mean - 1):+.1f} %" for size in sizes)


def _table(name: str, numbers: dict[tuple[str, int], Seeds], sizes: tuple[int, ...]) -> Table:
    rows = [[f"{size}", *(numbers[system, size].text(4) for system in SYSTEMS)] for size in sizes]
    return Table(title=name, columns=["programs", *SYSTEMS], rows=rows)


def setting(effort: Effort) -> str:
    """Return how the runs are made."""
    sizes = ", ".join(str(size) for size in effort.offline_programs)
    return f"sharegpt on one engine, {sizes} programs at once, until the last has ended."


FIGURE = Figure("fig16", "makespan when all programs are there from the start", setting, scenarios, content)
