"""Multi-level feedback queue over single calls, as FastServe does: the baseline that knows no programs."""

from autellix.engine.policy.base import Policy
from autellix.schemas.messages import ProgramFacts


class Mlfq(Policy):
    """Every call enters the best queue and sinks by its own service."""

    def entry_service_ms(self, program: ProgramFacts) -> float:  # noqa: ARG002 - it knows no programs
        """Return 0: every call begins anew."""
        return 0.0
