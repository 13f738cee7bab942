"""Multi-level feedback queue over single calls, as FastServe does: the baseline that knows no programs."""

from autellix.schemas.messages import ProgramFacts


class Mlfq:
    """Every call enters the best queue and sinks by its own service."""

    one_queue = False

    def entry_service_ms(self, program: ProgramFacts) -> float:  # noqa: ARG002 - it knows no programs
        """Return 0: every call begins anew."""
        return 0.0
