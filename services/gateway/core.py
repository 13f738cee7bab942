"""What the gateway knows of the engines: which are in rotation, and the models they serve.

Rules:
* An engine is in rotation from its first heartbeat that says `ready` until it drains, goes down or falls silent.
* A restarted engine is a new incarnation: what the old one still says, or its end, does not touch the new one.
* The age of a heartbeat is counted from its arrival, so that clocks of other machines do not matter.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from autellix.schemas.base import Message
from autellix.schemas.ids import EngineId, Incarnation
from autellix.schemas.messages import EngineDown, EngineLoad, EngineUp
from autellix.services.core import Out, Reply


@dataclass
class Engine:
    """One life of an engine worker, as its heartbeats tell it."""

    models: tuple[str, ...]
    ready: bool
    since_ms: float
    heard_at_ms: float


class EngineRotation:
    """The engines in rotation; one leaves after `silence_s` seconds without a heartbeat."""

    def __init__(self, silence_s: float) -> None:
        self._silence_ms = silence_s * 1000
        self._engines: dict[tuple[EngineId, Incarnation], Engine] = {}

    def handle(self, message: Message, now_ms: float, reply: Reply | None = None) -> Iterable[Out]:  # noqa: ARG002 the core's signature
        """Take in an event of an engine."""
        match message:
            case EngineUp():
                self._heard(message, now_ms, ready=True)
            case EngineLoad():
                self._heard(message, now_ms, ready=message.state == "ready")
            case EngineDown():
                self._engines.pop((message.engine_id, message.incarnation), None)
        return ()

    def tick(self, now_ms: float) -> Iterable[Out]:
        """Forget the engines that fell silent."""
        for key, engine in list(self._engines.items()):
            if now_ms - engine.heard_at_ms > self._silence_ms:
                del self._engines[key]
        return ()

    def _heard(self, message: EngineUp | EngineLoad, now_ms: float, *, ready: bool) -> None:
        key = (message.engine_id, message.incarnation)
        known = self._engines.get(key)
        since_ms = known.since_ms if known else now_ms
        self._engines[key] = Engine(message.models, ready, since_ms, now_ms)

    @property
    def empty(self) -> bool:
        """Whether no engine is in rotation."""
        return not any(engine.ready for engine in self._engines.values())

    def models(self) -> dict[str, float]:
        """Return the models that can be asked for, by name, each with the time it was first seen, in milliseconds."""
        found: dict[str, float] = {}
        for engine in self._engines.values():
            for model in engine.models if engine.ready else ():
                found[model] = min(engine.since_ms, found.get(model, engine.since_ms))
        return dict(sorted(found.items()))
