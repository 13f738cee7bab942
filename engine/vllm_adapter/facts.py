"""Gives vLLM's scheduler the facts of each call, whichever endpoint the call came by.

vLLM hands a request's `SamplingParams.extra_args` to its scheduler. Not every endpoint fills them from the body, so
they are filled where all endpoints meet, in `AsyncLLM.generate`. Whose call it is that asks says the context of the
task that serves it: each call has a task of its own.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from autellix.engine.executor import EngineCall
from autellix.engine.vllm_adapter.options import ARG_PREFIX, to_xargs


@dataclass
class Served:
    """A call that is served."""

    call: EngineCall
    was_asked: bool = False
    """Whether the engine was asked to generate anything for it."""


_SERVED: ContextVar[Served] = ContextVar("autellix_served")


def serve(call: EngineCall) -> Served:
    """Note that the running task, with those that it begins, serves a call from now on."""
    served = Served(call)
    _SERVED.set(served)
    return served


def give_facts(engine: Any) -> None:
    """Make an `AsyncLLM` give the facts of calls to its scheduler; a client cannot set them itself."""
    generate = engine.generate

    def generate_with_facts(prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        if served := _SERVED.get(None):
            served.was_asked = True
            sampling_params.extra_args = _with_facts(sampling_params.extra_args, served.call)
        return generate(prompt, sampling_params, *args, **kwargs)

    engine.generate = generate_with_facts


def _with_facts(given: dict[str, Any] | None, call: EngineCall) -> dict[str, Any]:
    own = {key: value for key, value in (given or {}).items() if not key.startswith(ARG_PREFIX)}
    return {**own, **to_xargs(call)}
