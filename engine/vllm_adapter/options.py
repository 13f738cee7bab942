"""What the worker tells the scheduler (vLLM's `additional_config`) and what a call tells it (`extra_args`)."""

from math import inf
from typing import Any, NamedTuple

import msgspec

from autellix.engine.executor import EngineCall
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import ProgramFacts

CONFIG_KEY = "autellix"
ARG_PREFIX = "autellix_"


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's settings."""

    policy: str
    gate: str = "off"
    first_quantum_ms: float = 100.0
    queues: int = 12
    fit_ladder: bool = True
    beta: float = 8.0
    policy_interval_steps: int = 1
    preemptions_per_step_max: int = 4
    report_socket: str | None = None
    notice_socket: str | None = None
    allow_untested_vllm: bool = False


class CallFacts(NamedTuple):
    """What the scheduler is told of a call."""

    call_id: CallId
    program_id: ProgramId
    thread_id: ThreadId
    program: ProgramFacts
    came_past_the_worker: bool
    """Then it is a program of its own, and nobody tells when that is over."""


def to_config(options: SchedulerOptions) -> dict[str, Any]:
    """Return vLLM's `additional_config`."""
    return {CONFIG_KEY: msgspec.to_builtins(options)}


def from_config(additional_config: Any) -> SchedulerOptions:
    """Read vLLM's `additional_config` back.

    Raises:
        ValueError: when the scheduler was started without its options.
    """
    if not isinstance(additional_config, dict) or CONFIG_KEY not in additional_config:
        raise ValueError(f"ProgramScheduler needs additional_config[{CONFIG_KEY!r}], as the engine worker gives it")
    return msgspec.convert(additional_config[CONFIG_KEY], SchedulerOptions)


def to_xargs(call: EngineCall) -> dict[str, str | float]:
    """Return a call's facts as the flat scalars that vLLM passes on to its scheduler."""
    return {
        "autellix_call_id": call.call_id,
        "autellix_program_id": call.program_id,
        "autellix_thread_id": call.thread_id,
        "autellix_service_ms": call.program.service_ms,
        "autellix_critical_path_ms": call.program.critical_path_ms,
        "autellix_waiting_ms": call.program.waiting_ms,
        "autellix_kind": call.program.kind,
    }


def from_xargs(extra_args: dict[str, Any] | None, request_id: str) -> CallFacts:
    """Read a call's facts back; a request that came past the worker is a call of a program that had nothing."""
    args = extra_args or {}
    facts = ProgramFacts(
        service_ms=_duration(args.get("autellix_service_ms")),
        critical_path_ms=_duration(args.get("autellix_critical_path_ms")),
        waiting_ms=_duration(args.get("autellix_waiting_ms")),
        kind=str(args.get("autellix_kind", "")),
    )
    call_id = CallId(str(args.get("autellix_call_id", request_id)))
    return CallFacts(
        call_id=call_id,
        program_id=ProgramId(str(args.get("autellix_program_id", call_id))),
        thread_id=ThreadId(str(args.get("autellix_thread_id", ""))),
        program=facts,
        came_past_the_worker="autellix_program_id" not in args,
    )


def _duration(value: Any) -> float:
    """Return a duration, or 0 for what is none: a request that came past the worker may hold anything."""
    known = isinstance(value, int | float) and 0 <= value < inf
    return float(value) if known else 0.0
