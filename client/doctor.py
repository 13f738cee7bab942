"""What is wrong with an installation: each part is asked whether it is there and does its work."""

import asyncio
import os
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

import msgspec
import nats.errors

from autellix.client.connection import Connection, shared, without_secret
from autellix.client.errors import AutellixError
from autellix.client.plan import SERVICES
from autellix.client.queries import list_engines
from autellix.schemas import subjects

ANSWER_S = 1.0
"""How long services have to say that they are there."""

State = Literal["good", "note", "bad"]


class Finding(NamedTuple):
    """What was found out about one part."""

    state: State
    about: str
    text: str
    hint: str = ""
    """What to do."""


async def findings(nats_url: str, gateway_url: str) -> AsyncIterator[Finding]:
    """Yield what is found, part by part; without a bus there is nothing to ask of services."""
    yield _engine_package()
    yield _cores()
    try:
        async with shared(nats_url) as connection:
            yield Finding("good", "NATS", f"a server answers at {without_secret(nats_url)}")
            yield await _events(connection)
            for finding in await _services(connection):
                yield finding
            for finding in await _engines(connection):
                yield finding
    except (AutellixError, nats.errors.Error) as error:
        yield Finding("bad", "NATS", str(error), "start `autellix up`, or name the server by --nats-url")
    yield await asyncio.to_thread(_gateway, gateway_url)


def _engine_package() -> Finding:
    try:
        return Finding("good", "vLLM", f"{version('vllm')} is installed, with torch {version('torch')}")
    except PackageNotFoundError as error:
        hint = "engine workers need it: `make install` in the repository; clients do not"
        return Finding("note", "vLLM", f"{error.name} is not installed here", hint)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    if cores > 1:
        return Finding("good", "cores", f"{cores}")
    hint = "an engine computes all the time and every service waits for it; two cores are the least that makes sense"
    return Finding("note", "cores", "one", hint)


async def _events(connection: Connection) -> Finding:
    try:
        state = (await connection.jetstream().stream_info(subjects.EVENT_STREAM)).state
    except (nats.errors.Error, TimeoutError, OSError) as error:
        hint = "nats-server needs `jetstream {}` in its configuration; the process table makes the stream"
        return Finding("bad", "events", f"none are kept: {type(error).__name__}", hint)
    return Finding("good", "events", f"{state.messages} are kept, {state.bytes / 1e6:.1f} MB")


async def _services(connection: Connection) -> list[Finding]:
    """Ask each kind of service how many there are."""
    found = Counter(await connection.ping(ANSWER_S))
    return [_service(name, found[f"autellix-{name}"]) for name in SERVICES]


def _service(name: str, count: int) -> Finding:
    if count:
        return Finding("good", name, "answers" if count == 1 else f"{count} answer")
    return Finding("bad", name, "none answers", f"start one: `autellix serve {name}`")


async def _engines(connection: Connection) -> list[Finding]:
    try:
        engines = (await list_engines(connection)).engines
    except AutellixError as error:
        return [Finding("bad", "engines", str(error), "the load balancer knows them; see there")]
    if not engines:
        return [Finding("bad", "engines", "none is in rotation", "one takes up to a minute to start; see its log")]
    return [
        Finding(
            "good" if engine.state == "ready" else "note",
            engine.engine_id,
            f"{engine.state}, serves {', '.join(engine.models)} by {engine.policy}: "
            f"{engine.running} of {engine.slots} slots, {engine.waiting} wait, KV cache {engine.kv_usage:.0%} full",
        )
        for engine in engines
    ]


def _gateway(url: str) -> Finding:
    """Ask a gateway whether it can do its work."""
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=ANSWER_S):  # noqa: S310 the user names it
            return Finding("good", "HTTP", f"a gateway is ready at {url}")
    except urllib.error.HTTPError as error:
        return Finding("bad", "HTTP", f"the gateway at {url} is not ready: {_reason(error)}")
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        return Finding("bad", "HTTP", f"no gateway at {url}: {reason}", "name it by --url, or AUTELLIX_URL")


def _reason(error: urllib.error.HTTPError) -> str:
    """Return why a gateway is not ready, as it says itself."""
    try:
        return str(msgspec.json.decode(error.read())["reason"])
    except (msgspec.DecodeError, TypeError, KeyError, OSError, HTTPException):
        return f"it answers {error.code}: is it a gateway?"
