"""An engine without a model, for load tests of the pipeline: it answers each call with as many words as it asks for.

A step lasts `step_ms` (0: a turn of the event loop) and brings one token. It has no slots and no cache; nothing waits
in it. As vLLM it takes prompts as token ids, gives the answer's ids where `return_token_ids` asks for them, and ends a
stream with its usage where `stream_options` does.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from autellix.engine.executor import (
    Account,
    Answer,
    EngineCall,
    EngineInfo,
    Load,
    Notice,
    OnTurn,
    Output,
    Piece,
    Refusal,
    Started,
)
from autellix.schemas.base import ErrorBody
from autellix.schemas.ids import CallId

APIS = ("/v1/chat/completions", "/v1/completions")
WORD = "ok "
WORD_ID = 333
"""The token id of the word."""
MAX_TOKENS = 16


class SimulatedExecutor:
    """An `Executor` that makes its answers up."""

    def __init__(self, info: EngineInfo, *, step_ms: float = 0.0) -> None:
        self.info = info
        self.on_turn: OnTurn = lambda _turn: None
        self._step_ms = step_ms
        self._running: set[CallId] = set()
        self._accounts: dict[CallId, Account] = {}
        self._steps = 0

    async def run(self, call: EngineCall) -> AsyncGenerator[Output, None]:
        """Yield the call's pieces, then one answer; closing the iterator early aborts the call."""
        if call.api not in APIS:
            text = f"The simulated engine does not know {call.api}."
            yield Refusal(404, ErrorBody(message=text, type="not_found_error", code="unknown_api"))
            return
        began, done = time.monotonic(), 0
        words = Words(call, self.info.max_model_len)
        self._running.add(call.call_id)
        self.on_turn(Started(call.call_id, 0.0))
        try:
            for done in range(1, words.tokens + 1):
                await self._step()
                if words.streamed:
                    yield Piece([words.chunk(last=done == words.tokens)])
            if words.counted:
                yield Piece([words.count()])
            yield Answer(None if words.streamed else words.response())
        finally:
            self._running.discard(call.call_id)
            service_ms = (time.monotonic() - began) * 1000
            self._accounts[call.call_id] = Account(
                service_ms=service_ms, queues=(0,), prompt_tokens=words.prompt_tokens, output_tokens=done
            )

    async def account(self, call_id: CallId) -> Account:
        """Return what was counted for a call whose `run` is over."""
        return self._accounts.pop(call_id, Account())

    def series(self) -> str:
        """Return nothing: no series is kept."""
        return ""

    def tell(self, notice: Notice) -> None:
        """Pass over it: nothing waits here, so nothing is ordered, and nothing is kept of a program."""

    def load(self) -> Load:
        """Return how busy it is."""
        return Load(running=len(self._running), steps=self._steps)

    async def _step(self) -> None:
        self._steps += 1
        await asyncio.sleep(self._step_ms / 1000)


class Words:
    """The made-up answer to one call, in the shape of its API."""

    def __init__(self, call: EngineCall, tokens_max: int) -> None:
        body = msgspec.json.decode(call.body)
        self._call = call
        self._model = body["model"]
        self._chat = call.api == "/v1/chat/completions"
        self.streamed = call.stream
        self.counted = self.streamed and bool((body.get("stream_options") or {}).get("include_usage"))
        """Whether the stream ends with its usage."""
        self._ids = {"token_ids": [WORD_ID]} if body.get("return_token_ids") else {}
        wanted: int = body.get("max_completion_tokens") or body.get("max_tokens") or MAX_TOKENS
        self.tokens = min(wanted, tokens_max)
        self.prompt_tokens = _tokens_of(body.get("messages") or body.get("prompt") or "")

    def chunk(self, *, last: bool) -> dict[str, Any]:
        """Return one token's chunk."""
        text = {"delta": {"role": "assistant", "content": WORD}} if self._chat else {"text": WORD}
        choice = {"index": 0, **text, **self._ids, "finish_reason": "length" if last else None}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def count(self) -> dict[str, Any]:
        """Return the chunk that has the usage and no text."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage()}

    def response(self) -> dict[str, Any]:
        """Return the whole answer."""
        words = WORD * self.tokens
        text = {"message": {"role": "assistant", "content": words}} if self._chat else {"text": words}
        ids = {name: one * self.tokens for name, one in self._ids.items()}
        choice = {"index": 0, **text, **ids, "finish_reason": "length"}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self._call.call_id}",
            "object": kind if self._chat else "text_completion",
            "created": int(time.time()),
            "model": self._model,
        }


def _tokens_of(prompt: Any) -> int:
    """Return the length of a prompt: of ids their number, else four bytes a token, a usual mean."""
    if isinstance(prompt, list) and isinstance(prompt[0], int):
        return len(prompt)
    return max(1, len(str(prompt)) // 4)
