"""A simulated engine with a gate and a tier of KV in CPU memory: programs that fit there, and not on the device."""

import msgspec
import pytest

from autellix.engine.executor import Held
from autellix.engine.simulation.calls import Ended
from autellix.engine.simulation.timing import EngineOptions, SwapTiming
from tests.unit.test_simulation_gate import Agents, scarce, seeds

COPY = SwapTiming(block_ms=0.03, copy_ms=0.05)


def tiered(seed: int, *, times: float, gate: str = "fair", jump: bool = True) -> EngineOptions:
    """Return an engine as in the tests without a tier, with one that has room for so many times the device."""
    options = scarce(seed, gate=gate, jump=jump)
    tier_tokens = int(times * options.limits.kv_tokens)
    return msgspec.structs.replace(options, tier_tokens=tier_tokens, swap=COPY)


@seeds
@pytest.mark.parametrize("gate", ["off", "fair", "plain"])
def test_a_jump_is_its_steps(gate: str, seed: int) -> None:
    """Steps taken at once bring the same events at the same times, with copies from the tier among them."""
    jumped = Agents(seed, "auto", tiered(seed, times=2, gate=gate))
    jumped.run()
    stepped = Agents(seed, "auto", tiered(seed, times=2, gate=gate, jump=False))
    stepped.run()

    assert stepped.happened == jumped.happened
    assert stepped.engine.counters == jumped.engine.counters


@seeds
@pytest.mark.parametrize("gate", ["fair", "plain"])
def test_all_end_and_nothing_is_left(gate: str, seed: int) -> None:
    """Every call ends, once; the gate knows of none, nothing runs, and the device holds nothing."""
    agents = Agents(seed, "auto", tiered(seed, times=2, gate=gate))
    agents.run()
    ended = [what.call_id for _, what in agents.happened if isinstance(what, Ended)]
    behind = agents.engine._batch.entrance._gate
    assert behind is not None

    assert sorted(ended) == sorted(f"c{number}" for number in range(len(agents.chains)))
    assert (0, 0, 0) == (behind._room.used, behind._device.used, behind._device._calls)
    assert ([], {}, 0) == (behind.held_calls, behind._programs, len(behind._residents))
    assert 0 == agents.engine._batch.memory.usage


def test_a_tier_spares_what_was_evicted() -> None:
    """Over all these programs fewer tokens are computed with a tier, some come back by copies, and some calls wait."""
    computed, copied, held = [0, 0], [0, 0], 0
    for seed in range(12):
        for place, times in enumerate((0, 4)):
            agents = Agents(seed, "auto", tiered(seed, times=times))
            agents.run()
            computed[place] += agents.engine.counters.prefill_tokens
            copied[place] += agents.engine.counters.loaded_tokens
            held += any(isinstance(what, Held) and what.where == "on the device" for _, what in agents.happened)

    assert computed[1] < computed[0]
    assert copied[0] == 0 < copied[1]
    assert held >= 3
