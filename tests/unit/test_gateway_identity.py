"""Whose a request is: agents and routers as they come, by what they send."""

from __future__ import annotations

from typing import Any

import pytest

from autellix.schemas.identity import RULES, SOURCES, fields_of, response_id
from autellix.schemas.ids import ProgramId, ThreadId
from autellix.schemas.openai import InvalidRequestError
from autellix.services.gateway import identity as module
from autellix.services.gateway.identity import ID_BYTES_MAX, Identities, Identity, parents_of

CLAUDE = {"x-claude-code-session-id": "7c7d", "user-agent": "claude-cli/2.1"}
CODEX = {"session-id": "0199", "thread-id": "019a", "originator": "codex_cli_rs"}


def who(source: str, *, program: str | None = None, session: str | None = None, thread: str | None = None) -> Identity:
    """Return an identity."""
    return Identity(
        source,
        program_id=ProgramId(program) if program else None,
        session=session,
        thread_id=ThreadId(thread) if thread else None,
    )


def of(headers: dict[str, str] | None = None, **body: Any) -> Identity:
    """Return whose one request is."""
    return Identities().of(headers or {}, body)


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"x-autellix-program-id": "p1"}, {}, who("autellix", program="p1")),
        ({}, {"program_id": "t1"}, who("thunderagent", session="t1")),
        ({}, {"program_id": "t1", "thread_id": "a"}, who("thunderagent", session="t1", thread="a")),
        ({}, {"metadata": {"program_id": "t1"}}, who("thunderagent", session="t1")),
        ({"x-session-id": "s1"}, {}, who("session", session="s1")),
        ({}, {"session_id": "s1"}, who("session", session="s1")),
        ({}, {"vllm_xargs": {"session_id": "s1"}}, who("session", session="s1")),
        ({"x-dynamo-session-id": "d1"}, {}, who("dynamo", session="d1")),
        (CLAUDE, {}, who("claude-code", session="7c7d")),
        ({**CLAUDE, "x-claude-code-agent-id": "a9"}, {}, who("claude-code", session="7c7d", thread="a9")),
        (CODEX, {}, who("codex", session="0199", thread="019a")),
        ({"session_id": "0199"}, {}, who("codex", session="0199")),
        ({"x-session-affinity": "o1"}, {}, who("opencode", session="o1")),
        ({"x-llm-d-inference-fairness-id": "f1"}, {}, who("llm-d", session="f1")),
        ({"x-gateway-inference-fairness-id": "f1"}, {}, who("llm-d", session="f1")),
        ({"x-aibrix-session-key": "k"}, {}, who("aibrix", session="k")),
        ({"x-smg-routing-key": "k"}, {}, who("smg", session="k")),
        ({"x-litellm-session-id": "l"}, {}, who("litellm", session="l")),
        (
            {},
            {"vllm_xargs": {"agentic_context": {"program_id": "c"}}},
            who("agentic-context", session="c"),
        ),
        ({}, {"conversation": "conv_1"}, who("conversation", session="conv_1")),
        ({}, {"conversation": {"id": "conv_1"}}, who("conversation", session="conv_1")),
        ({}, {"previous_response_id": response_id(ProgramId("p"), "9")}, who("response", session="p")),
    ],
)
def test_rules(headers: dict[str, str], body: dict[str, Any], expected: Identity) -> None:
    """Each convention of the field is understood as it comes."""
    assert of(headers, **body) == expected


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt_cache_key": "shared", "user": "u", "safety_identifier": "u"},
        {"metadata": {}},
        {"metadata": None},
        {"previous_response_id": "resp_68a1b2"},
        {"previous_response_id": "resp_"},
        {"previous_response_id": None},
    ],
)
def test_nobody(body: dict[str, Any]) -> None:
    """What names no program, and what many agents share, makes a program of its own."""
    assert of(**body) == who("none")


@pytest.mark.parametrize(
    ("headers", "final"),
    [
        ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "true"}, True),
        ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "1"}, True),
        ({"x-dynamo-session-id": "s", "x-dynamo-session-final": "false"}, False),
        ({"x-dynamo-session-id": "s"}, False),
        ({"x-dynamo-session-id": "s", "x-dynamo-parent-session-id": "r", "x-dynamo-session-final": "true"}, False),
        ({"x-session-id": "s", "x-dynamo-session-final": "true"}, False),
    ],
)
def test_last_call(headers: dict[str, str], *, final: bool) -> None:
    """A session says which call is its last one; the end of a sub-agent's is not its root's."""
    assert of(headers).final is final


def test_last_call_of_who_is_within_another() -> None:
    """A program that a URL names is not over with a session inside it."""
    headers = {"x-dynamo-session-id": "s", "x-dynamo-session-final": "true"}

    assert Identities().of(headers, {}, within="p").final is False


def test_response_within_another() -> None:
    """Where a URL names the program, the response that a call goes on from makes no thread."""
    previous = response_id(ProgramId("p"), "9")

    assert Identities().of({}, {"previous_response_id": previous}, within="q").thread_id is None


def test_sources() -> None:
    """Every convention has a source of its own, and headers and fields of bodies are told apart."""
    sources = [rule.source for rule in RULES]

    assert len(set(sources)) == len(sources) == len(SOURCES) - 3
    assert {"x-session-id", "session-id", "x-parent-session-id"} <= set(fields_of("header"))
    assert {"program_id", "metadata.program_id", "conversation"} <= set(fields_of("body"))


def test_rank() -> None:
    """The more explicit word counts: ours before sessions, sessions before agents' habits, those before routers'."""
    headers = {"x-litellm-session-id": "l", **CLAUDE, "x-session-id": "s", "x-autellix-program-id": "p"}
    found = []
    while headers:
        found.append(of(headers).source)
        headers = dict(list(headers.items())[:-1])

    assert list(dict.fromkeys(found)) == ["autellix", "session", "claude-code", "litellm"]


def test_blank_is_none() -> None:
    """A blank id names nobody, and the next rule decides."""
    assert of({"x-autellix-program-id": " ", "x-session-id": "s"}) == who("session", session="s")


@pytest.mark.parametrize(
    ("headers", "thread"),
    [
        ({}, None),
        ({"x-session-id": "s"}, "s"),
        (CLAUDE, "7c7d"),
        ({**CLAUDE, "x-claude-code-agent-id": "a9"}, "a9"),
        ({"x-session-affinity": "child", "x-parent-session-id": "root"}, "child"),
        ({"x-autellix-program-id": "other"}, "other"),
        ({"x-autellix-thread-id": "mine"}, "mine"),
    ],
)
def test_program_in_the_url(headers: dict[str, str], thread: str | None) -> None:
    """Whatever runs within a program counts as that program, and sessions of its own are threads of it."""
    assert Identities().of(headers, {}, within="p1") == who("url", session="p1", thread=thread)


def test_own_thread() -> None:
    """Our thread header counts whatever named the program."""
    assert of({**CODEX, "x-autellix-thread-id": "mine"}).thread_id == "mine"
    assert of({"x-autellix-thread-id": "mine"}) == who("none", thread="mine")


@pytest.mark.parametrize(
    ("own", "parent", "source"),
    [
        ("x-dynamo-session-id", "x-dynamo-parent-session-id", "dynamo"),
        ("x-session-affinity", "x-parent-session-id", "opencode"),
    ],
)
def test_sub_agents(own: str, parent: str, source: str) -> None:
    """A sub-agent, and its own, count as the root that began them all, each as a thread of it."""
    identities = Identities()
    found = [
        identities.of(headers, {})
        for headers in ({own: "root"}, {own: "child", parent: "root"}, {own: "grandchild", parent: "child"})
    ]

    assert found == [
        who(source, session="root"),
        who(source, session="root", thread="child"),
        who(source, session="root", thread="grandchild"),
    ]


def test_sub_agents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sub-agents that were quiet for long the root is forgotten; their parent stands for it then."""
    monkeypatch.setattr(module, "ROOTS_MAX", 2)
    identities = Identities()
    for child in ("a", "b", "c"):
        identities.of({"x-session-affinity": child, "x-parent-session-id": "root"}, {})

    assert identities.of({"x-session-affinity": "x", "x-parent-session-id": "a"}, {}).session == "a"
    assert identities.of({"x-session-affinity": "y", "x-parent-session-id": "c"}, {}).session == "root"


@pytest.mark.parametrize("value", ["x" * (ID_BYTES_MAX + 1), "a\nb", "\x9b31m", 7, ["a"], True])
@pytest.mark.parametrize("path", ["program_id", "metadata.program_id", "session_id", "conversation.id"])
def test_unusable(path: str, value: object) -> None:
    """An id that is too long, is no text or holds control characters is refused by its field."""
    first, _, rest = path.partition(".")
    body: dict[str, Any] = {first: {rest: value} if rest else value}
    with pytest.raises(InvalidRequestError) as refused:
        of(**body)

    assert (refused.value.status, refused.value.body.param) == (400, path)


def test_header_that_is_no_text() -> None:
    """A header that is not UTF-8 is refused by its name."""
    with pytest.raises(InvalidRequestError) as refused:
        of({"x-session-id": "\xff"})

    assert refused.value.body.param == "x-session-id"


@pytest.mark.parametrize(
    ("text", "expected"), [("", ()), (" , ", ()), ("call-1", ("call-1",)), ("call-1, call-2,", ("call-1", "call-2"))]
)
def test_parents(text: str, expected: tuple[str, ...]) -> None:
    """The calls that a request waited for are listed in a header."""
    assert parents_of({"x-autellix-parent-ids": text}) == expected
