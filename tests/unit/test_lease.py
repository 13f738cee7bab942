"""Which instance may be the active one: what is decided from looks at the lease, and how sure a holder may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.services.lease import (
    BACK_S,
    LAPSE_S,
    RENEW_S,
    SURE_S,
    Lease,
    Lookout,
    Seen,
    Tenure,
    decoded,
    encoded,
)

HELD = Lease("other", "inbox")


def test_nobody_has_it() -> None:
    """What nobody holds, or was given back, is taken at the first look."""
    assert Lookout().may_take(Seen(Lease(), 0, heard=False, reconnects=0), 0.0)
    assert Lookout().may_take(Seen(Lease(), 7, heard=False, reconnects=3), 0.0)


def test_holder_renews() -> None:
    """One that is renewed is never taken, however long it lasts."""
    lookout = Lookout()

    assert not any(lookout.may_take(Seen(HELD, step, heard=True, reconnects=0), step * RENEW_S) for step in range(100))


def test_holder_stands_still() -> None:
    """One that is not renewed is taken after a while, counted from when that was first seen."""
    lookout = Lookout()
    lookout.may_take(Seen(HELD, 1, heard=True, reconnects=0), 100.0)
    lookout.may_take(Seen(HELD, 2, heard=True, reconnects=0), 104.0)

    assert not lookout.may_take(Seen(HELD, 2, heard=True, reconnects=0), 104.0 + LAPSE_S - 0.01)
    assert lookout.may_take(Seen(HELD, 2, heard=True, reconnects=0), 104.0 + LAPSE_S)


def test_holder_is_gone() -> None:
    """Where nobody listens any more nobody is waited for: not by one that has just started, either."""
    waiting = Lookout()
    waiting.may_take(Seen(HELD, 1, heard=True, reconnects=2), 0.0)

    assert waiting.may_take(Seen(HELD, 1, heard=False, reconnects=2), 0.5)
    assert Lookout().may_take(Seen(HELD, 1, heard=False, reconnects=0), 0.0)


def test_bus_was_away() -> None:
    """Its absence is nobody's fault: the holder gets the time to come back, and then to renew."""
    lookout = Lookout()
    lookout.may_take(Seen(HELD, 1, heard=True, reconnects=0), 0.0)

    assert not lookout.may_take(Seen(HELD, 1, heard=False, reconnects=1), 60.0)
    assert not lookout.may_take(Seen(HELD, 1, heard=False, reconnects=1), 60.0 + BACK_S - 0.01)
    assert not lookout.may_take(Seen(HELD, 1, heard=True, reconnects=1), 60.0 + BACK_S)
    assert lookout.may_take(Seen(HELD, 1, heard=False, reconnects=1), 60.0 + BACK_S)
    assert lookout.may_take(Seen(HELD, 1, heard=True, reconnects=1), 60.0 + LAPSE_S)


def test_holder_is_sure_for_less_than_others_wait() -> None:
    """It asks before the others take the lease, and again on each new connection."""
    tenure = Tenure()
    assert not tenure.sure(0.0, 0)
    tenure.confirmed(10.0, 0)

    assert tenure.sure(10.0 + SURE_S - 0.01, 0)
    assert not tenure.sure(10.0 + SURE_S, 0)
    assert not tenure.sure(10.0, 1)
    assert RENEW_S < SURE_S < LAPSE_S


@given(
    st.lists(st.tuples(st.floats(0.01, 3.0), st.sampled_from(["renew", "look", "look"])), max_size=60),
    st.integers(0, 60),
)
def test_never_two(steps: list[tuple[float, str]], frozen_from: int) -> None:
    """While the holder is sure nobody takes it, whenever it stops to renew and whenever others look."""
    now_s, revision = 0.0, 1
    tenure, lookout = Tenure(), Lookout()
    tenure.confirmed(now_s, 0)
    for number, (passed_s, what) in enumerate(steps):
        now_s += passed_s
        if what == "renew" and number < frozen_from:
            tenure.confirmed(now_s, 0)
            revision += 1
        taken = lookout.may_take(Seen(HELD, revision, heard=True, reconnects=0), now_s)
        assert not (taken and tenure.sure(now_s, 0))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93" * 2000, b"\x81\xa6holder\x01", encoded(Lease("me", "there"))])
def test_what_the_key_holds(data: bytes) -> None:
    """What cannot be read is nobody's."""
    assert decoded(data) == (Lease("me", "there") if data.endswith(b"there") else Lease())
