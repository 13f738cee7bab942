"""What programs that ended teach: remembered here, and told to every engine."""

from autellix.engine.policy.learning import Learnt
from autellix.schemas import subjects
from autellix.services.core import Out

RETELL_MS = 10_000.0
"""How often what is known is told again: a restarted engine knows nothing."""


class Lessons:
    """The one place where priorities are learnt, so that all engines go by the same."""

    def __init__(self) -> None:
        self.learnt = Learnt()
        self._is_news = False
        self._told_at_ms = 0.0

    def program_ended(self, kind: str, service_ms: float) -> None:
        """Take in the service of a whole program."""
        self._is_news |= self.learnt.program_ended(kind, service_ms)

    def tick(self, now_ms: float) -> list[Out]:
        """Tell what is known, if it changed or was not told for a while; what is known is never taken back."""
        if not self._is_news and now_ms - self._told_at_ms < RETELL_MS:
            return []
        self._is_news, self._told_at_ms = False, now_ms
        priorities = self.learnt.priorities()
        return [Out(subjects.PRIORITIES, priorities)] if priorities.pooled else []
