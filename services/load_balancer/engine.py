"""What the load balancer keeps of one engine."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from autellix.schemas.ids import CallId, Incarnation
from autellix.schemas.messages import AdmittedCall, EngineLoad
from autellix.services.config import LoadBalancerSettings
from autellix.services.load_balancer.choices import Candidate
from autellix.services.load_balancer.prefixes import PrefixTree

STANDS_STILL: Final = "stands still"
STILL_MS: Final = 60_000.0
"""How long an engine that stood still is left alone, unless it makes a step."""


class Sent(NamedTuple):
    """A call that was routed, and when, by this balancer's clock."""

    admitted: AdmittedCall
    at_ms: float
    again: bool = False
    """It was on another engine, which was lost."""


class Still(NamedTuple):
    """An engine that stood still, and the step at which it did."""

    incarnation: Incarnation
    steps: int
    until_ms: float

    def is_word_of(self, load: EngineLoad, now_ms: float) -> bool:
        """Tell whether a report says that it still does."""
        return (load.incarnation, load.steps) == (self.incarnation, self.steps) and now_ms < self.until_ms


@dataclass
class Engine:
    """One engine in rotation."""

    load: EngineLoad
    heard_at_ms: float
    prefixes: PrefixTree
    """Of the prompts routed to it."""
    calls: dict[CallId, Sent] = field(default_factory=dict)
    """Routed by this balancer and not ended."""
    started: set[CallId] = field(default_factory=set)
    """Of these, those that began to run."""
    foreign: int = 0
    """Calls that it reports beyond those."""
    stepped_at_ms: float = 0.0
    """When it was last seen to make a step, or to have nothing to do."""

    def __post_init__(self) -> None:
        self.stepped_at_ms = self.heard_at_ms

    def hear(self, load: EngineLoad, now_ms: float) -> None:
        """Take in a report."""
        if load.steps != self.load.steps or not load.calls:
            self.stepped_at_ms = now_ms
        self.load, self.heard_at_ms = load, now_ms
        self.foreign = max(0, load.calls - len(self.calls))

    def shift(self, by_ms: float) -> None:
        """Take everything for so much later: that time did not pass for who is waited for."""
        self.heard_at_ms += by_ms
        self.stepped_at_ms += by_ms
        self.calls = {call_id: sent._replace(at_ms=sent.at_ms + by_ms) for call_id, sent in self.calls.items()}

    def trouble(self, now_ms: float, settings: LoadBalancerSettings) -> str:
        """Return why its calls had better run elsewhere; empty: it works."""
        if self.heard_at_ms < now_ms - settings.engine_silence_s * 1000:
            return "fell silent"
        return STANDS_STILL if self.stepped_at_ms < now_ms - settings.engine_standstill_s * 1000 else ""

    def end(self, call_id: CallId) -> Sent | None:
        """Take out a call that is over here."""
        self.started.discard(call_id)
        return self.calls.pop(call_id, None)

    def is_untold(self, call_id: CallId) -> bool:
        """Tell whether the client of a call has seen nothing of its answer: it may run elsewhere, once."""
        sent = self.calls[call_id]
        return not sent.again and (not sent.admitted.call.stream or call_id not in self.started)

    @property
    def used(self) -> int:
        """LLM calls in the engine: the paper's measure of use (section 6.4)."""
        return len(self.calls) + self.foreign

    def as_candidate(self) -> Candidate:
        """Return what a choice may depend on."""
        return Candidate(self.load.engine_id, self.used, self.prefixes, self.load.expected_wait_ms, self.token_ms)

    @property
    def token_ms(self) -> float:
        """Return how long it computes a token of a prompt, as it measured; 0: it has not yet."""
        return self.load.pool_ms / self.load.kv_tokens if self.load.kv_tokens else 0.0
