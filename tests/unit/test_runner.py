"""A core on a bus: order, errors that stay with their message, and a gentle end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from autellix.schemas.base import ErrorBody, Message
from autellix.schemas.codec import Decoder, encode
from autellix.schemas.ids import EngineId, Incarnation, ProgramId
from autellix.schemas.messages import (
    EndSession,
    EngineDown,
    Failed,
    ProgramEnded,
    ProgramList,
    ProgramRecord,
    SessionEnded,
    SessionStarted,
    StartSession,
)
from autellix.services.bus import Delivery
from autellix.services.core import Listen, Out, Reply, announce, answer
from autellix.services.memory_bus import MemoryBus, MemoryHub
from autellix.services.publishing import ids_of, publish
from autellix.services.runner import CoreRunner

STARTED = SessionStarted(program_id=ProgramId("p"), ttl_ms=1.0)
DOWN = EngineDown(engine_id=EngineId("e0"), incarnation=Incarnation("i1"), reason="", at_ms=0.0)
LISTENS = (
    Listen("events", Decoder(EngineDown)),
    Listen("start", Decoder(StartSession), "group", answered=True),
    Listen("end", Decoder(EndSession), "group", answered=True),
)


class Recorder:
    """A core that notes what it is told, and answers as the test says."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.times: list[float] = []
        self.react: Callable[[Message, Reply | None], Iterable[Out]] = lambda _message, reply: answer(reply, STARTED)
        self.ticked = asyncio.Event()

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Note the message."""
        self.seen.append(message)
        self.times.append(now_ms)
        return self.react(message, reply)

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Fail, so that a test can see that time passes on."""
        self.times.append(now_ms)
        if len(self.times) > 3:
            self.ticked.set()
        raise RuntimeError("nothing was due")


class Client:
    """Somebody who asks and hears the answers."""

    def __init__(self, bus: MemoryBus) -> None:
        self.bus = bus
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def hear(self, delivery: Delivery) -> None:
        """Keep an answer."""
        self.answers.put_nowait(delivery.data)

    async def ask(self, subject: str, data: bytes) -> Any:
        """Return the answer to a request."""
        await self.bus.publish(subject, data, reply="inbox")
        async with asyncio.timeout(5):
            return Decoder[Any](SessionStarted | SessionEnded | Failed | ProgramList).decode(await self.answers.get())


@pytest.fixture
async def client() -> Client:
    """Return a client on a bus of its own."""
    client = Client(MemoryBus(MemoryHub(), max_payload=1000))
    await client.bus.subscribe("inbox", client.hear)
    return client


@pytest.fixture
async def core(client: Client) -> AsyncIterator[Recorder]:
    """Return a core that runs on the client's bus, at noon."""
    core = Recorder()
    async with CoreRunner(client.bus, core, LISTENS, now_ms=lambda: 12.0, tick_s=60):
        yield core


async def test_request_and_answer(client: Client, core: Recorder) -> None:
    """A request reaches the core decoded, with the time, and its answer the client."""
    assert await client.ask("start", encode(StartSession(name="x"))) == STARTED
    assert (core.seen, core.times) == ([StartSession(name="x")], [12.0])


async def test_json_in_json_out(client: Client, core: Recorder) -> None:
    """A request in JSON is answered in JSON, an error too."""
    await client.bus.publish("start", b'{"type": "start_session"}', reply="inbox")
    await client.bus.publish("start", b'{"type": "nonsense"}', reply="inbox")

    assert (await client.answers.get()).startswith(b'{"type":"session_started"')
    assert (await client.answers.get()).startswith(b'{"type":"failed","status":400')


@pytest.mark.parametrize("data", [b"", b"\xc1", b"{", b"[]", b"x" * 999, encode(EndSession(program_id=ProgramId("p")))])
async def test_malformed_request(client: Client, core: Recorder, data: bytes) -> None:
    """What is no request gets one error in the OpenAI shape, and the next one is served."""
    failed = await client.ask("start", data)

    assert isinstance(failed, Failed)
    assert (failed.status, failed.error.type) == (400, "invalid_request_error")
    assert await client.ask("start", encode(StartSession())) == STARTED
    assert client.answers.empty()


async def test_core_that_fails(client: Client, core: Recorder) -> None:
    """A message that the core fails on gets a 500 that shows nothing of the inside, and the next one is served."""

    def fail(_message: Message, _reply: Reply | None) -> Iterable[Out]:
        raise KeyError("secret")

    good, core.react = core.react, fail
    failed = await client.ask("start", encode(StartSession()))
    core.react = good

    assert (failed.status, failed.error.message) == (500, "internal error: KeyError")
    assert await client.ask("start", encode(StartSession())) == STARTED


async def test_request_without_a_reply_subject(client: Client, core: Recorder) -> None:
    """A request that nobody waits for does not reach the core."""
    await client.bus.publish("start", encode(StartSession()))

    assert await client.ask("start", encode(StartSession(name="second"))) == STARTED
    assert core.seen == [StartSession(name="second")]


async def test_events_go_first(client: Client, core: Recorder) -> None:
    """Of what waits, that of the subscriptions listed first is handled first, in its own order."""
    for name in ("1", "2"):
        await client.bus.publish("start", encode(StartSession(name=name)), reply="inbox")
    await client.bus.publish("events", encode(DOWN))
    await client.answers.get()
    await client.answers.get()

    assert core.seen == [DOWN, StartSession(name="1"), StartSession(name="2")]


async def test_answer_too_large(client: Client, core: Recorder) -> None:
    """Who waits for an answer that the bus cannot carry gets an error in its place."""
    record = ProgramRecord(program_id=ProgramId("p"), name="x" * 2000, started_at_ms=0.0)
    core.react = lambda _message, reply: answer(reply, ProgramList(programs=[record], at_ms=0.0))
    failed = await client.ask("start", encode(StartSession()))

    assert (failed.status, failed.error.code) == (500, "answer_not_sent")


async def test_refusal_is_logged(client: Client, core: Recorder) -> None:
    """A request that the core refuses is one line in the log, with the reason and the ids that are known."""
    error = ErrorBody(message="No such program.", type="not_found_error", code="program_not_found")
    core.react = lambda _message, reply: answer(reply, Failed(status=404, error=error))
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        await client.ask("end", encode(EndSession(program_id=ProgramId("p"))))

    facts = {"error": "No such program.", "code": "program_not_found", "program_id": "p"}
    assert lines == [{"event": "refused", "log_level": "warning", "status": 404, **facts}]


async def test_time_passes(client: Client) -> None:
    """A core that fails as time passes is told of it again."""
    core = Recorder()
    async with CoreRunner(client.bus, core, LISTENS, tick_s=0.001), asyncio.timeout(5):
        await core.ticked.wait()


async def test_what_has_arrived_is_handled(client: Client) -> None:
    """A runner that leaves handles what has arrived, answers it, and takes nothing new."""
    core = Recorder()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(CoreRunner(client.bus, core, LISTENS))
        for number in range(20):
            await client.bus.publish("start", encode(StartSession(name=str(number))), reply="inbox")
    await client.bus.publish("start", encode(StartSession(name="late")), reply="inbox")
    await client.bus.close()

    assert [message.name for message in core.seen if isinstance(message, StartSession)] == [str(n) for n in range(20)]
    assert client.answers.qsize() == 20


def test_ids_of() -> None:
    """The ids in a message, wherever they stand, are bound to log lines."""
    assert ids_of(STARTED) == {"program_id": "p"}
    assert ids_of(DOWN) == {"engine_id": "e0"}
    assert ids_of(StartSession()) == {}


@pytest.mark.parametrize("inbox", ["autellix.events.call.finished", "$JS.API.STREAM.DELETE.X"])
async def test_answers_where_services_talk(client: Client, core: Recorder, inbox: str) -> None:
    """Who asks for an answer there is not answered: it would be believed."""
    heard: list[bytes] = []

    async def hear(delivery: Delivery) -> None:
        heard.append(delivery.data)

    await client.bus.subscribe(inbox, hear)
    await client.bus.publish("start", encode(StartSession()), reply=inbox)
    await client.ask("start", encode(StartSession()))

    assert [] == heard
    assert 1 == len(core.seen)


async def test_events_of_a_tenant(client: Client) -> None:
    """They are said on the tenant's subjects, too; those of nobody, and answers, are not."""
    heard: list[str] = []

    async def hear(delivery: Delivery) -> None:
        heard.append(delivery.subject)

    await client.bus.subscribe("autellix.>", hear)
    for program_id in ("acme~p", "p"):
        await publish(client.bus, announce(ProgramEnded(program_id=ProgramId(program_id), at_ms=0.0)))
    await publish(client.bus, announce(DOWN))
    await publish(client.bus, Out("autellix.x", SessionEnded(program_id=ProgramId("acme~p"))))
    await client.bus.flush()

    ended = "autellix.events.program.ended"
    assert [
        ended,
        "autellix.tenants.acme.events.program.ended",
        ended,
        "autellix.events.engine.down",
        "autellix.x",
    ] == heard
