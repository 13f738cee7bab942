"""What `make chaos` counts, and what the bus says of it."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from fleet import connected

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_ENDS, FRAMES, MalformedMessageError
from autellix.schemas.messages import CallFinished, Finished


@dataclass
class Report:
    """What happened."""

    faults: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Ends in an error, by its code; each was tried again."""
    lost: int = 0
    """Calls that were accepted, and of which nothing was heard in time."""
    cut: int = 0
    """Answers that were shorter than asked for."""
    programs: int = 0
    given_up: int = 0
    """Programs whose call failed too often."""
    longest_outage_s: float = 0.0
    """The longest time from a call's first try to its answer."""
    ends: Counter[str] = field(default_factory=Counter)
    """By call: how often its end was announced. Twice is no harm, since it counts once: the balancer, which may not
    have heard of it when the bus came back, says it again with the engine's."""
    answers: Counter[str] = field(default_factory=Counter)
    """By call: how often its answer was announced."""
    frames: Counter[str] = field(default_factory=Counter)
    """By call: how often its client was sent a last frame with an answer."""
    memory: list[dict[str, float]] = field(default_factory=list)
    """After each fault: MiB of each process."""
    wrong: list[str] = field(default_factory=list)
    """What did not agree, and after which fault."""

    @property
    def good(self) -> bool:
        """Whether nothing was lost, and nothing happened twice."""
        return not (self.lost or self.cut or self.given_up or self.wrong)


@asynccontextmanager
async def counting(nats_url: str, report: Report) -> AsyncIterator[None]:
    """Count the ends that are announced, by call."""
    client = await connected(nats_url)

    async def heard(msg: Any) -> None:
        with suppress(MalformedMessageError):
            end = CALL_ENDS.decode(msg.data)
            report.ends[end.call_id] += 1
            report.answers[end.call_id] += isinstance(end, CallFinished)

    async def answered(msg: Any) -> None:
        with suppress(MalformedMessageError):
            frame = FRAMES.decode(msg.data)
            if isinstance(frame, Finished):
                report.frames[frame.call_id] += 1

    await client.subscribe("_INBOX.>", cb=answered)
    for subject in subjects.CALL_ENDS:
        await client.subscribe(subject, cb=heard)
    await client.flush()
    try:
        yield
    finally:
        await client.close()


def thirds(memory: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """Return the median of what each process held in the first and in the last third of a run."""
    third = len(memory) // 3
    parts = (memory[:third], memory[len(memory) - third :]) if third else ()
    return {
        name: tuple(round(median(each[name] for each in part), 1) for part in parts) for name in (memory or [{}])[0]
    }


def shown(report: Report, seed: int) -> dict[str, Any]:
    """Return a report as it is printed."""
    return {
        "seed": seed,
        "faults": dict(report.faults),
        "programs": report.programs,
        "calls": report.calls,
        "answered": report.answered,
        "failed and tried again": dict(report.failed),
        "lost": report.lost,
        "cut": report.cut,
        "answered twice to their clients": sum(count > 1 for count in report.frames.values()),
        "answered twice": sum(count > 1 for count in report.answers.values()),
        "ended twice, counted once": sum(count > 1 for count in report.ends.values()),
        "longest outage of a call, s": round(report.longest_outage_s, 1),
        "MiB in the first and the last third": thirds(report.memory),
        "wrong": report.wrong[:20],
    }
