"""The process table and the engines, as tables for people."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from autellix.schemas.table import EngineList, ProgramList, ProgramRecord

ID_SHOWN = 6
"""Characters of a program id that tell programs apart."""


def life_ms(program: ProgramRecord, now_ms: float) -> float:
    """Return the time from the program's start to its end, or until now."""
    return (now_ms if program.ended_at_ms is None else program.ended_at_ms) - program.started_at_ms


def interrupted_ms(program: ProgramRecord, now_ms: float) -> float:
    """Return the time that the program spent outside the engine: no call of it was live."""
    return max(0.0, life_ms(program, now_ms) - program.busy_ms)


def programs_table(listed: ProgramList) -> Table:
    """Return one row for each program; it fits a terminal of 80 columns."""
    table = _table("Programs (in seconds; interr.: no call live, crit.: critical path)")
    for title in ("id", "name", "state"):
        table.add_column(title, overflow="fold")
    for title in ("calls", "live", "service", "waits", "interr.", "crit.", "tokens"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("engines", overflow="fold")
    for program in listed.programs:
        table.add_row(*_program_row(program, listed.at_ms))
    return table


def _program_row(program: ProgramRecord, now_ms: float) -> list[Text | str]:
    interrupted = interrupted_ms(program, now_ms)
    times = (program.service_ms, program.waiting_ms, interrupted, program.critical_path_ms)
    return [
        program.program_id[:ID_SHOWN],
        Text(program.name),  # from outside: no markup
        program.state,
        str(program.calls),
        str(program.live_calls),
        *(f"{time / 1000:.2f}" for time in times),
        str(program.prompt_tokens + program.output_tokens),
        ", ".join(program.engines),
    ]


def engines_table(listed: EngineList) -> Table:
    """Return one row for each engine."""
    table = _table("Engines")
    for title in ("engine", "state", "models", "policy"):
        table.add_column(title, overflow="fold")
    for title in ("calls", "running", "waiting", "slots", "KV", "steps"):
        table.add_column(title, justify="right", no_wrap=True)
    for engine in sorted(listed.engines, key=lambda engine: engine.engine_id):
        counts = (engine.calls, engine.running, engine.waiting, engine.slots)
        table.add_row(
            engine.engine_id,
            engine.state,
            Text(", ".join(engine.models)),
            engine.policy,
            *(str(count) for count in counts),
            f"{engine.kv_usage:.0%}",
            str(engine.steps),
        )
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, show_edge=False)
