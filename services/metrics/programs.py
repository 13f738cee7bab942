"""What is counted of whole programs.

Rules:
* A program that is over is looked at when the last of its calls has ended and a while has passed: what its calls did
  may be heard after its own end. One whose calls' ends are never heard is looked at without them.
* One that expired ended, as far as anybody knows, with its last call.
* Its token latency is its time from start to end over the tokens generated (paper section 6.1); its wait ratio, what
  its calls waited over what they executed; its slowdown, the time in which it had a call over its critical path, which
  is what its calls would take if nobody else were there and nothing between them took time.
"""

from dataclasses import dataclass
from typing import Final

from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import CallEnd, CallSubmitted, ProgramEnd, ProgramExpired, ProgramStarted
from autellix.services.metrics.numbers import Begun, Counter, Histogram, Live

PROGRAM_S: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0)
TOKEN_S: Final = (0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0)
RATIOS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SLOWDOWNS: Final = (1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)

SETTLED_MS: Final = 1000.0
AGE_MAX_MS: Final = 48 * 3_600_000.0
ENDING_MAX_MS: Final = 600_000.0
"""How long the ends of a program's calls may be heard after its own."""


@dataclass
class Program(Begun):
    """A program that is live, or over with calls that are not."""

    calls: int = 0
    """Those that are live."""
    busy_since_ms: float = 0.0
    busy_ms: float = 0.0
    """Time in which it had a live call."""
    last_call_at_ms: float | None = None
    critical_path_ms: float = 0.0
    service_ms: float = 0.0
    wait_ms: float = 0.0
    output_tokens: int = 0
    ended_at_ms: float = 0.0
    outcome: str = ""
    seen_to_end_at_ms: float = 0.0
    """By the clock here."""


class ProgramNumbers:
    """The numbers, as its public fields."""

    def __init__(self, count_max: int) -> None:
        self.by_source = Counter()
        """Those that started, by what named them."""
        self.ended_count = 0
        self.expired_count = 0
        self.live = Live[Program](count_max=count_max, age_max_ms=AGE_MAX_MS)
        self._ending: dict[ProgramId, Program] = {}
        """Those that are over and not looked at yet, in the order of their ends."""
        self.duration = Histogram(PROGRAM_S)
        """By outcome, as all below: `ended` or `expired`."""
        self.token_latency = Histogram(TOKEN_S)
        self.wait_ratio = Histogram(RATIOS)
        self.slowdown = Histogram(SLOWDOWNS)

    def started(self, event: ProgramStarted) -> None:
        """Count a program."""
        if self.live.begin(event.program_id, Program(event.at_ms)):
            self.by_source.add(event.source)

    def ended(self, event: ProgramEnd, now_ms: float) -> None:
        """Count the end of a program that was seen to start."""
        program = self.live.end(event.program_id, event.at_ms)
        if program is None:
            return
        expired = isinstance(event, ProgramExpired)
        self.expired_count += expired
        self.ended_count += not expired
        program.outcome = "expired" if expired else "ended"
        program.ended_at_ms, program.seen_to_end_at_ms = event.at_ms, now_ms
        self.duration.observe_ms(program.outcome, event.at_ms - program.began_at_ms)
        before = self._ending.pop(event.program_id, None)  # of the same name
        if before:
            self._look_at(before)
        self._ending[event.program_id] = program

    def call_submitted(self, event: CallSubmitted) -> Program | None:
        """Take in a call, and return its program if that was seen to start."""
        program = self.live.get(event.program_id) or self._ending.get(event.program_id)
        if program:
            if not program.calls:
                program.busy_since_ms = event.at_ms
            program.calls += 1
        return program

    def call_ended(self, program: Program, event: CallEnd) -> None:
        """Take in the end of a call of a program."""
        program.calls -= 1
        program.last_call_at_ms = event.at_ms
        program.critical_path_ms = max(program.critical_path_ms, event.critical_path_at_arrival_ms + event.service_ms)
        program.service_ms += event.service_ms
        program.wait_ms += event.wait_ms
        program.output_tokens += event.output_tokens
        if not program.calls:
            program.busy_ms += max(event.at_ms - program.busy_since_ms, 0)

    def tick(self, now_ms: float) -> None:
        """Look at those that are over, and forget what must be."""
        self.live.expire(now_ms)
        for program_id, program in list(self._ending.items()):
            waited_ms = now_ms - program.seen_to_end_at_ms
            if waited_ms >= (ENDING_MAX_MS if program.calls else SETTLED_MS):
                del self._ending[program_id]
                self._look_at(program)

    def _look_at(self, program: Program) -> None:
        """Count what a program came to, if an engine did anything for it."""
        if not program.service_ms:
            return
        expired = program.outcome == "expired"
        ended_at_ms = (program.last_call_at_ms if expired else None) or program.ended_at_ms
        self.wait_ratio.observe(program.outcome, program.wait_ms / program.service_ms)
        self.slowdown.observe(program.outcome, program.busy_ms / program.critical_path_ms)
        if program.output_tokens:
            latency_ms = (ended_at_ms - program.began_at_ms) / program.output_tokens
            self.token_latency.observe_ms(program.outcome, latency_ms)
