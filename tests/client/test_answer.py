"""Chunks add up to the response they stand for."""

from typing import Any

from autellix.client.answer import Assembly


def delta(**fields: Any) -> dict[str, Any]:
    """Return a chunk whose first choice brings `fields`."""
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def test_text_grows_piece_by_piece() -> None:
    """Each chunk returns its own text, and the message has all of it."""
    assembly = Assembly()

    pieces = [
        assembly.add(part) for part in (delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"))
    ]

    assert pieces == ["", "Hel", "lo"]
    assert assembly.response()["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}


def test_usage_and_reason_come_last() -> None:
    """The reason of the last choice chunk and the usage of the chunk without choices are kept."""
    assembly = Assembly()

    assembly.add(delta(content="a"))
    assembly.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    assembly.add({"choices": [], "usage": {"completion_tokens": 1}})

    assert assembly.response()["choices"][0]["finish_reason"] == "length"
    assert assembly.response()["usage"] == {"completion_tokens": 1}
    assert assembly.response()["model"] == "m"


def test_tool_calls_are_joined_by_index() -> None:
    """The arguments of parallel tool calls arrive in pieces and are told apart by their index."""
    assembly = Assembly()

    assembly.add(
        delta(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}])
    )
    assembly.add(delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}, {"index": 1, "id": "b"}]))

    calls = assembly.response()["choices"][0]["message"]["tool_calls"]
    assert calls == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"index": 1, "id": "b"},
    ]


def test_choices_are_kept_apart() -> None:
    """With n above 1 the pieces are those of the first choice, and the response has them all."""
    assembly = Assembly()

    second = {"choices": [{"index": 1, "delta": {"content": "other"}}]}

    assert assembly.add(second) == ""
    assert assembly.add(delta(content="one")) == "one"
    assert [choice["message"]["content"] for choice in assembly.response()["choices"]] == ["one", "other"]
