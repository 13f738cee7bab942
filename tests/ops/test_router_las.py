"""The router that the benchmark compares with: who was served least goes first, and answers are the engine's."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import router_las
from router_las import Admission, Router

from autellix.client.plan import Plan
from autellix.client.stack import Stack, free_port

END_S = 30.0


class Calls:
    """Calls that stay in until they are told to leave, on a clock that a test sets."""

    def __init__(self, slots: int) -> None:
        self.now_s = 0.0
        self.inside: asyncio.Queue[str] = asyncio.Queue()
        """Who has come in, in order."""
        self.admission = Admission(slots, clock=lambda: self.now_s)
        self._leave: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def end(self) -> None:
        """Cancel whatever waits or stays."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def come(self, *names: str) -> None:
        """Have calls ask to be let in; the first letter of a name is the program."""
        for name in names:
            asking, self._leave[name] = asyncio.Event(), asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name, asking))
            await asking.wait()

    async def _stay(self, name: str, asking: asyncio.Event) -> None:
        asking.set()
        async with self.admission.turn(name[0]):
            self.inside.put_nowait(name)
            await self._leave[name].wait()

    async def go(self, name: str) -> None:
        """Have a call leave."""
        self._leave[name].set()
        await self.tasks[name]


@pytest.fixture
async def calls(request: pytest.FixtureRequest) -> AsyncIterator[Calls]:
    """Return calls in front of one slot, or as many as the parameter says."""
    calls = Calls(getattr(request, "param", 1))
    yield calls
    await calls.end()


async def test_the_program_that_was_served_least_is_next(calls: Calls) -> None:
    """A program that had 5 s waits for one that had none, though it came first."""
    await calls.come("a1", "a2", "b1")
    assert "a1" == await calls.inside.get()

    calls.now_s = 5.0
    await calls.go("a1")
    assert "b1" == await calls.inside.get()

    calls.now_s = 12.0
    await calls.come("b2")
    await calls.go("b1")
    assert "a2" == await calls.inside.get()  # 5 s, and b has had 7


async def test_equals_go_in_order_of_arrival(calls: Calls) -> None:
    """Programs that had the same go one after the other."""
    await calls.come("a1", "c1", "b1")

    for name in ("a1", "c1", "b1"):
        assert name == await calls.inside.get()
        await calls.go(name)


@pytest.mark.parametrize("calls", [2], indirect=True)
async def test_so_many_are_inside_at_once(calls: Calls) -> None:
    """With two slots the third call waits until one of the two has left."""
    await calls.come("a1", "b1", "c1")
    both = {await calls.inside.get(), await calls.inside.get()}
    waits = calls.inside.empty()
    await calls.go("b1")

    assert {"a1", "b1"} == both
    assert waits
    assert "c1" == await calls.inside.get()


async def test_who_hangs_up_holds_nothing(calls: Calls) -> None:
    """A call that is cancelled, waiting or inside, leaves its place to the next."""
    await calls.come("a1", "b1", "c1")
    await calls.inside.get()
    calls.tasks["b1"].cancel()
    calls.tasks["a1"].cancel()

    assert "c1" == await calls.inside.get()


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Return the URL of a real stack with a simulated engine."""
    simulated = ("engine_worker.backend=simulated",)
    plan = Plan(model="tiny", port=0, overrides=simulated, log_dir=tmp_path_factory.mktemp("logs"))
    async with Stack(plan) as stack:
        yield stack.http_url


@asynccontextmanager
async def routed(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a router in front of a server."""
    async with httpx.AsyncClient(base_url=url) as behind:
        router = httpx.ASGITransport(Router(behind, Admission(1)))
        async with httpx.AsyncClient(transport=router, base_url="http://router") as http:
            yield http


async def test_answers_come_through(engine: str) -> None:
    """A streamed answer, an error, and a list of models are the engine's own."""
    body = {"model": "tiny", "prompt": "Hi", "max_tokens": 3}
    async with routed(engine) as http, httpx.AsyncClient(base_url=engine) as direct:
        streamed = await http.post("/v1/completions", json={**body, "stream": True})
        refused = await http.post("/v1/completions", json={**body, "model": "none"})
        models = await http.get("/v1/models")
        expected = await direct.get("/v1/models")

    assert "text/event-stream" == streamed.headers["content-type"].split(";")[0]
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert 404 == refused.status_code
    assert [model["id"] for model in expected.json()["data"]] == [model["id"] for model in models.json()["data"]]


async def test_an_engine_that_is_not_there_is_an_error() -> None:
    """Without an engine the answer is 502, and the place in it is free again."""
    async with routed(f"http://127.0.0.1:{free_port()}") as http:
        found = [(await http.post("/v1/completions")).status_code for _ in range(2)]

    assert [502, 502] == found


def test_the_router_goes_with_its_engine() -> None:
    """When the engine ends by itself, so does the router, and who waits for it learns that."""
    command = [sys.executable, router_las.__file__, "--port", str(free_port()), "--slots", "1", "--"]
    done = subprocess.run([*command, sys.executable, "-c", "pass"], check=False, timeout=END_S)

    assert -signal.SIGTERM == done.returncode
