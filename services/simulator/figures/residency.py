"""Who is resident, and who is held, over the time of one run."""

from autellix.services.simulator.figures.drawing import Line, Panel
from autellix.services.simulator.figures.effort import Effort
from autellix.services.simulator.figures.figure import Content, Figure
from autellix.services.simulator.figures.runs import Runs
from autellix.services.simulator.results import Result
from autellix.services.simulator.scenario import Scenario

GATES = {"plain gate": ("fcfs", "plain"), "auto": ("auto", "fair")}


def run_of(system: str, seed: int, effort: Effort) -> Scenario:
    """Return one run."""
    policy, gate = GATES[system]
    return Scenario(
        workload="claude_code",
        max_context_tokens=120_000,
        policy=policy,  # type: ignore[arg-type]
        gate=gate,  # type: ignore[arg-type]
        programs=max(round(30 * effort.arrivals_s / 600), 12),
        live_programs=11,
        half="second",
        seed=seed,
        overrides={"engine": {"slots": 64, "kv_tokens": 400_000}},
        keep_stays=True,
        measure_from=0.0,
        measure_to=1.0,
    )


def scenarios(effort: Effort) -> list[Scenario]:
    """Return all runs."""
    return [run_of(system, seed, effort) for seed in effort.seeds for system in GATES]


def content(effort: Effort, runs: Runs) -> Content:
    """Return a panel for each gate and seed."""
    return Content([], [_panel(each, runs.result(each)) for each in scenarios(effort)])


def _panel(scenario: Scenario, result: Result) -> Panel:
    lines = [_spans(result, kind) for kind in ("resident", "held")]
    title = f"{scenario.policy}, gate {scenario.gate}, seed {scenario.seed}"
    return Panel(title=title, x_label="virtual time, s", y_label="program", lines=lines, kind="spans")


def _spans(result: Result, kind: str) -> Line:
    stays = [stay for stay in result.stays if stay.kind == kind]
    since = [stay.since_ms / 1000 for stay in stays]
    until = [stay.until_ms / 1000 for stay in stays]
    return Line(label=kind, x=since, y=[float(stay.program) for stay in stays], low=[*since], high=[*until])


def setting(effort: Effort) -> str:  # noqa: ARG001 - as for the other figures
    """Return how the runs are made."""
    return "Claude Code, eleven programs at a time, contexts of 120,000 tokens at most, 400,000 tokens of KV cache."


FIGURE = Figure("residency", "who is resident, and who is held", setting, scenarios, content)
