"""What an engine is started with on the machine it finds."""

import os
from unittest import mock

import pytest

from autellix.engine.vllm_adapter.start import FEW_CORES, ONE_PROCESS, platform_arguments

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize(
    ("cpu", "cores", "together"),
    [(True, 1, True), (True, FEW_CORES, True), (True, FEW_CORES + 1, False), (False, 1, False)],
)
def test_model_and_scheduler_share_a_process_where_cores_are_few(
    monkeypatch: pytest.MonkeyPatch, cores: int, *, cpu: bool, together: bool
) -> None:
    """On a CPU with few cores vLLM's two processes, which spin while they wait for each other, are one."""
    from vllm.platforms import current_platform

    monkeypatch.setattr(current_platform, "is_cpu", lambda: cpu)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    with mock.patch.dict(os.environ):
        arguments = platform_arguments(kv_cache_gib=1)

    assert together == (ONE_PROCESS == arguments[-2:])


def test_the_named_executor_exists() -> None:
    """The argument is a class of the installed vLLM, and one that starts no further process."""
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    assert UniProcExecutor is resolve_obj_by_qualname(ONE_PROCESS[1])
