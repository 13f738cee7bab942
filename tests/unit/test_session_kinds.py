"""Which programs are of one kind: what the client says, else what the first call's system prompt says."""

from typing import Any

import pytest

from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import Failed, SessionStarted, StartSession, SubmitCall, SubmittedCall
from autellix.services.config import SessionManagerSettings
from autellix.services.core import Reply
from autellix.services.session_manager.core import SessionManager

INBOX = Reply("_INBOX.1")
HI = {"role": "user", "content": "hi"}


def system(content: Any, role: str = "system", **fields: Any) -> dict[str, Any]:
    """Return a chat request with a system prompt."""
    return {"model": "m", "messages": [{"role": role, "content": content}, HI], **fields}


@pytest.fixture
def sessions() -> SessionManager:
    """Return a session manager that numbers its ids."""
    numbers = iter(range(1000))
    return SessionManager(SessionManagerSettings(), new_id=lambda: f"id{next(numbers)}", secret=b"key")


def start(sessions: SessionManager, agent: str) -> ProgramId:
    """Start a program of such an agent."""
    outs = sessions.handle(StartSession(agent=agent), 0.0, INBOX)
    (started,) = [out.message for out in outs if isinstance(out.message, SessionStarted)]
    return started.program_id


def kind(sessions: SessionManager, body: dict[str, Any] | None = None, **fields: Any) -> str:
    """Submit a call and return the kind that its program has."""
    outs = sessions.handle(SubmitCall(body=body or system("be kind"), **fields), 0.0, INBOX)
    (submitted,) = [out.message for out in outs if isinstance(out.message, SubmittedCall)]
    return submitted.kind


def test_the_clients_word(sessions: SessionManager) -> None:
    """The agent that is named at the start counts for all calls, whatever they say later."""
    program_id = start(sessions, "coder")

    assert "coder" == kind(sessions, program_id=program_id)
    assert "coder" == kind(sessions, program_id=program_id, agent="other")


def test_named_with_the_first_call(sessions: SessionManager) -> None:
    """A program that its first call begins is of the agent that this call names; later ones change nothing."""
    assert "a" == kind(sessions, session="s", agent="a")
    assert ["a", "a"] == [kind(sessions, session="s", agent=agent) for agent in ("b", "")]
    assert "b" == kind(sessions, agent="b")


def test_same_system_prompt(sessions: SessionManager) -> None:
    """Programs with one model and one system prompt are of one kind, whatever else they ask."""
    one = kind(sessions, system("be kind"))
    program_id = start(sessions, "")

    assert 16 == len(one)
    assert one == kind(sessions, system("be kind", role="developer", temperature=0.5))
    assert one == kind(sessions, system("be kind"), program_id=program_id)
    assert one == kind(sessions, system("be rude"), program_id=program_id)


def test_different_system_prompts(sessions: SessionManager) -> None:
    """Another prompt, or another model, is another kind."""
    bodies = (system("a"), system("b"), system([{"type": "text", "text": "a"}]), system("a", model="other"))

    assert len(bodies) == len({kind(sessions, body) for body in bodies})


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("/v1/chat/completions", {"model": "m", "messages": [HI]}),
        ("/v1/chat/completions", system("")),
        ("/v1/chat/completions", system(None)),
        ("/v1/completions", {"model": "m", "prompt": "hi", "messages": 5}),
    ],
)
def test_no_system_prompt(sessions: SessionManager, api: str, body: dict[str, Any]) -> None:
    """Without a system prompt a program is of no kind."""
    assert "" == kind(sessions, body, api=api)


@pytest.mark.parametrize("agent", ["x" * 257, "a\nb"])
def test_unusable_agent(sessions: SessionManager, agent: str) -> None:
    """A name that is too long or holds control characters is refused by its field."""
    for request in (StartSession(agent=agent), SubmitCall(agent=agent, body=system("x"))):
        (out,) = sessions.handle(request, 0.0, INBOX)

        assert isinstance(out.message, Failed)
        assert (400, "agent") == (out.message.status, out.message.error.param)
