"""Which program an HTTP request belongs to, and which thread of it: by what agents, routers and clients send as it is.

The first rule that finds a program decides, and its source goes into the program's record. A program that was started
is named by its own id; all others by a name of the client's choice, and the first call with a name begins its program.
Without any name a request is a program of its own.

A sub-agent with a session of its own counts as its root: who waits is the root's user, so fairness is the root's, and
the sub-agent is a thread of it, whose last call is not the root's. What only says which cache is near
(`prompt_cache_key`, `user`) names no program: many agents share one.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from autellix.schemas import tenants
from autellix.schemas.identity import LINEAGE, NOBODY, RULES, STARTED, URL, program_of_response, value_at
from autellix.schemas.ids import CallId, ProgramId, ThreadId
from autellix.schemas.openai import invalid

YES: Final = ("true", "True", "1")
ID_BYTES_MAX: Final = 256
ROOTS_MAX: Final = 10_000
"""Sub-agents whose roots are remembered, the quiet ones go first."""

THREAD_HEADER: Final = "x-autellix-thread-id"
PARENTS_HEADER: Final = "x-autellix-parent-ids"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Identity(NamedTuple):
    """Whose a request is."""

    source: str
    program_id: ProgramId | None = None
    """A program that was started."""
    session: str | None = None
    """A name of the client's own choice."""
    thread_id: ThreadId | None = None
    final: bool = False
    """This is the program's last call."""


class Identities:
    """Finds out whose requests are; it remembers which sub-agents belong to which roots."""

    def __init__(self) -> None:
        self._roots: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """By tenant, source and session."""

    def of(
        self,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        *,
        within: str | None = None,
        tenant: str = tenants.NOBODY,
    ) -> Identity:
        """Return whose a request is.

        Args:
            headers: Names in lower case.
            body: Its fields.
            within: The program that its URL names; sessions that it names itself are threads of that one.
            tenant: Whose it is: what one tenant calls its sessions means nothing to another.

        Raises:
            InvalidRequestError: 400 for an id that is too long, no text, or holds control characters.
        """
        thread = header_id(headers, THREAD_HEADER)
        for rule in RULES:
            name, parent = (_first(fields, headers, body) for fields in (rule.program, rule.parent))
            leaf = name if parent or within else None
            if rule.source == LINEAGE:
                name, leaf = program_of_response(name or ""), None
            if name or parent:
                thread = thread or _first(rule.thread, headers, body) or leaf
                last = not parent and _first(rule.final, headers, body) in YES
                root = self._root((tenant, rule.source), name, parent) if parent else name
                found = _identity(rule.source, root, thread)._replace(final=last)
                break
        else:
            found = _identity(NOBODY, None, thread)
        if within:
            return found._replace(source=URL, program_id=None, session=_checked(within, "program"), final=False)
        return found

    def _root(self, among: tuple[str, str], name: str | None, parent: str) -> str:
        """Return who began the session that began this one, and so on."""
        root = self._roots.get((*among, parent), parent)
        if name and name != root:
            self._roots[*among, name] = root
            self._roots.move_to_end((*among, name))
            if len(self._roots) > ROOTS_MAX:
                self._roots.popitem(last=False)
        return root


def _identity(source: str, root: str | None, thread: str | None) -> Identity:
    thread_id = ThreadId(thread) if thread else None
    if source == STARTED:
        return Identity(source, program_id=ProgramId(root or ""), thread_id=thread_id)
    return Identity(source, session=root, thread_id=thread_id)


def parents_of(headers: Mapping[str, str]) -> tuple[CallId, ...]:
    """Return the calls whose answers a request needed, as its header lists them, with commas between."""
    names = (_checked(part, PARENTS_HEADER) for part in headers.get(PARENTS_HEADER, "").split(","))
    return tuple(CallId(name) for name in names if name)


def header_id(headers: Mapping[str, str], name: str) -> str | None:
    """Return the id in a header, None for none or a blank one.

    Raises:
        InvalidRequestError: 400 for one that is unusable.
    """
    value = headers.get(name)
    try:
        return _checked(value and value.encode("latin-1").decode(), name)
    except UnicodeDecodeError:
        raise invalid(f"{name} is not UTF-8.", param=name) from None


def _first(fields: Iterable[str], headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """Return the first id in `fields`."""
    for field in fields:
        found = _in_body(body, field[1:]) if field.startswith(".") else header_id(headers, field)
        if found:
            return found
    return None


def _in_body(body: Mapping[str, Any], path: str) -> str | None:
    """Return the id at a path; a name on the way that holds no fields holds no id, and neither does an object."""
    value = value_at(body, path)
    return None if isinstance(value, Mapping) else _checked(value, path)


def _checked(value: object, name: str) -> str | None:
    """Return a client's id, None for a blank one; it is bounded and printable since it meets logs and tables."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string.", param=name)
    if len(value.encode()) > ID_BYTES_MAX:
        raise invalid(f"{name} is longer than {ID_BYTES_MAX} bytes.", param=name)
    if _CONTROL.search(value):
        raise invalid(f"{name} holds control characters.", param=name)
    return value.strip() or None
