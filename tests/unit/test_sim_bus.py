"""Virtual time, and the bus in it."""

from functools import partial
from typing import Any

from autellix.schemas.codec import EVENTS, PROGRAM_EVENTS, Decoder
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import ProgramEnded, ProgramStarted
from autellix.services.simulator.clock import Clock
from autellix.services.simulator.virtual_bus import Envelope, Handler, VirtualBus

STARTED = ProgramStarted(program_id=ProgramId("p"), at_ms=1.5)
ENDED = ProgramEnded(program_id=ProgramId("p"), at_ms=2.5)
ANY: Decoder[Any] = EVENTS


def heard(log: list[str], name: str) -> Handler:
    """Return a handler that notes who heard what."""
    return lambda envelope: log.append(f"{name} {envelope.subject}")


def test_actions_happen_in_order_of_their_time() -> None:
    """The earliest is first; of two at one time the one that was asked for first; none before now."""
    clock, log = Clock(), list[tuple[float, str]]()

    def note(name: str) -> None:
        log.append((clock.now_ms, name))

    for at_ms, name in ((5.0, "b"), (3.0, "a"), (5.0, "c")):
        clock.at(at_ms, partial(note, name))
    clock.at(4.0, lambda: clock.at(1.0, partial(note, "late")))
    while clock.next_ms < 10:
        clock.step()

    assert [(3.0, "a"), (4.0, "late"), (5.0, "b"), (5.0, "c")] == log


def test_messages_reach_those_who_listen() -> None:
    """Wildcards as on NATS, every plain subscriber, and one member of a queue group in turn."""
    bus, log = VirtualBus(Clock()), list[str]()
    for name, pattern, queue in (("all", "a.>", ""), ("one", "a.*", ""), ("g1", "a.b", "g"), ("g2", "a.b", "g")):
        bus.subscribe(pattern, ANY, heard(log, name), queue=queue)
    for subject in ("a.b", "a.b", "a.b.c", "b"):
        bus.publish(subject, STARTED)
    bus.deliver()

    assert ["all a.b", "one a.b", "all a.b.c"] == [each for each in dict.fromkeys(log) if each[0] != "g"]
    assert ["g1 a.b", "g2 a.b"] == sorted(each for each in log if each[0] == "g")


def test_messages_arrive_in_the_order_they_were_sent() -> None:
    """What a receiver sends comes after what was sent before, however deep it is sent from."""
    bus, log = VirtualBus(Clock()), list[str]()

    def answer(envelope: Envelope) -> None:
        log.append(envelope.subject)
        bus.publish(f"{envelope.subject}.answer", STARTED)

    bus.subscribe("*", ANY, answer)
    bus.subscribe("*.answer", ANY, lambda envelope: log.append(envelope.subject))
    bus.publish("a", STARTED)
    bus.publish("b", STARTED)
    bus.deliver()

    assert ["a", "b", "a.answer", "b.answer"] == log


def test_later_subscribers_hear_what_is_sent_later() -> None:
    """A new subscription counts for subjects that were in use before it."""
    bus, log = VirtualBus(Clock()), list[str]()
    bus.subscribe("a", ANY, heard(log, "early"))
    bus.publish("a", STARTED)
    bus.deliver()
    bus.subscribe("a", ANY, heard(log, "late"))
    bus.publish("a", STARTED)
    bus.deliver()

    assert ["early a", "early a", "late a"] == log


def test_coded_messages_are_equal_copies() -> None:
    """With coding on a receiver gets another object, which says the same; replies travel along."""
    found: list[Envelope] = []
    for coded in (False, True):
        bus = VirtualBus(Clock(), coded=coded)
        bus.subscribe("a", PROGRAM_EVENTS, found.append)
        bus.publish("a", ENDED, reply="inbox")
        bus.deliver()

    assert [Envelope("a", ENDED, "inbox")] * 2 == found
    assert [True, False] == [envelope.message is ENDED for envelope in found]
