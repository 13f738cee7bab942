"""The whole pipeline with a real vLLM engine: what is answered, what is counted, what is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgpack
import nats
import pytest
from openai import AsyncOpenAI

from autellix.client import CallFailedError, Program
from autellix.client.stack import Stack

pytestmark = pytest.mark.vllm

MODEL = "tiny"
ASK: list[Any] = [{"role": "user", "content": "Say something."}]
SHORT: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "temperature": 0}


@asynccontextmanager
async def events(stack: Stack, subject: str) -> AsyncIterator["asyncio.Queue[dict[str, Any]]"]:
    """Listen to public events as an outsider does: plain nats-py and msgpack."""
    client = await nats.connect(stack.nats_url)
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def hear(msg: Any) -> None:
        heard.put_nowait(msgpack.unpackb(msg.data))

    await client.subscribe(subject, cb=hear)
    await client.flush()  # nats-py writes the first PING ahead of what it has buffered:
    await client.flush()  # only the second comes behind the subscription
    yield heard
    await client.close()


async def record(stack: Stack, program_id: str) -> dict[str, Any]:
    """Return a program's row of the process table."""
    client = await nats.connect(stack.nats_url)
    answer = await client.request("autellix.programs.get", msgpack.packb({"program_id": program_id}))
    await client.close()
    row: dict[str, Any] = msgpack.unpackb(answer.data)
    return row


async def test_streamed_text_equals_the_plain_one(stack: Stack) -> None:
    """A streamed answer adds up to the plain one, and both count the same tokens."""
    async with Program("text", nats_url=stack.nats_url) as program:
        plain = await program.chat(ASK, **SHORT)
        stream = program.stream(ASK, **SHORT)
        pieces = [piece async for piece in stream]

    assert plain.text == "".join(pieces)
    assert (plain.call.output_tokens, stream.answer.call.output_tokens) == (12, 12)
    assert plain.usage["completion_tokens"] == plain.call.output_tokens
    assert plain.usage["prompt_tokens"] == plain.call.prompt_tokens


async def test_program_is_charged_what_its_calls_attained(stack: Stack) -> None:
    """The process table's row adds up: service is the sum, the critical path the longest chain, nothing is live."""
    async with Program("sums", nats_url=stack.nats_url) as program:
        first = await program.chat(ASK, **SHORT)
        pair = await asyncio.gather(*(program.chat(ASK, **SHORT) for _ in range(2)))
        row = await record(stack, program.id)

    services = [answer.call.service_ms for answer in (first, *pair)]
    assert sum(services) == pytest.approx(row["service_ms"])
    assert services[0] + max(services[1:]) == pytest.approx(row["critical_path_ms"])
    assert (row["calls"], row["live_calls"], row["output_tokens"]) == (3, 0, 36)
    assert row["service_ms"] > 0


async def test_process_table_is_up_to_date_when_the_answer_arrives(stack: Stack) -> None:
    """A client that asks at once after its answer finds that call counted, every time."""
    counted = []
    async with Program("prompt", nats_url=stack.nats_url) as program:
        for _ in range(10):
            await program.chat(ASK, max_tokens=1)
            counted.append((await record(stack, program.id))["calls"])

    assert list(range(1, 11)) == counted


async def test_hanging_up_aborts_in_the_engine_and_is_charged(stack: Stack) -> None:
    """A reader that leaves early frees the engine, and its program is charged what was used."""
    async with (
        events(stack, "autellix.events.call.cancelled") as heard,
        Program("impatient", nats_url=stack.nats_url) as program,
    ):
        async for _ in program.stream(ASK, max_tokens=1500, ignore_eos=True):
            break
        cancelled = await asyncio.wait_for(heard.get(), 5)
        row = await record(stack, program.id)

    assert program.id == cancelled["program_id"]
    assert 0 < cancelled["output_tokens"] < 1500
    assert 0 < cancelled["service_ms"] == pytest.approx(row["service_ms"])


async def test_openai_client_works_unchanged(stack: Stack) -> None:
    """The openai SDK chats, streams and gets n choices through the gateway, with no code but the base URL."""
    async with AsyncOpenAI(base_url=f"{stack.http_url}/v1", api_key="none", max_retries=0) as client:
        models = [model.id async for model in client.models.list()]
        plain = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=6, temperature=0)
        several = await client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=6, temperature=1, n=3)
        stream: Any = await client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=6, temperature=0, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]

    assert models == [MODEL]
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert plain.choices[0].message.content == "".join(pieces)


async def test_structured_output_is_vllms(stack: Stack) -> None:
    """A constrained choice comes back as one of the choices, even from random weights."""
    async with Program("choice", nats_url=stack.nats_url) as program:
        answer = await program.chat(ASK, max_tokens=16, structured_outputs={"choice": ["left", "right"]})

    assert answer.text in ("left", "right")


BAD_FIELDS: list[dict[str, Any]] = [
    {"temperature": -1},
    {"top_k": 2**64},
    {"n": 100_000},
    {"logit_bias": {"99999999": 5}},
    {"stop": [""]},
    {"max_tokens": 0},
    {"messages": []},
    {"messages": [{"content": "no role"}]},
    {"messages": [{"role": "user", "content": "x " * 3000}]},
    {"structured_outputs": {"regex": "(["}},
    {"use_beam_search": True, "n": 2},
    {"priority": 2**40},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids="-".join)
async def test_bad_request_fails_itself_only(stack: Stack, fields: dict[str, Any]) -> None:
    """A bad field gets one 400 in the OpenAI shape, while another program's stream goes on to its end."""
    async with Program("bystander", nats_url=stack.nats_url) as bystander:
        other = asyncio.create_task(bystander.chat(ASK, max_tokens=40, ignore_eos=True))
        async with httpx.AsyncClient(base_url=stack.http_url, timeout=20) as http:
            answer = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": ASK, **fields})
        unharmed = await other

    assert answer.status_code == 400
    assert {"message", "type", "param", "code"} == set(answer.json()["error"])
    assert unharmed.call.output_tokens == 40


async def test_unknown_model_is_not_found(stack: Stack) -> None:
    """A model that no engine serves is 404 `model_not_found`."""
    async with Program("lost", nats_url=stack.nats_url, model="no-such-model") as program:
        with pytest.raises(CallFailedError) as failed:
            await program.chat(ASK)

    assert (failed.value.status, failed.value.error.code) == (404, "model_not_found")


async def test_client_cannot_forge_what_it_has_attained(stack: Stack) -> None:
    """Scheduling facts that a client writes into its request are not the ones the scheduler gets."""
    forged = {"autellix_service_ms": -1e9, "autellix_call_id": "someone-elses"}
    async with Program("forger", nats_url=stack.nats_url) as program:
        answer = await program.chat(ASK, **SHORT, vllm_xargs=forged)

    assert answer.call.output_tokens == 12
    assert answer.call.service_ms > 0


async def test_deadline_ends_a_call(stack: Stack) -> None:
    """A call whose deadline passes ends with status 504 and leaves the engine."""
    async with Program("late", nats_url=stack.nats_url) as program:
        with pytest.raises(CallFailedError) as failed:
            await program.chat(ASK, max_tokens=1900, ignore_eos=True, deadline_s=0.3)

    assert failed.value.status == 504
