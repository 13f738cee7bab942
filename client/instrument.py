"""Makes the calls of `openai` and `anthropic` clients, and of any other on httpx, calls of the program they run in.

    client = instrument(AsyncOpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none"))

Nothing of those packages is replaced: the httpx client inside gets two hooks of httpx's own. One names program, thread
and parents in the headers of a request, the other notes the call's id from those of the answer. A request that names
its program itself is left alone, and so is one to another server. Who opens no `Program` has one for the whole process:
it begins with the first call and ends with the process.
"""

import inspect
from typing import Any, TypeVar

import msgspec

from autellix.client.runs import current_run
from autellix.schemas.identity import fields_of, value_at
from autellix.schemas.ids import CallId

PARENTS_MAX = 256
"""Parents that a header lists; of more, the last count."""
HEADERS, PATHS = fields_of("header"), fields_of("body")
NAMES = frozenset(path.partition(".")[0].encode() for path in PATHS)
_KEY = "autellix"

T = TypeVar("T")


def instrument(client: T) -> T:
    """Return the client, whose calls are from now on calls of the program they are made in; twice is as once.

    Args:
        client: An `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic`, `httpx.Client` or `httpx.AsyncClient`, with
            the gateway as its base URL.

    Raises:
        TypeError: when there is no httpx client in it.
        ValueError: when it has no base URL.
    """
    http: Any = client if hasattr(client, "event_hooks") else getattr(client, "_client", None)
    if not hasattr(http, "event_hooks"):
        raise TypeError(f"{type(client).__name__} has no httpx client inside")
    base = str(getattr(client, "base_url", "") or http.base_url).rstrip("/")
    if not base:
        raise ValueError("the client has no base URL: where is the gateway?")
    hooks = http.event_hooks
    if not any(isinstance(getattr(hook, "__self__", None), _Hooks) for hook in hooks["request"]):
        ours = _Hooks(base)
        waits = inspect.iscoroutinefunction(http.send)
        before, after = (ours.annotate_async, ours.note_async) if waits else (ours.annotate, ours.note)
        http.event_hooks = {"request": [*hooks["request"], before], "response": [*hooks["response"], after]}
    return client


class _Hooks:
    """What httpx calls before a request and after its answer's head.

    Args:
        base: The base URL of the client.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._gateway = base.removesuffix("/v1")

    def annotate(self, request: Any) -> None:
        """Name the program of a request."""
        if request.method != "POST" or not str(request.url).startswith(self._base) or _names_itself(request):
            return
        run = current_run(self._gateway)
        thread = run.threads.current()
        request.headers.update(run.headers)
        request.headers.setdefault("X-Autellix-Thread-Id", thread.id)
        if parents := thread.parents()[-PARENTS_MAX:]:
            request.headers.setdefault("X-Autellix-Parent-Ids", ",".join(parents))
        request.extensions = {**request.extensions, _KEY: (run, thread)}

    def note(self, response: Any) -> None:
        """Note which call a request has become: the next one of its thread comes after it."""
        call_id, made = response.headers.get("x-autellix-call-id"), response.request.extensions.get(_KEY)
        if made:
            run, thread = made
            thread.is_calling = False
            if call_id:
                run.threads.made(thread, CallId(call_id))

    async def annotate_async(self, request: Any) -> None:
        """Do as `annotate`."""
        self.annotate(request)

    async def note_async(self, response: Any) -> None:
        """Do as `note`."""
        self.note(response)


def _names_itself(request: Any) -> bool:
    """Tell whether a request says which program it belongs to, in any way that the gateway understands."""
    if any(name in request.headers for name in HEADERS):
        return True
    body = getattr(request, "_content", b"")  # httpx has no name for a body that may be a stream
    if not any(b'"%b"' % name in body for name in NAMES):
        return False
    try:
        fields = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    named = (value_at(fields, path) for path in PATHS)
    return any(isinstance(value, str) and value.strip() for value in named)
