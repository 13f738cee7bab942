"""vLLM's Python interface over all engines there are (paper section 5): `generate` as an iterator over outputs.

    async with AsyncMultiLLMEngine() as engine:
        async for output in engine.generate("The sea is", {"max_tokens": 16}, request_id="1"):
            print(output.outputs[0].text)

A loop over `AsyncLLM.generate` stays as it is. What is behind is a program: its requests may run on any engine, are
ordered with all other programs, and find the caches of those before. Log probabilities are not offered.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

import msgspec

from autellix.client.call import LiveCall
from autellix.client.errors import CallFailedError
from autellix.client.program import Program

COMPLETIONS = "/v1/completions"

PARAMETERS = frozenset(
    {
        *("n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
        *("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens"),
    }
)
"""What of vLLM's `SamplingParams` a request may say."""
NOT_OFFERED = (
    *("logprobs", "prompt_logprobs", "structured_outputs", "bad_words", "allowed_token_ids"),
    *("logits_processors", "extra_args"),
)
"""What changes an answer and cannot be passed on."""
CUMULATIVE, DELTA, FINAL_ONLY = 0, 1, 2
"""Values of vLLM's `RequestOutputKind`."""
CANCELLED = 499


@dataclass
class CompletionOutput:
    """One of the n answers, as far as it has come."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None


@dataclass
class RequestOutput:
    """A request, as far as it has come; the fields are vLLM's."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    outputs: list[CompletionOutput]
    finished: bool = False


class AsyncMultiLLMEngine:
    """All engines as one, `async with`.

    Args:
        program: The entered program whose calls the requests are; absent: one for as long as the engine is entered.
        model: Of a program of its own, as in `Program`.
        nats_url: As well.
    """

    def __init__(
        self, program: Program | None = None, *, model: str | None = None, nats_url: str | None = None
    ) -> None:
        self._given = program
        self._own = Program("AsyncMultiLLMEngine", model=model, nats_url=nats_url)
        self._life = AsyncExitStack()
        self._calls: dict[str, LiveCall | None] = {}
        """By request; None until the call is accepted."""
        self._aborted: set[str] = set()

    @property
    def program(self) -> Program:
        """The program that the requests are calls of."""
        return self._given or self._own

    async def __aenter__(self) -> Self:
        """Begin.

        Raises:
            AutellixError: as `Program`.
        """
        if self._given is None:
            await self._life.enter_async_context(self._own)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End; requests that still run are aborted."""
        await self.abort(list(self._calls))
        await self._life.aclose()

    async def generate(
        self, prompt: str | Sequence[int] | Mapping[str, Any], sampling_params: Any, request_id: str
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the request's outputs, each with all that has come so far; the last is finished.

        Args:
            prompt: A text, token ids, or vLLM's `{"prompt": ...}` or `{"prompt_token_ids": ...}`.
            sampling_params: vLLM's `SamplingParams`, or a mapping of the same names; their `output_kind` may be
                `CUMULATIVE` or `FINAL_ONLY`.
            request_id: Unique among the requests that run.

        Raises:
            CallFailedError: when the request is refused or fails.
            ValueError: when one of that id runs, the prompt is none, or something is asked for that is not offered.
        """
        if request_id in self._calls:
            raise ValueError(f"a request {request_id!r} runs already")
        text, (parameters, kind) = _prompt(prompt), _parameters(sampling_params)
        asked = {"prompt": text, "stream": True, "return_token_ids": True}  # no password  # nosec B105
        body = {"model": self.program.model, **parameters, **asked}
        so_far = RequestOutput(
            request_id, text if isinstance(text, str) else None, text if isinstance(text, list) else None, []
        )
        self._calls[request_id] = None
        try:
            async with self.program.submitted(body, api=COMPLETIONS) as call:
                self._calls[request_id] = call
                if request_id in self._aborted:
                    await call.abort()
                async for chunk in call.chunks():
                    for part in chunk.data:
                        _add(so_far, part)
                    if kind == CUMULATIVE:
                        yield deepcopy(so_far)
        except CallFailedError as error:
            if error.status != CANCELLED or request_id not in self._aborted:
                raise
            for output in so_far.outputs:
                output.finish_reason = output.finish_reason or "abort"
        finally:
            del self._calls[request_id]
            self._aborted.discard(request_id)
        so_far.finished = True
        yield so_far

    async def abort(self, request_id: str | Sequence[str]) -> None:
        """Abort requests: they end with what they have, as vLLM's do; one that does not run is no error."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            if name in self._calls:
                self._aborted.add(name)
                if call := self._calls[name]:
                    await call.abort()


def _prompt(prompt: str | Sequence[int] | Mapping[str, Any]) -> str | list[int]:
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt_token_ids") or prompt.get("prompt") or ""
    if not prompt:
        raise ValueError("a prompt is a text, token ids, or a mapping with one of them")
    return prompt if isinstance(prompt, str) else list(prompt)


def _parameters(given: Any) -> tuple[dict[str, Any], int]:
    """Return the fields of a request that sampling parameters mean, and what kind of outputs is wanted.

    Raises:
        ValueError: for what is not offered.
    """
    if isinstance(given, Mapping):
        known = dict(given)
    elif isinstance(given, msgspec.Struct):
        known = {name: getattr(given, name) for name in given.__struct_fields__}
    elif is_dataclass(given):
        known = {each.name: getattr(given, each.name) for each in fields(given)}
    else:
        known = vars(given)
    kind = known.get("output_kind") or CUMULATIVE
    kind = int(getattr(kind, "value", kind))
    asked = [name for name in NOT_OFFERED if known.get(name) not in (None, [], {})]
    asked += ["output_kind"] * (kind == DELTA)
    if isinstance(given, Mapping):
        asked += [name for name in given if name not in PARAMETERS | {"output_kind"} | set(asked)]
    if asked:
        raise ValueError(f"not offered here: {', '.join(asked)}")
    said = {name: value for name, value in known.items() if name in PARAMETERS and value not in (None, [], {})}
    return ({"max_tokens": None, **said} if "max_tokens" in known else said), kind


def _add(so_far: RequestOutput, part: Mapping[str, Any]) -> None:
    """Add a chunk of the stream to what has come."""
    for choice in part.get("choices", ()):
        while len(so_far.outputs) <= choice["index"]:
            so_far.outputs.append(CompletionOutput(len(so_far.outputs)))
        output = so_far.outputs[choice["index"]]
        output.text += choice.get("text") or ""
        output.token_ids += choice.get("token_ids") or ()
        output.finish_reason = choice.get("finish_reason") or output.finish_reason
