"""How fast programs get tokens, from one look at the process table to the next."""

from autellix.schemas.ids import ProgramId
from autellix.schemas.table import ProgramList


class TokenRates:
    """Output tokens a second of ended calls, by program, between the last two looks."""

    def __init__(self) -> None:
        self._seen: dict[ProgramId, int] = {}
        self._at_ms: float | None = None
        self._rates: dict[ProgramId, float] = {}

    def add(self, listed: ProgramList) -> None:
        """Take in a look at the process table."""
        if self._at_ms is not None and listed.at_ms > self._at_ms:
            seconds = (listed.at_ms - self._at_ms) / 1000
            self._rates = {
                program.program_id: (program.output_tokens - self._seen.get(program.program_id, 0)) / seconds
                for program in listed.programs
            }
        self._seen = {program.program_id: program.output_tokens for program in listed.programs}
        self._at_ms = listed.at_ms

    def of(self, program_id: ProgramId) -> float:
        """Return a program's tokens a second; 0 before the second look."""
        return self._rates.get(program_id, 0.0)
