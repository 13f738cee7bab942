"""What an engine is started with on the machine it finds."""

import os
from unittest import mock

import pytest

from autellix.engine.vllm_adapter.start import FEW_CORES, ONE_PROCESS, platform_arguments

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize(("cores", "together"), [(1, True), (FEW_CORES, True), (FEW_CORES + 1, False)])
def test_model_and_scheduler_share_a_process_where_cores_are_few(cores: int, *, together: bool) -> None:
    """On a CPU with few cores vLLM's two processes, which spin while they wait for each other, are one."""
    with mock.patch.object(os, "sched_getaffinity", return_value=set(range(cores))), mock.patch.dict(os.environ):
        arguments = platform_arguments(kv_cache_gib=1)

    assert together == (ONE_PROCESS == arguments[-2:])


def test_executor_is_one_that_vllm_has() -> None:
    """What is named is the class that vLLM takes for `uni` elsewhere."""
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    assert UniProcExecutor is resolve_obj_by_qualname(ONE_PROCESS[1])
