"""What a service's core is: decisions without I/O.

A core is told what happened and answers with what to publish. Time is an argument and so is chance; it never waits,
never publishes and never asks another service. The same core runs on NATS, in memory, and in virtual time.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from autellix.schemas import subjects, tenants
from autellix.schemas.base import Message
from autellix.schemas.codec import Decoder
from autellix.schemas.messages import Event


class Reply(NamedTuple):
    """Where the answer to a request goes, in which encoding, which trace it is part of, and whose it is."""

    subject: str
    as_json: bool = False
    trace: str = ""
    """A W3C `traceparent`; empty: none."""
    tenant: str = tenants.NOBODY
    """Whose request it is, as the subject says that it came on."""


class Out(NamedTuple):
    """One message to publish."""

    subject: str
    message: msgspec.Struct
    as_json: bool = False


class Core(Protocol):
    """A service's decisions."""

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:
        """Take in one message and return what to publish, in order.

        Args:
            message: A decoded, valid message of a subject that the service subscribes to.
            now_ms: Wall-clock milliseconds.
            reply: Where to answer, if the sender waits for an answer.
        """
        ...

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Let time pass: return what is due at `now_ms`."""
        ...


@dataclass(frozen=True)
class Listen:
    """One subscription of a service."""

    subject: str
    decoder: Decoder[Any]
    queue: str = ""
    """The queue group: of its members one hears a message. Empty: every instance hears it."""
    answered: bool = False
    """A request: without a reply subject there is nobody to answer, and it is dropped."""
    brings_work: bool = False
    """A request that is refused when it had to wait for too long here: who asked is about to give up."""


def asked(subject: str, decoder: Decoder[Any], queue: str, *, brings_work: bool = False) -> tuple[Listen, Listen]:
    """Return the subscriptions to a public request: those of everybody, and those of each tenant."""
    every = tenants.any_subject_of(subject)
    one = Listen(subject, decoder, queue, answered=True, brings_work=brings_work)
    return one, dataclasses.replace(one, subject=every)


class Chance(Protocol):
    """The source of randomness that is handed to a core; `random.Random` is one."""

    def choice(self, seq: list[str], /) -> str:
        """Return one element, each as likely as the others."""
        ...


def answer(reply: Reply | None, message: msgspec.Struct) -> list[Out]:
    """Return the answer to a request, or nothing when nobody waits for one."""
    return [Out(reply.subject, message, reply.as_json)] if reply else []


def asking(reply: Reply | None) -> str:
    """Return whose request it is."""
    return reply.tenant if reply else tenants.NOBODY


def announce(event: Event) -> Out:
    """Return the publication of an event on its subject."""
    return Out(subjects.event(event), event)
