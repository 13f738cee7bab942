"""What the gateway says of itself and of the engines behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gateway.conftest import Front


async def test_ready_when_an_engine_is(front: Front) -> None:
    """The gateway is ready while an engine is in rotation, and says why when none is; it is alive all the time."""
    before = await front.http.get("/ready")
    await front.heartbeat("e0", "tiny")
    while (during := await front.http.get("/readyz")).status_code != 200:
        pass
    await front.heartbeat("e0", "tiny", state="draining")
    while (after := await front.http.get("/ready")).status_code == 200:
        pass
    alive = [await front.http.get(path) for path in ("/health", "/healthz")]

    assert before.status_code == 503
    assert before.json() == {"status": "not ready", "reason": "no engine is in rotation"}
    assert during.json() == {"status": "ready"}
    assert after.json() == before.json()
    assert [answer.status_code for answer in alive] == [200, 200]


async def test_models(front: Front) -> None:
    """The models are those of the engines in rotation, each once, as a list or one by one."""
    await front.heartbeat("e0", "tiny", "org/large")
    await front.heartbeat("e1", "tiny")
    while not (models := (await front.http.get("/v1/models")).json()["data"]):
        pass
    one = await front.http.get("/v1/models/org/large")

    assert [model["id"] for model in models] == ["org/large", "tiny"]
    assert one.json() == models[0]
    assert {name: type(value) for name, value in one.json().items()} == {
        "id": str,
        "object": str,
        "created": int,
        "owned_by": str,
    }
