"""Programs made smaller: still programs, with the same shares."""

import pytest

from autellix.client.bench.load import Scale as BenchScale
from autellix.schemas.traces.records import TraceProgram, _check_calls, read_trace
from autellix.schemas.traces.scale import Scale, scaled
from autellix.schemas.traces.workloads import TRACES, WORKLOADS
from autellix.services.simulator.scenario import from_tree

TRACE_NAMES = sorted({part.trace for parts in WORKLOADS.values() for part in parts})


def shared(program: TraceProgram) -> float:
    """Return the share of all prompt tokens that an earlier call had."""
    return sum(call.shared_prefix_tokens for call in program.calls) / sum(call.prompt_tokens for call in program.calls)


@pytest.mark.parametrize("trace", TRACE_NAMES)
def test_what_is_shared_stays_shared(trace: str) -> None:
    """A trace made smaller breaks no rule, and of all its prompts the same part is shared, up to 3 %."""
    programs = read_trace(TRACES / f"{trace}.jsonl.gz")[:300]
    smaller = [scaled(program, Scale(prompts=8, answers=8)) for program in programs]
    for program in smaller:
        _check_calls(program)
    before = sum(map(shared, programs)) / len(programs)

    assert pytest.approx(before, rel=0.03) == sum(map(shared, smaller)) / len(smaller)


def test_each_number_has_its_factor() -> None:
    """Prompts, answers and interrupts are scaled each by its own, ids and parents are not; one token is left."""
    program = next(each for each in read_trace(TRACES / "claude_code.jsonl.gz") if 5 < len(each.calls) < 20)
    smaller = scaled(program, Scale(prompts=2, answers=1e9, interrupts=0.5))
    pairs = list(zip(program.calls, smaller.calls, strict=True))

    assert [round(was.prompt_tokens / 2) for was, _ in pairs] == [call.prompt_tokens for _, call in pairs]
    assert {1} == {call.output_tokens for _, call in pairs}
    halves = [None if was.interrupt_s is None else was.interrupt_s / 2 for was, _ in pairs]
    assert halves == [call.interrupt_s for _, call in pairs]
    assert any(halves)
    assert [(was.id, was.parents) for was, _ in pairs] == [(call.id, call.parents) for _, call in pairs]


@pytest.mark.parametrize("kind", [Scale, BenchScale])
def test_nothing_changes_by_default(kind: type[Scale]) -> None:
    """Without factors a program is the one recorded, for the benchmark, too, whose scale says more."""
    program = read_trace(TRACES / "bfcl.jsonl.gz")[0]

    assert scaled(program, kind()) is program


def test_shares_are_exact() -> None:
    """Where only interrupts change, every prompt shares as many tokens as recorded."""
    for program in read_trace(TRACES / "sharegpt.jsonl.gz")[:300]:
        same = scaled(program, Scale(interrupts=0.5))

        assert [call.shared_prefix_tokens for call in program.calls] == [c.shared_prefix_tokens for c in same.calls]


def test_a_scenario_may_be_smaller() -> None:
    """The simulator takes the factors from a scenario."""
    assert Scale(prompts=8.0) == from_tree({"scale": {"prompts": 8}}).scale
