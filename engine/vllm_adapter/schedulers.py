"""Which scheduler an engine gets.

vLLM has two: one that schedules a step when the last one's output is there, and one that schedules ahead and keeps
accounts of tokens that are to come. Where steps are small these accounts take 2 to 3% of the time, so an engine that
does not schedule ahead, as on a CPU, is given the plain one.
"""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from autellix.engine.vllm_adapter.scheduler import ProgramScheduler


class AsyncProgramScheduler(ProgramScheduler, AsyncScheduler):  # type: ignore[misc] # vLLM's types are not ours to check
    """Ours, for steps that are scheduled ahead."""


def program_scheduler(vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> ProgramScheduler:
    """Return the scheduler of an engine: given to vLLM by `scheduler_cls`, as if it were a class."""
    chosen = AsyncProgramScheduler if vllm_config.scheduler_config.async_scheduling else ProgramScheduler
    return chosen(vllm_config, *args, **kwargs)
