"""The names of things, as types, so that one is never passed where another is meant."""

from typing import Final, NewType

ProgramId = NewType("ProgramId", str)
"""One run of an agent; made by the session manager, unguessable."""

ThreadId = NewType("ThreadId", str)
"""One line of control inside a program; unique within its program only."""

CallId = NewType("CallId", str)
"""One LLM request of a program."""

CALL_ID_BEGIN: Final = "call-"
"""How the ids begin that the session manager makes, and no id of a client's own choice."""

EngineId = NewType("EngineId", str)
"""One vLLM replica, by the name its operator gave it."""

Incarnation = NewType("Incarnation", str)
"""One life of an engine worker: a restarted worker has the same engine id and another incarnation."""
