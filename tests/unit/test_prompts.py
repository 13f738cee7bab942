"""The guess of a prompt's length: bytes a token, learnt from the engine's counts, plus what a program has added."""

from typing import Any

import pytest

from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.messages import Call, CallFinished
from autellix.services.process_table import prompts
from autellix.services.process_table.prompts import PromptEstimator


@pytest.fixture
def estimator() -> PromptEstimator:
    """Return an estimator that has seen nothing."""
    return PromptEstimator()


def arrive(estimator: PromptEstimator, number: int, size: int, **fields: Any) -> int:
    """Let a call of `size` bytes arrive and return the guess."""
    known: dict[str, Any] = {"program_id": ProgramId("p"), "model": "m", **fields}
    call = Call(
        call_id=CallId(f"c{number}"),
        thread_id=ThreadId("main"),
        api="",
        body=b"x" * size,
        stream=False,
        reply_to="",
        arrival_at_ms=0.0,
        **known,
    )
    return estimator.arrived(call)


def count(estimator: PromptEstimator, number: int, prompt_tokens: int, program_id: str = "p") -> None:
    """Let the engine tell how long the prompt of a call was."""
    event = CallFinished(
        call_id=CallId(f"c{number}"),
        program_id=ProgramId(program_id),
        thread_id=ThreadId("main"),
        at_ms=0.0,
        arrival_at_ms=0.0,
        prompt_tokens=prompt_tokens,
    )
    estimator.ended(event)


def test_nothing_known(estimator: PromptEstimator) -> None:
    """The first guess takes a token to be four bytes."""
    assert arrive(estimator, 1, 4000) == 1000


def test_learns_bytes_a_token(estimator: PromptEstimator) -> None:
    """The first count of a model replaces that; later ones move it slowly; another model is not touched."""
    arrive(estimator, 1, 4000)
    count(estimator, 1, 2000)

    assert arrive(estimator, 2, 4000, program_id=ProgramId("q")) == 2000
    count(estimator, 2, 400, "q")
    assert arrive(estimator, 3, 2800, program_id=ProgramId("r")) == 1000
    assert arrive(estimator, 4, 4000, program_id=ProgramId("s"), model="other") == 1000


def test_program_that_adds(estimator: PromptEstimator) -> None:
    """A program's next prompt is its last one, as counted, plus what was added."""
    arrive(estimator, 1, 4000)
    count(estimator, 1, 1000)

    assert arrive(estimator, 2, 4400) == 1100


def test_program_that_starts_over(estimator: PromptEstimator) -> None:
    """A prompt shorter than the last one is guessed from its own length."""
    arrive(estimator, 1, 4000)
    count(estimator, 1, 1000)

    assert arrive(estimator, 2, 400) == 100


def test_call_that_never_ran(estimator: PromptEstimator) -> None:
    """An end without a count, or of a call that never arrived, teaches nothing."""
    arrive(estimator, 1, 4000)
    count(estimator, 1, 0)
    count(estimator, 9, 5)

    assert arrive(estimator, 2, 4000) == 1000


def test_lost_ends(estimator: PromptEstimator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls whose end never comes are forgotten, the oldest first."""
    monkeypatch.setattr(prompts, "ARRIVED_REMEMBERED", 10)
    for number in range(100):
        arrive(estimator, number, 4)

    assert len(estimator._arrived) == 10
