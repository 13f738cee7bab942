"""What came lately, so that what comes once more is known."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """So many things, the oldest go first."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._things: dict[T, None] = {}

    def __contains__(self, thing: T) -> bool:
        return thing in self._things

    def add(self, thing: T) -> None:
        """Remember a thing."""
        self._things[thing] = None
        if len(self._things) > self._count_max:
            del self._things[next(iter(self._things))]
