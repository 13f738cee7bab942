"""Map-reduce: the parts of a text are summarised in parallel, then the summaries in one.

Nothing declares the graph: `asyncio.gather` makes each part a thread, and the last call waits for all of them.
"""

import asyncio
from collections.abc import Callable

from autellix.client import Program

TEXT = """\
Bees visit flowers to collect nectar. As they move from flower to flower they carry pollen, and plants can make seeds.

A bee colony has one queen and tens of thousands of workers. The workers build the comb and guard the hive.

When a worker finds good flowers she returns to the hive and dances. The dance tells the others where to fly.

In winter the bees form a cluster in the hive. They shiver to keep the queen warm and live on the stored honey.
"""


async def run(say: Callable[[str], None] = print) -> None:
    """Summarise the text."""
    async with Program("map-reduce") as program:

        async def summary(text: str) -> str:
            question = f"Summarise in one short sentence:\n{text}"
            answer = await program.chat([{"role": "user", "content": question}], max_tokens=32, temperature=0)
            say(f"map: {answer.text.strip()}")
            return answer.text

        summaries = await asyncio.gather(*map(summary, TEXT.split("\n\n")))
        question = "Combine into one sentence about bees:\n" + "\n".join(summaries)
        answer = await program.chat([{"role": "user", "content": question}], max_tokens=48, temperature=0)
        say(f"reduce: {answer.text.strip()}")


if __name__ == "__main__":
    asyncio.run(run())
