"""What the replay needs of a server: a program's link to it, and through that its calls."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, Self

from autellix.client.errors import AutellixError


class TargetError(AutellixError):
    """A server refused a call, failed at it, or cannot be reached."""


class Answered(NamedTuple):
    """The answer to one call."""

    tokens: list[int]
    """Fit to be part of a later prompt of the same target."""
    first_token_s: float
    """From submission to the first part of the answer,"""
    total_s: float
    """and to its end."""
    prompt_tokens: int
    """As the server counts."""
    cached_tokens: int | None
    """Of the prompt, found in the prefix cache; None: the server does not tell."""
    output_tokens: int
    call_id: str
    """The server's name for the call; empty if it has none."""


class Link(Protocol):
    """One program's way to the server."""

    async def call(self, prompt: Sequence[int], *, max_tokens: int, thread: str, parents: Sequence[str]) -> Answered:
        """Make one call and return its answer, however long that takes; cancelling the task cancels the call.

        Args:
            prompt: Token ids.
            max_tokens: The exact length of the answer, where the server can be told.
            thread: The program's line of control that makes the call.
            parents: The ids of the calls that it waited for.

        Raises:
            AutellixError: when the server refuses or fails, or goes away.
        """
        ...


class Target(Protocol):
    """A server to replay against; enter it first."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        ...

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            AutellixError: when there is no server, or it serves no model.
        """
        ...

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        ...

    def program(self, name: str, agent: str) -> AbstractAsyncContextManager[Link]:
        """Begin a program, and end it with the block.

        Args:
            name: A label for people.
            agent: What kind of agent it is.
        """
        ...
