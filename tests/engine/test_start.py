"""What an engine is started with on the machine it finds."""

import os
from typing import Any
from unittest import mock

import pytest

from autellix.engine.vllm_adapter.start import BIND, FEW_CORES, ONE_PROCESS, platform_arguments
from autellix.services.config import LoadBalancerSettings

pytestmark = pytest.mark.vllm


@pytest.fixture(autouse=True)
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no engine bound, whatever the machine's owner has set."""
    monkeypatch.delenv(BIND, raising=False)


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
    """The argument is a class, and one that starts no further process."""
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    assert issubclass(resolve_obj_by_qualname(ONE_PROCESS[1]), UniProcExecutor)


def test_an_engine_with_a_core_of_its_own_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker process would inherit cores without that one."""
    from vllm.platforms import current_platform

    monkeypatch.setattr(current_platform, "is_cpu", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(FEW_CORES + 1)))
    with mock.patch.dict(os.environ, {BIND: "31"}):
        assert ONE_PROCESS == platform_arguments(kv_cache_gib=1)[-2:]


def test_a_regex_stops_the_worker_for_less_than_a_balancer_waits() -> None:
    """While vLLM looks at a regular expression the worker's loop stands still, and with it the heartbeat."""
    with mock.patch.dict(os.environ):
        os.environ.pop("VLLM_REGEX_COMPILATION_TIMEOUT_S", None)
        platform_arguments(kv_cache_gib=1)
        limit_s = float(os.environ["VLLM_REGEX_COMPILATION_TIMEOUT_S"])

    assert limit_s < LoadBalancerSettings().engine_silence_s / 2


@pytest.mark.parametrize("named", ["0-1", "0,1", "0|1", ""])
def test_several_cores_are_refused(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """Only the thread that steps the engine would move."""
    from autellix.engine.vllm_adapter.one_process import OneProcessExecutor

    monkeypatch.setenv(BIND, named)
    with pytest.raises(ValueError, match="name one core"):
        object.__new__(OneProcessExecutor)._init_executor()


@pytest.mark.parametrize(("named", "core"), [("1", 1), ("31", 31), ("auto", None), ("nobind", None)])
def test_the_computing_thread_moves_to_its_core_once(
    monkeypatch: pytest.MonkeyPatch, named: str, core: int | None
) -> None:
    """It does so before the first step, when the other threads of the engine are there, and not while it loads."""
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    from autellix.engine.vllm_adapter.one_process import OneProcessExecutor

    told: list[Any] = []
    monkeypatch.setenv(BIND, named)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: told.append((pid, cores)))
    monkeypatch.setattr(UniProcExecutor, "_init_executor", lambda _: told.append("loaded"))
    monkeypatch.setattr(UniProcExecutor, "execute_model", lambda _self, step, **_: told.append(step))
    executor = object.__new__(OneProcessExecutor)

    executor._init_executor()
    executor.execute_model(1, non_block=True)
    executor.execute_model(2, non_block=True)

    assert told == ["loaded", *([] if core is None else [(0, [core])]), 1, 2]
