"""Tree search: steps of a plan are written and judged in parallel, and the best first step has the best future.

Each candidate is a task, and so a thread of the program: it writes, then judges, while its siblings do the same.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from autellix.client import Program

DIRECTIONS = ("outdoors", "at home", "with friends")
DEPTH = 2
GRADES = ["poor", "fair", "good", "great"]


@dataclass
class Step:
    """One step of a plan, with the steps that may follow."""

    plan: tuple[str, ...] = ()
    grade: int = 0
    next: list["Step"] = field(default_factory=list)

    @property
    def value(self) -> int:
        """The grade of the best plan that begins with this step, backed up from its end."""
        return max((step.value for step in self.next), default=self.grade)


async def run(say: Callable[[str], None] = print) -> None:
    """Search for a plan: at each depth the best step so far is followed up in every direction."""
    async with Program("tree-search") as program:
        root = Step()
        best = root
        for depth in range(1, DEPTH + 1):
            best.next = await asyncio.gather(*(follow(program, best, direction) for direction in DIRECTIONS))
            for step in best.next:
                say(f"depth {depth}, {GRADES[step.grade]}: {step.plan[-1]}")
            best = max(best.next, key=lambda step: step.grade)
        first = max(root.next, key=lambda step: step.value)
        say(f"best first step: {first.plan[0]}")


async def follow(program: Program, parent: Step, direction: str) -> Step:
    """Return a step that may follow `parent`, written and judged by the model."""
    before = f"I have just done this: {parent.plan[-1]} " if parent.plan else ""
    prompt = f"{before}Name one fun thing to do {direction}. Answer with one short sentence."
    written = await program.chat([{"role": "user", "content": prompt}], max_tokens=20, temperature=0.2)
    text = " ".join(written.text.split())
    prompt = f"Is this a good idea for a free day: {', '.join(GRADES)}?\n{text}"
    judged = await program.chat(
        [{"role": "user", "content": prompt}], max_tokens=4, temperature=0.7, structured_outputs={"choice": GRADES}
    )
    return Step((*parent.plan, text), GRADES.index(judged.text))


if __name__ == "__main__":
    asyncio.run(run())
