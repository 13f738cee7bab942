"""An engine without a model, for load tests of the pipeline: it answers each call with as many words as it asks for.

A step lasts `step_ms` (0: it answers at once) and brings one token. It has no slots and no cache; nothing waits in it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from autellix.engine.executor import Account, Answer, EngineCall, EngineInfo, Load, OnStarted, Output, Piece
from autellix.schemas.ids import CallId

WORD = "ok "
MAX_TOKENS = 16


class SimulatedExecutor:
    """An `Executor` that makes its answers up."""

    def __init__(self, info: EngineInfo, *, step_ms: float = 0.0) -> None:
        self.info = info
        self.on_started: OnStarted = lambda _call_id, _wait_ms: None
        self._step_ms = step_ms
        self._running: set[CallId] = set()
        self._accounts: dict[CallId, Account] = {}
        self._steps = 0

    async def run(self, call: EngineCall) -> AsyncGenerator[Output, None]:
        """Yield the call's pieces, then one answer; closing the iterator early aborts the call."""
        began, done = time.monotonic(), 0
        tokens = call.body.get("max_completion_tokens") or call.body.get("max_tokens") or MAX_TOKENS
        self._running.add(call.call_id)
        self.on_started(call.call_id, 0.0)
        try:
            for done in range(1, tokens + 1):  # noqa: B007 - counts what an abort leaves
                await self._step()
                if call.body.get("stream"):
                    yield Piece([_chunk(call, WORD)])
            yield Answer(None if call.body.get("stream") else _response(call, WORD * tokens, tokens))
        finally:
            self._running.discard(call.call_id)
            service_ms = (time.monotonic() - began) * 1000
            self._accounts[call.call_id] = Account(
                service_ms=service_ms, queues=(0,), prompt_tokens=_prompt_tokens(call), output_tokens=done
            )

    async def account(self, call_id: CallId) -> Account:
        """Return what was counted for a call whose `run` is over."""
        return self._accounts.pop(call_id, Account())

    def load(self) -> Load:
        """Return how busy it is."""
        return Load(running=len(self._running), steps=self._steps)

    async def _step(self) -> None:
        self._steps += 1
        if self._step_ms:
            await asyncio.sleep(self._step_ms / 1000)


def _prompt_tokens(call: EngineCall) -> int:
    """Return a token for each four bytes: a usual mean."""
    return max(1, len(str(call.body.get("messages") or call.body.get("prompt") or "")) // 4)


def _head(call: EngineCall, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{call.call_id}", "object": kind, "created": int(time.time()), "model": call.body["model"]}


def _chunk(call: EngineCall, text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    return {**_head(call, "chat.completion.chunk"), "choices": [choice]}


def _response(call: EngineCall, text: str, tokens: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    prompt = _prompt_tokens(call)
    return {
        **_head(call, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
    }
