"""How fast the machine is while a run is made.

A machine that others use, too, may have several speeds, each for seconds or minutes: its cores share units with cores
that one does not see. Then two runs are alike only if the machine was. What a fixed piece of work costs in processor
time tells it, whoever else waits for the processor meanwhile.
"""

import asyncio
import time
from statistics import fmean
from types import TracebackType
from typing import Self

EVERY_S = 0.5
ADDITIONS = 20_000
"""About a millisecond: a part in 500 of one core."""


class Pace:
    """Measures while it is entered: the processor that the client runs on."""

    def __init__(self) -> None:
        self._samples_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def ms(self) -> float | None:
        """Return the mean processor time of the fixed piece of work; None before it was entered."""
        return fmean(self._samples_ms) if self._samples_ms else None

    async def __aenter__(self) -> Self:
        """Begin with a first sample."""
        self._samples_ms.append(_work_ms())
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no further samples."""
        if self._task:
            self._task.cancel()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self._samples_ms.append(_work_ms())


def _work_ms() -> float:
    began_ns = time.thread_time_ns()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return (time.thread_time_ns() - began_ns) / 1e6
