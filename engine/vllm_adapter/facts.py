"""Gives vLLM's scheduler the facts of each call, whichever endpoint the call came by.

vLLM hands a request's `SamplingParams.extra_args` to its scheduler. Not every endpoint fills them from the body, so
they are filled where all endpoints meet, in `AsyncLLM.generate`. Whose call it is that asks says the context of the
task that serves it: each call has a task of its own.
"""

from contextvars import ContextVar
from typing import Any

from autellix.engine.executor import EngineCall
from autellix.engine.vllm_adapter.options import ARG_PREFIX, to_xargs

_CALL: ContextVar[EngineCall] = ContextVar("autellix_call")
_REFUSED: ContextVar[list[Exception]] = ContextVar("autellix_refused")


def serve(call: EngineCall) -> list[Exception]:
    """Note that the running task, with those that it begins, serves a call from now on.

    Returns:
        Where it will stand why the engine did not take the call in: the streams of some endpoints lose that.
    """
    refused: list[Exception] = []
    _CALL.set(call)
    _REFUSED.set(refused)
    return refused


def give_facts(engine: Any) -> None:
    """Make an `AsyncLLM` give the facts of calls to its scheduler, and note what it refuses.

    A client cannot set the facts itself.
    """
    generate, add_request = engine.generate, engine.add_request

    def generate_with_facts(prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        if call := _CALL.get(None):
            sampling_params.extra_args = _with_facts(sampling_params.extra_args, call)
        return generate(prompt, sampling_params, *args, **kwargs)

    async def add_request_and_note(*args: Any, **kwargs: Any) -> Any:
        try:
            return await add_request(*args, **kwargs)
        except Exception as error:
            if (refused := _REFUSED.get(None)) is not None:
                refused.append(error)
            raise

    engine.generate = generate_with_facts
    engine.add_request = add_request_and_note


def _with_facts(given: dict[str, Any] | None, call: EngineCall) -> dict[str, Any]:
    own = {key: value for key, value in (given or {}).items() if not key.startswith(ARG_PREFIX)}
    return {**own, **to_xargs(call)}
