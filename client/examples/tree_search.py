"""Tree search: candidates are written and judged in parallel, and the best first step is the one with the best future.

Each candidate is a task, so a thread of the program: it writes, then scores, while its siblings do the same.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from autellix.client import Program

GOAL = "Plan a nice weekend day in a small town"
BREADTH = 3
DEPTH = 2
SCORES = ["1", "2", "3", "4", "5"]


@dataclass
class Step:
    """One step of a plan, with the steps that may follow."""

    plan: tuple[str, ...]
    score: float = 0.0
    next: list["Step"] = field(default_factory=list)

    @property
    def value(self) -> float:
        """The score of the best plan that begins with this step, backed up from its end."""
        return max((step.value for step in self.next), default=self.score)


async def run(say: Callable[[str], None] = print) -> None:
    """Search for a plan."""
    async with Program("tree-search") as program:
        root = Step(plan=())
        level = [root]
        for depth in range(1, DEPTH + 1):
            best = max(level, key=lambda step: step.score)
            best.next = level = await asyncio.gather(*(grown(program, best, seed) for seed in range(BREADTH)))
            for step in level:
                say(f"depth {depth}: score {step.score:g}: {step.plan[-1]}")
        first = max(root.next, key=lambda step: step.value)
        say(f"best first step: {first.plan[0]}")


async def grown(program: Program, parent: Step, seed: int) -> Step:
    """Return a step that may follow `parent`, written and judged by the model."""
    plan = "; then ".join(parent.plan) or "nothing yet"
    prompt = f"{GOAL}. So far: {plan}. Say only the next thing to do, in a few words."
    written = await program.chat([{"role": "user", "content": prompt}], max_tokens=24, temperature=0.9, seed=seed)
    text = written.text.strip().partition("\n")[0]
    prompt = f"{GOAL}. How good is this idea, from 1 (bad) to 5 (great)? Idea: {text}"
    judged = await program.chat(
        [{"role": "user", "content": prompt}], max_tokens=4, structured_outputs={"choice": SCORES}, seed=seed
    )
    return Step((*parent.plan, text), float(judged.text))


if __name__ == "__main__":
    asyncio.run(run())
