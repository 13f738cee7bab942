"""Clients of OpenAI and Anthropic, and bare httpx, whose calls belong to the program that they run in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import anthropic
import httpx
import openai
import pytest

from autellix.client import Program, instrument, runs

if TYPE_CHECKING:
    from autellix.client.stack import Stack

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture(autouse=True)
def _no_program_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test end its program when pytest ends, and none go on with another's."""
    monkeypatch.setattr(runs, "_of_process", None)
    monkeypatch.setattr("atexit.register", lambda *_: None)


class Heard:
    """A server that answers each request with a call id of its own, and keeps what it was told."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        self.requests.append(request)
        number = len(self.requests)
        return httpx.Response(200, headers={"X-Autellix-Call-Id": f"call-{number}"}, json={"id": str(number)})

    def told(self, name: str) -> list[str | None]:
        """Return what each request said in one of our headers."""
        return [request.headers.get(f"x-autellix-{name}") for request in self.requests]


@pytest.fixture
def heard() -> Heard:
    """Return the server."""
    return Heard()


def asynchronous(heard: Heard) -> httpx.AsyncClient:
    """Return an instrumented client of it."""
    return instrument(httpx.AsyncClient(transport=httpx.MockTransport(heard), base_url="http://gate"))


async def test_program_thread_and_parents(stack: Stack, heard: Heard) -> None:
    """Calls name their program, tasks are threads, and a call comes after those that it waited for."""
    async with Program("p", nats_url=stack.nats_url) as program, asynchronous(heard) as client:
        await client.post("/v1/chat/completions", json=BODY)
        await asyncio.gather(*(client.post("/v1/chat/completions", json=BODY) for _ in range(2)))
        await client.post("/v1/chat/completions", json=BODY)

    assert {program.id} == set(heard.told("program-id"))
    assert heard.told("thread-id") == ["main", "t2", "t3", "main"]
    assert heard.told("parent-ids") == [None, "call-1", "call-1", "call-1,call-2,call-3"]


async def test_two_programs(stack: Stack, heard: Heard) -> None:
    """Each task's calls are of the program that it runs in."""
    async with asynchronous(heard) as client:

        async def agent() -> str:
            async with Program("p", nats_url=stack.nats_url) as program:
                await asyncio.sleep(0.01)
                answer = await client.post("/v1/chat/completions", json=BODY)
                assert answer.request.headers["x-autellix-program-id"] == program.id
                return program.id

        ids = await asyncio.gather(*(agent() for _ in range(3)))

    assert len(set(ids)) == 3


async def test_tasks_outside_of_a_program(stack: Stack, heard: Heard) -> None:
    """A task that opened no program is in none that others have open, and one that outlives its program in no other."""
    async with asynchronous(heard) as client:
        begun, over = asyncio.Event(), asyncio.Event()

        async def outlives() -> None:
            await over.wait()
            await client.post("/v1/chat/completions", json=BODY)

        async def plain() -> None:
            await begun.wait()
            await client.post("/v1/chat/completions", json=BODY)

        outsider = asyncio.create_task(plain())
        async with Program("a", nats_url=stack.nats_url):
            late = asyncio.create_task(outlives())
            begun.set()
            await outsider
        async with Program("b", nats_url=stack.nats_url):
            over.set()
            await late

    assert heard.told("program-id") == [None, None]


async def test_program_of_the_process(heard: Heard) -> None:
    """Who opens no program has one for the process, the same for all its calls, and in threads of Python, too."""
    synchronous = instrument(httpx.Client(transport=httpx.MockTransport(heard), base_url="http://gate"))
    async with asynchronous(heard) as client:
        await client.post("/v1/chat/completions", json=BODY)
        thread = threading.Thread(target=synchronous.post, args=["/v1/chat/completions"], kwargs={"json": BODY})
        thread.start()
        await asyncio.to_thread(thread.join)
        await asyncio.to_thread(synchronous.post, "/v1/chat/completions", json=BODY)

    names = {request.headers["x-session-id"] for request in heard.requests}
    assert len(names) == 1
    assert len(set(heard.told("thread-id"))) == 3


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"X-Session-ID": "mine"}, {}),
        ({"x-claude-code-session-id": "mine"}, {}),
        ({}, {"session_id": "mine"}),
        ({}, {"metadata": {"program_id": "mine"}}),
        ({}, {"vllm_xargs": {"agentic_context": {"program_id": "mine"}}}),
        ({}, {"conversation": {"id": "mine"}}),
    ],
)
async def test_own_words_stay(heard: Heard, headers: dict[str, str], body: dict[str, Any]) -> None:
    """A request that names its program, in any way, is left alone."""
    async with asynchronous(heard) as client:
        await client.post("/v1/chat/completions", json={**BODY, **body}, headers=headers)

    assert (heard.told("thread-id"), heard.told("program-id")) == ([None], [None])


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": 'What is "session_id"?'}]},
        {"metadata": {"session_id": "x"}},
        {"vllm_xargs": {"program_id": "x", "agentic_context": {}}},
        {"session_id": "", "metadata": None, "conversation": {}},
    ],
)
async def test_what_names_no_program(heard: Heard, fields: dict[str, Any]) -> None:
    """A text that speaks of sessions names none, and neither do fields that the gateway does not go by."""
    async with asynchronous(heard) as client:
        await client.post("/v1/chat/completions", json={**BODY, **fields})

    assert heard.told("thread-id") == ["main"]


async def test_what_is_no_call(heard: Heard) -> None:
    """Other requests, and those to other servers, are left alone."""
    async with asynchronous(heard) as client:
        await client.get("/v1/models")
        await client.post("http://elsewhere/v1/chat/completions", json=BODY)

    assert heard.told("thread-id") == [None, None]


async def test_parents_from_pools(stack: Stack, heard: Heard) -> None:
    """Calls from a pool's threads come after who spawned them, and who awaited them comes after them."""
    plain = instrument(httpx.Client(transport=httpx.MockTransport(heard), base_url="http://gate"))

    def ask() -> None:
        plain.post("/v1/chat/completions", json=BODY)

    async with Program("p", nats_url=stack.nats_url), asynchronous(heard) as client:
        for _ in range(2):
            await client.post("/v1/chat/completions", json=BODY)
            await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(2)))
        await client.post("/v1/chat/completions", json=BODY)

    parents = [set((parents or "").split(",")) for parents in heard.told("parent-ids")]
    assert parents[1:3] == [{"call-1"}] * 2
    assert parents[3] == {"call-1", "call-2", "call-3"}
    assert parents[4:6] == [{"call-4"}] * 2
    assert parents[6] == {"call-4", "call-5", "call-6"}


async def test_twice_is_as_once(heard: Heard) -> None:
    """To instrument a client again changes nothing; own hooks stay."""
    client = asynchronous(heard)
    hooks = client.event_hooks
    instrument(client)
    await client.aclose()

    assert client.event_hooks == hooks


def test_what_cannot_be_instrumented() -> None:
    """A client without httpx inside is refused by its type."""
    with pytest.raises(TypeError, match="object has no httpx client"):
        instrument(object())
    with pytest.raises(ValueError, match="no base URL"):
        instrument(httpx.Client())


async def test_openai(stack: Stack) -> None:
    """OpenAI's own client, asynchronous and not, through the gateway."""
    url = f"http://127.0.0.1:{stack.port}/v1"
    client = instrument(openai.AsyncOpenAI(base_url=url, api_key="none"))
    plain = instrument(openai.OpenAI(base_url=url, api_key="none"))
    async with Program("p", nats_url=stack.nats_url) as program:
        asked: dict[str, Any] = {"model": program.model, **BODY}
        first = await client.chat.completions.with_raw_response.create(**asked)
        create: Any = plain.chat.completions.with_raw_response.create
        second = await asyncio.to_thread(create, **asked)
        pieces = [piece async for piece in await client.chat.completions.create(**asked, stream=True)]
    await client.close()

    assert {program.id} == {answer.headers["x-autellix-program-id"] for answer in (first, second)}
    assert first.parse().choices[0].message.content
    assert pieces[-1].choices[0].finish_reason == "length"


async def test_anthropic(stack: Stack) -> None:
    """Anthropic's own client, as well; the simulated engine does not know its API, and its error is Anthropic's."""
    client = instrument(anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{stack.port}", api_key="none"))
    async with Program("p", nats_url=stack.nats_url) as program:
        with pytest.raises(anthropic.NotFoundError, match="does not know") as refused:
            await client.messages.create(
                model=program.model, max_tokens=2, messages=[{"role": "user", "content": "Hi"}]
            )
    await client.close()

    assert refused.value.response.headers["x-autellix-program-id"] == program.id
    assert refused.value.type == "not_found_error"


SCRIPT = """
import httpx, sys
from autellix.client import instrument
client = instrument(httpx.Client(base_url=sys.argv[1]))
body = {"model": sys.argv[2], "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
ids = {client.post("/v1/chat/completions", json=body).headers["x-autellix-program-id"] for _ in range(2)}
print(*ids)
raise RuntimeError("it fails")
"""


async def test_end_of_the_process(stack: Stack) -> None:
    """The process's program is over with the process, even when that fails."""
    url = f"http://127.0.0.1:{stack.port}"
    async with httpx.AsyncClient(base_url=url) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        command = [sys.executable, "-c", SCRIPT, url, model]
        script = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        (program_id,) = script.stdout.split()
        record = (await client.get(f"/v1/programs/{program_id}")).json()

    assert (script.returncode, record["state"], record["calls"], record["source"]) == (1, "ended", 2, "session")
