"""The fold of calls into programs: one result whatever the order, and the paper's equations."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.policy.accounting import Attained, fold

durations = st.floats(0, 1e6)
calls = st.lists(st.tuples(durations, durations, durations), max_size=30)
Ended = tuple[float, float, float]


def folded(ended: list[Ended]) -> Attained:
    """Return what a program has attained after these calls: service, wait and path at arrival of each."""
    program = Attained()
    for service_ms, wait_ms, path_ms in ended:
        program = fold(program, service_ms=service_ms, wait_ms=wait_ms, critical_path_at_arrival_ms=path_ms)
    return program


@given(calls, st.randoms(use_true_random=False))
def test_order_does_not_matter(ended: list[Ended], chance: random.Random) -> None:
    """Calls folded in any order give the same program."""
    shuffled = list(ended)
    chance.shuffle(shuffled)

    assert folded(ended) == pytest.approx(folded(shuffled))


@given(calls)
def test_equations(ended: list[Ended]) -> None:
    """Service and wait are sums (Equation 1), the critical path is the longest end of a call (Equation 2)."""
    program = folded(ended)

    assert program.service_ms == pytest.approx(sum(service for service, _, _ in ended))
    assert program.waiting_ms == pytest.approx(sum(wait for _, wait, _ in ended))
    assert program.critical_path_ms == max([0.0, *(path + service for service, _, path in ended)])


@given(st.lists(durations, max_size=30))
def test_a_chain_is_its_own_critical_path(services: list[float]) -> None:
    """For a program that makes one call at a time, ATLAS's scalar is PLAS's sum."""
    program = Attained()
    for service_ms in services:
        inherited = program.critical_path_ms
        program = fold(program, service_ms=service_ms, wait_ms=0.0, critical_path_at_arrival_ms=inherited)

    assert program.critical_path_ms == pytest.approx(program.service_ms)


def test_threads_side_by_side() -> None:
    """Calls that run at the same time lengthen the critical path by the longest of them only."""
    program = folded([(10.0, 0.0, 0.0), (30.0, 0.0, 10.0), (5.0, 0.0, 10.0)])

    assert program == Attained(service_ms=45.0, critical_path_ms=40.0, waiting_ms=0.0)
