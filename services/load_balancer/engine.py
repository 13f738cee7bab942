"""What the load balancer keeps of one engine."""

from dataclasses import dataclass, field
from typing import NamedTuple

from autellix.schemas.ids import CallId
from autellix.schemas.messages import AdmittedCall, EngineLoad
from autellix.services.load_balancer.choices import Candidate
from autellix.services.load_balancer.prefixes import PrefixTree


class Sent(NamedTuple):
    """A call that was routed, and when, by this balancer's clock."""

    admitted: AdmittedCall
    at_ms: float


@dataclass
class Engine:
    """One engine in rotation."""

    load: EngineLoad
    heard_at_ms: float
    prefixes: PrefixTree
    """Of the prompts routed to it."""
    calls: dict[CallId, Sent] = field(default_factory=dict)
    """Routed by this balancer and not ended."""
    foreign: int = 0
    """Calls that it reports beyond those."""

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
