"""How clients name the program that a request belongs to, and its thread: by the conventions of the field."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from autellix.schemas.ids import ProgramId


class Rule(NamedTuple):
    """Where one kind of client names its programs; a field is a header, or a path in the body if it starts with `.`."""

    source: str
    program: tuple[str, ...]
    thread: tuple[str, ...] = ()
    parent: tuple[str, ...] = ()
    """The session that began this one."""
    final: tuple[str, ...] = ()
    """What says that this is the session's last call."""


RULES: Final = (
    Rule("autellix", ("x-autellix-program-id",)),
    Rule("thunderagent", (".program_id", ".metadata.program_id"), (".thread_id",)),
    Rule("session", ("x-session-id", ".session_id", ".vllm_xargs.session_id")),
    Rule(
        "dynamo",
        ("x-dynamo-session-id",),
        parent=("x-dynamo-parent-session-id",),
        final=("x-dynamo-session-final",),
    ),
    Rule("claude-code", ("x-claude-code-session-id",), ("x-claude-code-agent-id",)),
    Rule("codex", ("session-id", "session_id"), ("thread-id",)),
    Rule("opencode", ("x-session-affinity",), parent=("x-parent-session-id",)),
    Rule("llm-d", ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")),
    Rule("aibrix", ("x-aibrix-session-key",)),
    Rule("smg", ("x-smg-routing-key",)),
    Rule("litellm", ("x-litellm-session-id",)),
    Rule("agentic-context", (".vllm_xargs.agentic_context.program_id",)),
    Rule("conversation", (".conversation", ".conversation.id")),
    Rule("response", (".previous_response_id",)),
)
"""The most explicit first: what a client says to us, then sessions, agents by their habits, other routers' keys."""

LINEAGE: Final = RULES[-1].source
"""The rule whose programs are in the ids of their responses."""
STARTED: Final = RULES[0].source
"""The rule whose programs were started, and are known by the ids that we gave them."""
URL: Final = "url"
"""The source of a program that the request's URL names."""
BEGUN: Final = "started"
"""The source of a program that began by its own word."""
NOBODY: Final = "none"
"""The source of a program that nobody named."""

SOURCES: Final = frozenset({*(rule.source for rule in RULES), URL, BEGUN, NOBODY})
"""What can tell that calls are of one program."""


def response_id(program_id: ProgramId, unique: str) -> str:
    """Return an id for a response of a program, so that who goes on from it is known to be of that program."""
    return f"resp_{program_id}_{unique}"


def program_of_response(text: str) -> ProgramId | None:
    """Return the program that an id made by `response_id` names, None for the id of another server."""
    program_id = text.removeprefix("resp_").rpartition("_")[0]
    return ProgramId(program_id) if program_id and text.startswith("resp_") else None


def value_at(body: Any, path: str) -> Any:
    """Return what a body has at a path, None if there is nothing."""
    for name in path.split("."):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body


def fields_of(kind: str) -> tuple[str, ...]:
    """Return every field that names a program: the headers (`header`), or the paths in a body (`body`)."""
    fields = [field for rule in RULES for field in (*rule.program, *rule.parent)]
    if kind == "header":
        return tuple(field for field in fields if not field.startswith("."))
    return tuple(field[1:] for field in fields if field.startswith("."))
