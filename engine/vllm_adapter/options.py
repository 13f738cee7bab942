"""What the worker tells the scheduler (vLLM's `additional_config`) and what a call tells it (`vllm_xargs`)."""

from typing import Any

import msgspec

from autellix.engine.executor import EngineCall
from autellix.schemas.ids import CallId
from autellix.schemas.messages import ProgramFacts

CONFIG_KEY = "autellix"
ARG_PREFIX = "autellix_"


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's settings."""

    policy: str
    first_quantum_ms: float = 100.0
    queues: int = 12
    beta: float = 8.0
    policy_interval_steps: int = 1
    preemptions_per_step_max: int = 4
    report_socket: str | None = None


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
        "autellix_service_ms": call.program.service_ms,
        "autellix_critical_path_ms": call.program.critical_path_ms,
        "autellix_waiting_ms": call.program.waiting_ms,
    }


def from_xargs(extra_args: dict[str, Any] | None, request_id: str) -> tuple[CallId, ProgramFacts]:
    """Read a call's facts back; a request that came past the worker is a call of a program that had nothing."""
    args = extra_args or {}
    facts = ProgramFacts(
        service_ms=float(args.get("autellix_service_ms", 0.0)),
        critical_path_ms=float(args.get("autellix_critical_path_ms", 0.0)),
        waiting_ms=float(args.get("autellix_waiting_ms", 0.0)),
    )
    return CallId(str(args.get("autellix_call_id", request_id))), facts
