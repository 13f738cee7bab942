"""Notes, second by second, which programs are resident on which engine, and which are held."""

from collections.abc import Iterable, Mapping
from typing import Literal

from autellix.schemas.ids import ProgramId
from autellix.services.simulator.results import Stay
from autellix.services.simulator.worker import SimulatedWorker

Place = tuple[int, str, Literal["resident", "held"]]
"""A program's number, an engine, and how it is there."""


class Stays:
    """All stays, those under way included."""

    def __init__(self) -> None:
        self._over: list[Stay] = []
        self._since_ms: dict[Place, float] = {}

    def look(self, workers: Iterable[SimulatedWorker], numbers: Mapping[ProgramId, int], now_ms: float) -> None:
        """Take a look at all engines.

        Args:
            workers: Their workers.
            numbers: The numbers of the live programs.
            now_ms: When.
        """
        seen: set[Place] = set()
        for worker in workers:
            name = str(worker.core.engine_id)
            seen |= {(numbers[each], name, "resident") for each in worker.engine.resident_programs if each in numbers}
            seen |= {(numbers[each], name, "held") for each in worker.engine.held_programs if each in numbers}
        for place in sorted(self._since_ms.keys() - seen):
            self._over.append(self._stay(place, now_ms))
            del self._since_ms[place]
        for place in sorted(seen - self._since_ms.keys()):
            self._since_ms[place] = now_ms

    def all(self, now_ms: float) -> list[Stay]:
        """Return all stays up to now, in order of their ends."""
        return [*self._over, *(self._stay(place, now_ms) for place in sorted(self._since_ms))]

    def _stay(self, place: Place, until_ms: float) -> Stay:
        program, engine, kind = place
        since_ms = self._since_ms[place]
        return Stay(program=program, engine=engine, kind=kind, since_ms=since_ms, until_ms=until_ms)
