"""The process table and the engines, as tables for people."""

from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from autellix.client.tokens import TokenRates
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


def running_table(listed: ProgramList, rates: TokenRates) -> Table:
    """Return one row for each program that runs, who has attained the least first."""
    table = _table("Programs that run (in seconds; crit.: critical path; waits: share of waiting in life)")
    for title in ("id", "name", "by"):
        table.add_column(title, overflow="fold")
    for title in ("queue", "live", "calls", "service", "crit.", "waited", "waits", "tok/s"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("engine", overflow="fold")
    for program in sorted(listed.programs, key=lambda each: each.service_ms):
        table.add_row(
            program.program_id[:ID_SHOWN],
            Text(program.name),
            program.source,
            "" if program.queue is None else str(program.queue),
            str(program.live_calls),
            str(program.calls),
            *(f"{each / 1000:.2f}" for each in (program.service_ms, program.critical_path_ms, program.waiting_ms)),
            f"{program.waiting_ms / max(1.0, life_ms(program, listed.at_ms)):.0%}",
            f"{rates.of(program.program_id):.1f}",
            program.home_engine or ", ".join(program.engines),
        )
    return table


def program_details(program: ProgramRecord) -> Group:
    """Return all that is known of one program, and a row for each of its threads."""
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(program).items():
        facts.add_row(name, Text(value))  # from outside: no markup
    threads = _table("Threads (in seconds)")
    threads.add_column("thread", overflow="fold")
    for title in ("calls", "service", "waits"):
        threads.add_column(title, justify="right", no_wrap=True)
    threads.add_column("live call", overflow="fold")
    for thread in program.threads.values():
        times = (f"{each / 1000:.2f}" for each in (thread.service_ms, thread.wait_ms))
        threads.add_row(Text(thread.thread_id), str(thread.calls), *times, thread.live_call or "")
    return Group(facts, "", threads)


def _facts(program: ProgramRecord) -> dict[str, str]:
    began, ended = (
        at_ms and datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(timespec="seconds")
        for at_ms in (program.started_at_ms, program.ended_at_ms)
    )
    return {
        "program": program.program_id,
        "name": program.name,
        "named by": program.source,
        "kind": program.kind,
        "state": program.state,
        "began": began or "",
        "ended": ended or "",
        "calls": f"{program.calls} ended, {program.live_calls} live, displaced {program.preemptions} times",
        "service": f"{program.service_ms / 1000:.2f} s, on the critical path {program.critical_path_ms / 1000:.2f} s",
        "waited": f"{program.waiting_ms / 1000:.2f} s",
        "prompts": f"{program.prompt_tokens} tokens, {program.cached_tokens} of them cached",
        "answers": f"{program.output_tokens} tokens",
        "engines": f"{', '.join(program.engines)}; home: {program.home_engine or 'none'}",
    }


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
