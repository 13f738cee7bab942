"""Reads the event stream of an OpenAI completion, once it is over: while it comes nothing is decoded."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec


class Choice(msgspec.Struct):
    """What one event adds to the answer."""

    text: str = ""
    token_ids: list[int] | None = None
    """vLLM's, if asked for."""


class PromptDetails(msgspec.Struct):
    """Of what the prompt consisted."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class Event(msgspec.Struct):
    """One event."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


class BrokenStreamError(Exception):
    """A stream that says an error, makes no sense or has no end; the text says which."""


class Completion:
    """What the events of one answer add up to."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.token_ids: list[int] = []
        self.pieces: list[str] = []
        """The answer's text, as it came."""
        self.usage: Usage | None = None
        for event in events:
            self.usage = event.usage or self.usage
            for choice in event.choices:
                self.token_ids += choice.token_ids or ()
                if choice.text:
                    self.pieces.append(choice.text)

    @property
    def output_tokens(self) -> int:
        """Return the length of the answer: as the server counts, else as many as there came ids or pieces."""
        return self.usage.completion_tokens if self.usage else len(self.token_ids) or len(self.pieces)

    @property
    def cached_tokens(self) -> int | None:
        """Return what the prefix cache had of the prompt, None where the server does not tell."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return details.cached_tokens if details else None


_EVENTS = msgspec.json.Decoder(Event)
MARK = b"data:"
DONE = b"[DONE]"


def events(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole stream.

    Raises:
        BrokenStreamError: for an error among them, what is no event, and a stream that broke off.
    """
    for line in body.splitlines():
        if not line.startswith(MARK):
            continue
        data = line[len(MARK) :].strip()
        if data == DONE:
            return
        try:
            event = _EVENTS.decode(data)
        except msgspec.MsgspecError as error:
            raise BrokenStreamError(f"an event is not as expected: {error}") from error
        if event.error is not None:
            raise BrokenStreamError(error_text(event.error))
        yield event
    raise BrokenStreamError("the answer broke off")


def error_text(error: Any) -> str:
    """Return what an OpenAI error object, or what stands in its place, says."""
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
