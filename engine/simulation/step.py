"""What one step of a simulated engine computes."""

from dataclasses import dataclass, field

from autellix.engine.executor import Resumed, Started, Turn
from autellix.engine.simulation.calls import Counters
from autellix.engine.simulation.live import LiveCall


@dataclass(slots=True)
class Step:
    """One step, as it was chosen."""

    began_ms: float
    turns: list[Turn] = field(default_factory=list)
    """Who began and ceased to run for it."""
    chunks: list[tuple[LiveCall, int]] = field(default_factory=list)
    """Prefills, with the tokens of each."""
    decodes: bool = True
    """Whether the decoding calls are part of it."""
    grown: bool = False
    """Whether the decoding calls have their blocks for it."""
    swap_ms: float = 0.0
    load_ms: float = 0.0
    """The part of it that copies from the CPU tier took."""

    def recomputed_share(self, decoding_calls: int) -> float:
        """Return which share of its tokens preempted calls had computed before.

        Args:
            decoding_calls: How many decode in it, a token each.
        """
        again = sum(tokens for live, tokens in self.chunks if live.queued.preemptions)
        return again / (sum(tokens for _, tokens in self.chunks) + decoding_calls) if again else 0.0

    def begin(self, live: LiveCall, counters: Counters) -> None:
        """Tell that a call runs from this step on, for the first time or again."""
        if live.cached_tokens is not None:
            self.turns.append(Resumed(live.call.call_id))
            return
        live.cached_tokens = live.computed
        counters.prompt_tokens += live.call.prompt_tokens
        counters.cached_tokens += live.cached_tokens
        self.turns.append(Started(live.call.call_id, live.queued.wait_ms))

    @property
    def repeats(self) -> bool:
        """Whether the next step is like this one unless something happens."""
        return self.decodes and not self.chunks and not self.turns
