"""Program-level attained service (paper section 4.2.1, Equation 1): the less a program has had, the sooner its call."""

from autellix.engine.policy.base import Policy
from autellix.schemas.messages import ProgramFacts


class Plas(Policy):
    """A call enters at the sum of the service times of its program's completed calls; a live one adds nothing.

    The process table keeps that sum (`fold` in `accounting.py`) and stamps it on each call that arrives.
    """

    def entry_service_ms(self, program: ProgramFacts) -> float:
        """Return what the whole program has attained."""
        return program.service_ms
