"""Makes the calls of `openai` and `anthropic` clients, and of any other on httpx, calls of the program they run in.

    client = instrument(AsyncOpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none"))

Nothing of those packages is replaced: the httpx client inside gets two hooks of httpx's own. One names program, thread
and parents in the headers of a request, the other notes the call's id from those of the answer. Who opens no `Program`
has one for the whole process: it begins with the first call and ends with the process.
"""

import inspect
from typing import Any, TypeVar

from autellix.client.runs import current_run
from autellix.schemas.ids import CallId

PARENTS_MAX = 256
"""Parents that a header lists; of more, the last count."""
NAMES = ("x-autellix-program-id", "x-session-id")
"""Headers by which a client names a program itself."""
_KEY = "autellix"

T = TypeVar("T")


def instrument(client: T) -> T:
    """Return the client, whose calls are from now on calls of the program they are made in; twice is as once.

    Args:
        client: An `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic`, `httpx.Client` or `httpx.AsyncClient`.

    Raises:
        TypeError: when there is no httpx client in it.
    """
    http: Any = client if hasattr(client, "event_hooks") else getattr(client, "_client", None)
    if not hasattr(http, "event_hooks"):
        raise TypeError(f"{type(client).__name__} has no httpx client inside")
    waits = inspect.iscoroutinefunction(http.send)
    before, after = (_annotate_async, _note_async) if waits else (_annotate, _note)
    hooks = http.event_hooks
    if before not in hooks["request"]:
        http.event_hooks = {"request": [*hooks["request"], before], "response": [*hooks["response"], after]}
    return client


def _annotate(request: Any) -> None:
    """Name the program of a request, unless it names one itself."""
    if request.method != "POST":
        return
    run = current_run(f"{request.url.scheme}://{request.url.netloc.decode('ascii')}")
    thread = run.threads.current()
    if not any(name in request.headers for name in NAMES):
        request.headers.update(run.headers)
    request.headers.setdefault("X-Autellix-Thread-Id", thread.id)
    if parents := thread.parents()[-PARENTS_MAX:]:
        request.headers.setdefault("X-Autellix-Parent-Ids", ",".join(parents))
    request.extensions = {**request.extensions, _KEY: (run, thread)}


def _note(response: Any) -> None:
    """Note which call a request has become: the next one of its thread comes after it."""
    call_id, made = response.headers.get("x-autellix-call-id"), response.request.extensions.get(_KEY)
    if call_id and made:
        run, thread = made
        run.threads.made(thread, CallId(call_id))


async def _annotate_async(request: Any) -> None:
    _annotate(request)


async def _note_async(response: Any) -> None:
    _note(response)
