"""Gives vLLM's scheduler the facts of each call, whichever endpoint the call came by.

vLLM hands a request's `SamplingParams.extra_args` to its scheduler. Not every endpoint fills them from the body, so
they are filled where all endpoints meet, in `AsyncLLM.generate`. Whose call it is that asks says the context in which
vLLM's application serves it.
"""

from contextvars import Context, ContextVar, copy_context
from typing import Any

from autellix.engine.executor import EngineCall
from autellix.engine.vllm_adapter.options import ARG_PREFIX, to_xargs

_CALL: ContextVar[EngineCall] = ContextVar("autellix_call")


def context_of(call: EngineCall) -> Context:
    """Return the context to serve a call in."""
    context = copy_context()
    context.run(_CALL.set, call)
    return context


def give_facts(engine: Any) -> None:
    """Make an `AsyncLLM` give the facts of calls to its scheduler; a client cannot set them itself."""
    generate = engine.generate

    def generate_with_facts(prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        if call := _CALL.get(None):
            sampling_params.extra_args = _with_facts(sampling_params.extra_args, call)
        return generate(prompt, sampling_params, *args, **kwargs)

    engine.generate = generate_with_facts


def _with_facts(given: dict[str, Any] | None, call: EngineCall) -> dict[str, Any]:
    own = {key: value for key, value in (given or {}).items() if not key.startswith(ARG_PREFIX)}
    return {**own, **to_xargs(call)}
