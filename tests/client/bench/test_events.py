"""How the stream of an answer is read, and how ids become a prompt."""

import pytest

from autellix.client.bench.targets.events import BrokenStreamError, Completion, events
from autellix.client.bench.targets.words import TokenIds, Words

STREAM = b"""\
: queued

data: {"id": "c", "choices": [{"index": 0, "text": "ab", "prompt_token_ids": [1, 2], "token_ids": [300]}]}

data: {"id": "c", "choices": [{"index": 0, "text": "cd", "token_ids": [301, 302], "finish_reason": "length"}]}

data: {"id": "c", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3,
"""
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": %b}}\n\n'
DONE = b"data: [DONE]\n\n"
PIECES = STREAM.rpartition(b"data:")[0]


def test_answer_is_put_together() -> None:
    """Ids, text and usage of all events add up; comments are passed over."""
    answer = Completion(events(PIECES + USAGE % b'{"cached_tokens": 1}' + DONE))

    assert [300, 301, 302] == answer.token_ids
    assert ["ab", "cd"] == answer.pieces
    assert (3, 1) == (answer.output_tokens, answer.cached_tokens)


@pytest.mark.parametrize("details", [b"null", b"{}", b'{"cached_tokens": null}'])
def test_cache_that_is_not_told_of(details: bytes) -> None:
    """A server that does not tell of its cache had not no hits: nothing is known."""
    assert Completion(events(PIECES + USAGE % details + DONE)).cached_tokens is None


def test_answer_without_usage() -> None:
    """A server that does not count has answered with as many tokens as came."""
    assert 3 == Completion(events(PIECES + DONE)).output_tokens


def test_line_ends_may_be_of_either_kind() -> None:
    """Carriage returns before line feeds change nothing."""
    body = (PIECES + DONE).replace(b"\n", b"\r\n")

    assert [300, 301, 302] == Completion(events(body)).token_ids


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (PIECES, "broke off"),
        (PIECES + b'data: {"error": {"message": "The engine died."}}\n\n' + DONE, r"^The engine died\.$"),
        (PIECES + b'data: {"error": "dead"}\n\n' + DONE, "^dead$"),
        (STREAM, "not as expected"),
        (b"data: [1]\n\n" + DONE, "not as expected"),
        (b"", "broke off"),
    ],
)
def test_broken_stream_is_an_error(body: bytes, problem: str) -> None:
    """A stream that breaks off, says an error or makes no sense is never a shorter answer."""
    with pytest.raises(BrokenStreamError, match=problem):
        Completion(events(body))


def test_ids_are_sent_as_they_are() -> None:
    """A prompt of ids is the list itself, and the answer is its ids."""
    answer = Completion(events(PIECES + DONE))

    assert {"prompt": [300, 5], "return_token_ids": True} == TokenIds().request([300, 5])
    assert [300, 301, 302] == TokenIds().tokens(answer)


def test_answers_are_repeated_letter_by_letter() -> None:
    """As text, each id is a word of its own, and a prompt with an answer in it has that answer's text."""
    words = Words()
    had = words.tokens(Completion(events(PIECES + DONE)))
    text = words.request([300, 899, *had, 300])["prompt"]

    assert 2 == len(set(had))
    assert " aa xbabcd aa" == text
