"""What a call answers with, and how a streamed answer is put together from its chunks."""

from dataclasses import dataclass
from typing import Any

from autellix.schemas.events import CallFinished
from autellix.schemas.ids import CallId


@dataclass(frozen=True)
class Answer:
    """The answer to one chat call."""

    response: dict[str, Any]
    """The OpenAI response, as the engine gave it or as its chunks add up to."""
    call: CallFinished
    """The engine's account: service time, wait, tokens, preemptions."""

    @property
    def call_id(self) -> CallId:
        """The call that was answered."""
        return self.call.call_id

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message, fit to be appended to the conversation."""
        message: dict[str, Any] = self.response["choices"][0]["message"]
        return message

    @property
    def text(self) -> str:
        """The message's text; empty when the model only called tools."""
        return self.message.get("content") or ""

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ends, as `stop` or `length`."""
        reason: str | None = self.response["choices"][0].get("finish_reason")
        return reason

    @property
    def usage(self) -> dict[str, Any]:
        """The OpenAI account of tokens."""
        return self.response.get("usage") or {}


class Assembly:
    """Adds the chunks of a streamed chat answer up to the response it would have been in one piece."""

    def __init__(self) -> None:
        self._response: dict[str, Any] = {"object": "chat.completion", "usage": None}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, chunk: dict[str, Any]) -> str:
        """Take in a chunk and return the text it adds to the first choice."""
        for key in ("id", "created", "model"):
            self._response.setdefault(key, chunk.get(key))
        self._response["usage"] = chunk.get("usage") or self._response["usage"]
        return "".join(self._add_choice(choice) for choice in chunk.get("choices", ()))

    def _add_choice(self, part: dict[str, Any]) -> str:
        index = part.get("index", 0)
        delta = part.get("delta") or {}
        choice = self._choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": ""}})
        choice["finish_reason"] = part.get("finish_reason") or choice.get("finish_reason")
        _merge(choice["message"], delta)
        return (delta.get("content") or "") if index == 0 else ""

    def response(self) -> dict[str, Any]:
        """Return what the chunks so far add up to."""
        return {**self._response, "choices": [self._choices[index] for index in sorted(self._choices)]}


def _merge(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to a message: text grows, lists grow by the `index` of their parts, the rest is set."""
    for key, value in delta.items():
        if isinstance(value, dict):
            _merge(whole.setdefault(key, {}), value)
        elif isinstance(value, list):
            _merge_parts(whole.setdefault(key, []), value)
        elif isinstance(value, str) and key not in ("role", "id", "type"):
            whole[key] = (whole.get(key) or "") + value
        elif value is not None:
            whole[key] = value


def _merge_parts(whole: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    for part in parts:
        index = part.get("index", len(whole))
        while len(whole) <= index:
            whole.append({})
        _merge(whole[index], part)
