"""What one balancer knows of the others: where they sent calls, and homes that they chose.

Each hears every `call.routed`, its own too. The latest word on a call holds: what an engine gave back to another
balancer, or what was passed on a second time and reached another one, is not this one's any more, to repeat or to end.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from autellix.schemas import subjects
from autellix.schemas.ids import CallId, EngineId, ProgramId
from autellix.schemas.messages import CallRouted, ForgetCalls
from autellix.services.core import Out
from autellix.services.load_balancer.engine import Engine

HOMES_REMEMBERED: Final = 20_000
"""Programs with homes chosen here, the oldest go first: the process table knows them by then."""
ENDED_REMEMBERED: Final = 20_000
"""Calls that ended, the oldest go first, lest one that comes once more is run again."""
CALLS_REMEMBERED: Final = 100_000
"""Calls that others sent, the oldest go first, should their ends never be heard."""


class Homes:
    """Those that were chosen here."""

    def __init__(self) -> None:
        self._homes: OrderedDict[ProgramId, dict[str, EngineId]] = OrderedDict()
        """By model."""

    def __len__(self) -> int:
        return len(self._homes)

    def of(self, program_id: ProgramId, model: str, otherwise: EngineId | None) -> EngineId | None:
        """Return a program's home for a model; `otherwise`, if none was chosen here."""
        return self._homes.get(program_id, {}).get(model, otherwise)

    def choose(self, program_id: ProgramId, model: str, engine_id: EngineId) -> None:
        """Note a home."""
        self._homes.setdefault(program_id, {})[model] = engine_id
        if len(self._homes) > HOMES_REMEMBERED:
            self._homes.popitem(last=False)

    def forget(self, program_id: ProgramId) -> None:
        """Forget a program that is over, or whose home another balancer chose: the process table tells that one."""
        self._homes.pop(program_id, None)

    def heard(self, event: CallRouted) -> None:
        """Take in where a call went."""
        if event.becomes_home and event.engine_id not in self._homes.get(event.program_id, {}).values():
            self.forget(event.program_id)


class Others:
    """The calls that other balancers sent."""

    def __init__(self) -> None:
        self._engine_of: OrderedDict[CallId, EngineId] = OrderedDict()

    def engine_of(self, call_id: CallId) -> EngineId | None:
        """Return where another balancer sent a call."""
        return self._engine_of.get(call_id)

    def forget(self, call_id: CallId) -> None:
        """Forget a call that has ended, or that is sent from here."""
        self._engine_of.pop(call_id, None)

    def lost(self, engine_id: EngineId) -> None:
        """Forget what was sent to an engine that is gone: who sent it sends it again."""
        for call_id in [call_id for call_id, sent_to in self._engine_of.items() if sent_to == engine_id]:
            del self._engine_of[call_id]

    def heard(
        self, event: CallRouted, engines: Mapping[EngineId, Engine], engine_of: dict[CallId, EngineId]
    ) -> list[Out]:
        """Take in where a call went, and leave it to who sent it, if that was later than from here.

        Args:
            event: What was heard.
            engines: Those in rotation.
            engine_of: Where this balancer sent calls.
        """
        call_id, own = event.call_id, engines.get(engine_of.get(event.call_id, event.engine_id))
        sent = own.calls.get(call_id) if own else None
        if sent is None:
            self._note(event)
            return []
        if own is None or own.load.engine_id == event.engine_id or event.at_ms <= sent.at_ms:
            return []  # an own word that comes back, or one of before
        self._note(event)
        own.end(call_id)
        del engine_of[call_id]
        forget = ForgetCalls(incarnation=own.load.incarnation, call_ids=(call_id,))
        return [Out(subjects.engine_forget(own.load.engine_id), forget)]

    def _note(self, event: CallRouted) -> None:
        self._engine_of[event.call_id] = event.engine_id
        if len(self._engine_of) > CALLS_REMEMBERED:
            self._engine_of.popitem(last=False)
