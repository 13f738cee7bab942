"""vLLM's scheduler and model in one process, and the model on a core of its own.

On a CPU vLLM gives the model a process of its own (and means it when `uni` is asked for), to bind its threads to cores;
then both spin while they wait for each other, and fill two cores.

`VLLM_CPU_OMP_THREADS_BIND` names the core. One thread computes (`OMP_NUM_THREADS=1`), and only that one moves there:
those that carry its results out must not wait for it. Several cores, as vLLM takes them, would need its own way.
"""

import os
from typing import Any

from vllm.v1.executor.uniproc_executor import UniProcExecutor

from autellix.engine.vllm_adapter.start import BIND

_ANY_CORE = ("auto", "nobind")


class OneProcessExecutor(UniProcExecutor):  # type: ignore[misc] # vLLM's types are not ours to check
    """Runs the model where the scheduler runs."""

    def _init_executor(self) -> None:
        named = os.environ.get(BIND, "auto")
        if named not in _ANY_CORE and not named.isdecimal():
            text = "one thread computes here; name one core, or ask for --distributed-executor-backend mp"
            raise ValueError(f"{BIND}={named}: {text}")
        self._core = None if named in _ANY_CORE else int(named)
        super()._init_executor()

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a step; before the first, move to the core: threads that exist by now stay where they are."""
        if self._core is not None:
            os.sched_setaffinity(0, [self._core])
            self._core = None
        return super().execute_model(*args, **kwargs)
