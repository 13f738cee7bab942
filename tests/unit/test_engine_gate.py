"""When there is a gate before vLLM's scheduler, and what is said when there is none."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.kv_manager import vllm_manager

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def made(name: str, *, connector: Any = None, **manager: Any) -> Any:
    """Return the gate of a scheduler with such a KV cache."""
    from autellix.engine.vllm_adapter.calls import EngineCalls
    from autellix.engine.vllm_adapter.engine_gate import engine_gate
    from autellix.engine.vllm_adapter.reports import ReportSender
    from autellix.engine.vllm_adapter.request_queue import ProgramRequestQueue

    scheduler = SimpleNamespace(connector=connector, kv_cache_manager=vllm_manager(10, 40, **manager))
    reports = ReportSender(None)
    calls = EngineCalls({}, reports)  # type: ignore[arg-type]
    return engine_gate(name, scheduler, calls, ProgramRequestQueue(calls.rank_of), reports)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is logged about the gate, from now on; vLLM's loggers may pass nothing on."""
    from autellix.engine.vllm_adapter import engine_gate

    lines: list[str] = []
    monkeypatch.setattr(engine_gate.log, "warning", lambda text, *values: lines.append(text % values))
    return lines


@pytest.mark.parametrize("name", ["fair", "plain"])
def test_ordinary_models_have_a_gate(name: str, said: list[str]) -> None:
    """A model whose layers all attend to everything has the gate that is asked for, and nothing is said."""
    assert made(name) is not None
    assert said == []


def test_off(said: list[str]) -> None:
    """Without a gate vLLM's blocks are as they were."""
    assert made("off") is None
    assert said == []


@pytest.mark.parametrize(
    ("cache", "why"),
    [
        ({"caching": False}, "prefix caching is off"),
        ({"window": 8}, "other attention than full"),
        ({"connector": object()}, "KV connector"),
    ],
)
def test_where_there_can_be_none(cache: dict[str, Any], why: str, said: list[str]) -> None:
    """Where blocks are kept otherwise there is no gate, and one line says why."""
    assert made("fair", **cache) is None
    assert [why in message for message in said] == [True]


def test_unknown_gate() -> None:
    """A gate that does not exist is refused with the names of those that do."""
    with pytest.raises(ValueError, match="known: off, fair, plain"):
        made("large")
