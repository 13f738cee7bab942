"""First come, first served: what stock vLLM does; the baseline."""

from autellix.schemas.messages import ProgramFacts


class Fcfs:
    """One queue in order of arrival."""

    one_queue = True

    def entry_service_ms(self, program: ProgramFacts) -> float:  # noqa: ARG002 - nothing about the program matters
        """Return 0: all calls are equal."""
        return 0.0
