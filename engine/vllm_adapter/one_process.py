"""vLLM's scheduler and model in one process, and the model on cores of its own.

On a CPU vLLM gives the model a process of its own (and means it when `uni` is asked for), to bind its threads to cores;
then both spin while they wait for each other, and fill two cores.

`VLLM_CPU_OMP_THREADS_BIND` names the cores as it does for vLLM (`1`, `0-2,5`). Only the thread that computes moves to
them: those that carry its results out must not wait for it.
"""

import os
from typing import Any

from vllm import envs
from vllm.utils.cpu_resource_utils import parse_id_list
from vllm.v1.executor.uniproc_executor import UniProcExecutor

_ANY_CORE = ("auto", "nobind")


class OneProcessExecutor(UniProcExecutor):  # type: ignore[misc] # vLLM's types are not ours to check
    """Runs the model where the scheduler runs."""

    def _init_executor(self) -> None:
        named = envs.VLLM_CPU_OMP_THREADS_BIND
        self._cores = [] if named in _ANY_CORE else parse_id_list(named)
        super()._init_executor()

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a step; before the first, move to the cores: threads that exist by now stay where they are."""
        if self._cores:
            os.sched_setaffinity(0, self._cores)
            self._cores = []
        return super().execute_model(*args, **kwargs)
