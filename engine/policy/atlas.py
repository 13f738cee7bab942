"""Adaptive thread-level attained service (paper section 4.2.1, Equation 2), for programs that are graphs of calls.

The paper keeps one scalar a program, the longest critical path seen, so that all live calls of a program start in the
same queue and its threads advance together. The rule is *least* attained path first; the paper's rationale, to favour
the thread on the longest path, is another goal and conflicts with it: the rule is what is built.
"""

from autellix.engine.policy.base import Policy
from autellix.schemas.messages import ProgramFacts


class Atlas(Policy):
    """A call enters at its program's longest observed critical path."""

    def entry_service_ms(self, program: ProgramFacts) -> float:
        """Return the critical path that the program has attained."""
        return program.critical_path_ms
