"""What a policy is."""

from typing import Protocol

from autellix.schemas.messages import ProgramFacts


class Policy(Protocol):
    """Says where on the ladder a call enters."""

    one_queue: bool
    """There is no ladder: calls run in order of arrival and nothing is ever displaced."""

    def entry_service_ms(self, program: ProgramFacts) -> float:
        """Return the attained service by which a call of `program` finds its first queue."""
        ...
