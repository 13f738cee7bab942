"""The process's connection to NATS: requests, and an inbox for the frames of each call.

All programs of a process share one connection per URL and event loop, and that connection has one wildcard
subscription, made before the first call: no frame of an answer can come before somebody listens.
"""

import asyncio
import itertools
import json
import logging
import os
import re
import weakref
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from autellix.client.errors import CallFailedError, UnreachableError, failure
from autellix.client.inbox import Inbox, decode
from autellix.schemas import subjects
from autellix.schemas.base import Message
from autellix.schemas.codec import FRAMES, Decoder, MalformedMessageError, encode
from autellix.schemas.frames import Accepted, Failed
from autellix.schemas.messages import CancelCalls, ResultAnswer, SessionAnswer, TableAnswer
from autellix.schemas.nats_access import Access, AccessError, options
from autellix.schemas.trace_context import with_context

log = logging.getLogger("autellix")

DEFAULT_PORT = 4222
DEFAULT_URL = f"nats://127.0.0.1:{DEFAULT_PORT}"
CONNECT_S = 5.0
REQUEST_S = 10.0
RECONNECT_WAIT_S = 0.5

T = TypeVar("T", bound=msgspec.Struct)
_ANSWERS: Decoder[SessionAnswer | TableAnswer | ResultAnswer] = Decoder(SessionAnswer | TableAnswer | ResultAnswer)


class Connection:
    """One connection to NATS."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prefix = ""
        """Of its inboxes; once it is connected."""
        self._names = itertools.count(1)
        self._inboxes: dict[str, Inbox] = {}

    async def listen(self) -> None:
        """Subscribe to all inboxes at once; on return the server knows."""
        self._prefix = self._client.new_inbox()
        await self._client.subscribe(f"{self._prefix}.*", cb=self._dispatch)
        await self._client.flush()

    async def _dispatch(self, msg: Any) -> None:
        inbox = self._inboxes.get(msg.subject)
        if inbox is None or inbox.closed:
            await self._cancel_if_accepted(msg.data)  # its reader has gone
            return
        if (msg.headers or {}).get("Status") == "503":
            inbox.end(_nobody())
        else:
            inbox.put(msg.data)

    async def _cancel_if_accepted(self, data: bytes) -> None:
        """Have a call given up that was accepted when nobody waited for it any more."""
        with suppress(MalformedMessageError, CallFailedError):
            frame = FRAMES.decode(data)
            if isinstance(frame, Accepted) and not frame.durable:
                await self.publish(subjects.CALLS_CANCEL, CancelCalls(call_id=frame.call_id), reply=self.nowhere())

    async def ping(self, within_s: float) -> list[str]:
        """Return the names of the NATS micro services that answer in time, each as often as there are instances."""
        names: list[str] = []

        async def heard(msg: Any) -> None:
            if msg.data:
                names.append(str(json.loads(msg.data)["name"]))

        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox, cb=heard)
        await self._client.publish("$SRV.PING", reply=inbox)
        await asyncio.sleep(within_s)
        await subscription.unsubscribe()
        return names

    async def lost(self) -> None:
        """End the calls that are open: the connection was away, or is for good, and what was said of them is gone."""
        for inbox in self._inboxes.values():
            inbox.end(failure(503, "The message bus was lost during the call.", "bus_lost"))

    def jetstream(self) -> JetStreamContext:
        """Return what asks for messages that the server has kept."""
        return self._client.jetstream()

    def nowhere(self) -> str:
        """Return a subject for an answer that is of no interest."""
        return str(self._client.new_inbox())

    @contextmanager
    def inbox(self) -> Iterator[Inbox]:
        """Open an inbox for the frames of one call."""
        inbox = Inbox(f"{self._prefix}.{next(self._names)}")
        self._inboxes[inbox.subject] = inbox
        try:
            yield inbox
        finally:
            del self._inboxes[inbox.subject]

    async def publish(self, subject: str, message: Message, *, reply: str = "", trace: str = "") -> None:
        """Send a message to whoever listens, as part of the trace that a `traceparent` names.

        Raises:
            CallFailedError: when the message has no encoding, is too large, or the connection is closed.
        """
        try:
            data = encode(message)
            headers = with_context(trace, len(data), self._client.max_payload)
            await self._client.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.MaxPayloadError as error:
            limit = self._client.max_payload
            raise failure(
                413, f"The request is larger than the {limit} bytes that the bus carries.", "too_large"
            ) from error
        except nats.errors.Error as error:
            raise failure(503, f"NATS: {error}", "nats", retry_safe=True) from error
        except ValueError as error:
            raise failure(400, f"The request has no encoding: {error}", "no_encoding") from error

    async def request(self, subject: str, message: Message, expected: type[T]) -> T:
        """Send a request and return its answer.

        Raises:
            CallFailedError: when the service refuses, or nobody answers in time.
        """
        try:
            msg = await self._client.request(subject, encode(message), timeout=REQUEST_S)
        except nats.errors.NoRespondersError as error:
            raise _nobody() from error
        except nats.errors.TimeoutError as error:
            raise failure(504, f"No answer on {subject} within {REQUEST_S:g} s.", "no_answer") from error
        except nats.errors.Error as error:
            raise failure(503, f"NATS: {error}", "nats", retry_safe=True) from error
        answer = decode(_ANSWERS, msg.data)
        if isinstance(answer, Failed):
            raise CallFailedError(answer)
        if not isinstance(answer, expected):
            raise failure(502, f"{subject} answered with a {type(answer).__name__}.", "malformed")
        return answer

    async def close(self) -> None:
        """Fail the calls that are still open, send what was published, and disconnect."""
        for inbox in self._inboxes.values():
            inbox.end(failure(503, "The program ended before its call did.", "program_ended"))
        await self._client.close()


def _nobody() -> CallFailedError:
    return failure(503, "Nobody answers: is Autellix running on this NATS server?", "no_responders", retry_safe=True)


def url_or_default(url: str | None) -> str:
    """Return `url`, or else that of the environment, or else the local server's."""
    return url or os.environ.get("AUTELLIX_NATS_URL") or DEFAULT_URL


async def connect(url: str) -> Connection:
    """Return a new connection, which will reconnect for ever; a first attempt that fails is final.

    Raises:
        UnreachableError: when there is no server at `url`, or it refuses.
    """
    client = Client()
    connected, connection = False, Connection(client)
    try:
        known_by = options(_access())
    except AccessError as error:
        raise UnreachableError(str(error)) from error

    async def on_error(error: Exception) -> None:
        if not connected:
            raise error  # ends `client.connect`, which would try again for ever
        log.warning("NATS: %s", error)

    try:
        async with asyncio.timeout(CONNECT_S):
            await client.connect(
                url,
                name="autellix-client",
                error_cb=on_error,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,
                reconnected_cb=connection.lost,
                closed_cb=connection.lost,
                **known_by,
            )
            await connection.listen()
        connected = True
    except (OSError, ValueError, nats.errors.Error) as error:
        raise _unreachable(url, error) from error
    finally:
        if not connected:
            with suppress(OSError, nats.errors.Error):  # a server that refuses hangs up at any moment
                await client.close()
    return connection


def _access() -> Access:
    """Return how this process is known to NATS, as the environment says."""
    names = ("NKEY", "CA", "CERTIFICATE", "CERTIFICATE_KEY")
    return Access(*(os.environ.get(f"AUTELLIX_NATS_{name}", "") for name in names))


def without_secret(url: str) -> str:
    """Return a URL as it may be shown: without user and password."""
    return re.sub(r"//[^/]*@", "//", url)


def _unreachable(url: str, error: Exception) -> UnreachableError:
    """Return the error for a server that cannot be used, without the URL's password."""
    without_password = without_secret(url)
    reason = str(error) or type(error).__name__  # a timeout has no text
    hint = "; is AUTELLIX_NATS_URL set? `autellix up` prints it" if url == DEFAULT_URL else ""
    if "authorization" in reason.lower():
        hint = "; is AUTELLIX_NATS_NKEY set to the file of a seed that it knows?"
    return UnreachableError(f"No NATS server at {without_password}: {reason}{hint}")


class _Lease:
    """A connection and the number of its users."""

    def __init__(self, url: str) -> None:
        self.users = 0
        self.opening = asyncio.create_task(connect(url))

    async def connection(self) -> Connection:
        return await asyncio.shield(self.opening)  # one user who gives up must not fail the others

    async def close(self) -> None:
        self.opening.cancel()
        (opened,) = await asyncio.gather(self.opening, return_exceptions=True)
        if isinstance(opened, Connection):
            await opened.close()


# The one thing that a process shares: agents open programs anywhere, without handing a connection around.
_LEASES: MutableMapping[asyncio.AbstractEventLoop, dict[str, _Lease]] = weakref.WeakKeyDictionary()


@asynccontextmanager
async def shared(url: str) -> AsyncIterator[Connection]:
    """Lend the process's connection to `url`; its first user opens it and its last one closes it.

    Raises:
        UnreachableError: when there is no server at `url`, or it refuses.
    """
    mine = _LEASES.setdefault(asyncio.get_running_loop(), {})
    lease = mine.get(url) or mine.setdefault(url, _Lease(url))
    lease.users += 1
    try:
        yield await lease.connection()
    finally:
        lease.users -= 1
        if not lease.users:
            del mine[url]
            await lease.close()
