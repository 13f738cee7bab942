"""Everything that takes bytes from outside, each as a function that raises only when something is wrong with it.

A property test feeds them values that are made for it, and `fuzz.py` whatever reaches new code.
"""

import contextlib
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from autellix.schemas import messages
from autellix.schemas.codec import CALL_EVENTS, EVENTS, FRAMES, Decoder, MalformedMessageError, encode
from autellix.schemas.identity import RULES, program_of_response, response_id
from autellix.schemas.ids import EngineId, Incarnation, ProgramId
from autellix.schemas.messages import (
    AdmittedCall,
    EndSession,
    EngineLoad,
    EngineUp,
    Failed,
    StartSession,
    SubmitCall,
    SubmittedCall,
    TouchSession,
)
from autellix.schemas.openai import APIS, InvalidRequestError, check
from autellix.schemas.trace_context import HEADER, context_of
from autellix.services import lease
from autellix.services.config import (
    ConfigError,
    LoadBalancerSettings,
    ProcessTableSettings,
    SessionManagerSettings,
    load,
)
from autellix.services.core import Out, Reply
from autellix.services.gateway.identity import PARENTS_HEADER, THREAD_HEADER, Identities
from autellix.services.gateway.programs import Release, fields_of
from autellix.services.gateway.submission import AGENT_HEADER, DEADLINE_HEADER, submission
from autellix.services.load_balancer.core import LoadBalancer
from autellix.services.process_table.core import ProcessTable
from autellix.services.session_manager.core import SessionManager
from autellix.services.snapshots import head_of

KINDS: Final[list[type[msgspec.Struct]]] = [
    kind
    for name in messages.__all__
    if isinstance(kind := getattr(messages, name), type)
    and issubclass(kind, msgspec.Struct)
    and kind.__struct_config__.tag not in (None, kind.__name__)
]
"""Every message."""
DECODERS: Final[list[Decoder[Any]]] = [FRAMES, EVENTS, CALL_EVENTS, *(Decoder[Any](kind) for kind in KINDS)]
HEADERS: Final = (
    *(field for rule in RULES for field in (*rule.program, *rule.parent, *rule.thread, *rule.final)),
    *(THREAD_HEADER, PARENTS_HEADER, AGENT_HEADER, DEADLINE_HEADER, HEADER, "content-encoding"),
)
REPLY: Final = Reply("_INBOX.1")
REQUESTS: Final = Decoder[Any](SubmitCall | StartSession | TouchSession | EndSession)
NOW_MS: Final = 1_000_000.0


def any_message(data: bytes) -> None:
    """Decode bytes as each message that there is, and encode what comes out again."""
    for decoder in DECODERS:
        try:
            message = decoder.decode(data)
        except MalformedMessageError:
            continue
        for as_json in (False, True):
            try:
                decoder.decode(encode(message, as_json=as_json))
            except ValueError:  # what JSON or 64 bits have no room for
                continue


def request_to_gateway(data: bytes) -> None:
    """Take the bytes for a request: headers up to an empty line, then the body."""
    lines, _, body = data.partition(b"\n\n")
    headers: dict[str, str] = {}
    for line in lines.split(b"\n")[:8]:
        number, value = line[:1], line[1:]
        headers[HEADERS[(number or b"\0")[0] % len(HEADERS)]] = value.decode("latin-1")
    for within in (None, lines.decode("utf-8", "replace")):
        try:
            submission(headers, body, "chat.completions", Identities(), within=within)
        except InvalidRequestError:
            continue


def body_of_request(data: bytes) -> None:
    """Take the bytes for the body of each API, and of a request about a program."""
    for kind in (dict[str, Any], Release):
        try:
            fields = fields_of(data, kind)
        except InvalidRequestError:
            continue
        for api in APIS if isinstance(fields, dict) else ():
            try:
                _, text = check(api, fields)
            except InvalidRequestError:
                continue
            msgspec.json.decode(text)


def request_on_the_bus(data: bytes) -> None:
    """Take the bytes for a request, and send what comes of it through the cores."""
    try:
        request = REQUESTS.decode(data)
    except MalformedMessageError:
        return
    numbers = itertools.count()
    manager = SessionManager(SessionManagerSettings(), new_id=lambda: f"id{next(numbers)}", secret=b"key")
    table, balancer = ProcessTable(ProcessTableSettings()), LoadBalancer(LoadBalancerSettings(), random.Random(1))  # noqa: S311 - for ties
    balancer.handle(UP, NOW_MS)
    balancer.handle(LOAD, NOW_MS)
    waiting: list[Out] = [*manager.handle(request, NOW_MS, REPLY)]
    for out in waiting:
        message = out.message
        carried = encode(message)
        if isinstance(message, SubmittedCall):
            waiting.extend(table.handle(Decoder[SubmittedCall](SubmittedCall).decode(carried), NOW_MS))
        elif isinstance(message, AdmittedCall):
            waiting.extend(balancer.handle(Decoder[AdmittedCall](AdmittedCall).decode(carried), NOW_MS))
        elif isinstance(message, Failed) and message.status >= 500 and message.error.code != "too_many_programs":
            raise RuntimeError(message.error.message)


UP: Final = EngineUp(
    engine_id=EngineId("e0"),
    incarnation=Incarnation("i1"),
    models=("m",),
    policy="atlas",
    slots=4,
    kv_tokens=1000,
    max_model_len=1000,
    at_ms=NOW_MS,
)
LOAD: Final = EngineLoad(
    engine_id=EngineId("e0"),
    incarnation=Incarnation("i1"),
    models=("m",),
    policy="atlas",
    state="ready",
    slots=4,
    calls=0,
    running=0,
    waiting=0,
    kv_usage=0.0,
    steps=0,
    at_ms=NOW_MS,
)


def snapshot(data: bytes) -> None:
    """Take the bytes for a snapshot of each service, for its head, and for a lease."""
    lease.decoded(data)
    manager = SessionManager(SessionManagerSettings(), new_id=lambda: "id", secret=b"key")
    for restore in (head_of, lambda data: restored(manager, data), lambda data: restored(table(), data)):
        try:
            restore(data)
        except MalformedMessageError:
            continue


def table() -> ProcessTable:
    """Return a table that knows nothing."""
    return ProcessTable(ProcessTableSettings())


def restored(core: Any, data: bytes) -> None:
    """Bring a core back from a snapshot, and let it live."""
    core.restore(data, NOW_MS)
    core.recovered(NOW_MS)
    list(core.tick(NOW_MS + 1000))
    core.snapshot()


def text_of_header(data: bytes) -> None:
    """Take the bytes for what names a trace, or a response."""
    text = data.decode("latin-1")
    context_of({HEADER: text})
    program_id = program_of_response(text)
    if program_of_response(response_id(ProgramId(text), "x")) != (ProgramId(text) if text else None):
        raise RuntimeError(f"{program_id!r} does not come back")


def configuration(data: bytes) -> None:
    """Take the bytes for a configuration, and for a setting on the command line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "autellix.toml"
        file.write_bytes(data)
        with contextlib.suppress(ConfigError):
            load(file)
    text = data.decode("utf-8", "surrogateescape")
    for override in (text, f"gateway.port={text}", f"log.level={text}"):
        try:
            load(None, [override])
        except ConfigError:
            continue


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    each.__name__: each
    for each in (
        any_message,
        request_to_gateway,
        body_of_request,
        request_on_the_bus,
        snapshot,
        text_of_header,
        configuration,
    )
}
"""By name, in an order that stays: saved inputs name them by their number."""

BODY: Final = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
SEEDS: Final[dict[str, list[bytes]]] = {
    "any_message": [encode(each, as_json=as_json) for each in (UP, LOAD) for as_json in (False, True)],
    "request_to_gateway": [bytes([number]) + b"name\n\n" + msgspec.json.encode(BODY) for number in range(len(HEADERS))],
    "body_of_request": [msgspec.json.encode(BODY), b'{"model":"m","prompt":[1,2]}', b'{"program_id":"p"}'],
    "request_on_the_bus": [
        encode(each, as_json=as_json)
        for each in (
            *(SubmitCall(body={**BODY, "prompt": "hi", "input": "hi"}, api=api, session="s") for api in APIS),
            *(StartSession(name="n", ttl_ms=5.0, agent="a"), EndSession(program_id=ProgramId("p"))),
        )
        for as_json in (False, True)
    ],
    "snapshot": [table().snapshot(), b'{"rows":[]}', b'{"sessions":[]}', lease.encoded(lease.Lease("a", "b"))],
    "text_of_header": [b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01", b"resp_p_1"],
    "configuration": [b'[nats]\nurl = "x"\n', b"[gateway]\nport = 1\n", b"gateway.port=1", b"1"],
}
"""What the search begins with, by target."""
