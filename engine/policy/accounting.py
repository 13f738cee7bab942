"""What a program has attained, folded call by call; the same function in the process table and in the simulator.

Paper section 4.2.1: PLAS orders by the sum of a program's service times. ATLAS orders by its longest observed critical
path, one scalar a program: a call inherits it on arrival, and pushes it to what it inherited plus its own service.
For a program that makes one call at a time the two are equal.
"""

from typing import NamedTuple


class Attained(NamedTuple):
    """What a program has attained so far; milliseconds."""

    service_ms: float = 0.0
    critical_path_ms: float = 0.0
    waiting_ms: float = 0.0


def fold(program: Attained, *, service_ms: float, wait_ms: float, critical_path_at_arrival_ms: float) -> Attained:
    """Return `program` with one ended call added; the order of additions does not matter."""
    return Attained(
        service_ms=program.service_ms + service_ms,
        critical_path_ms=max(program.critical_path_ms, critical_path_at_arrival_ms + service_ms),
        waiting_ms=program.waiting_ms + wait_ms,
    )
