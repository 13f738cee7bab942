"""A conversation of several turns: one thread, and a person who thinks between the calls."""

import asyncio
import re
from collections.abc import AsyncIterable, Callable

from autellix.client import Program

TURNS = (
    "Name three animals that live in the sea.",
    "Which of them is the largest?",
    "What does it eat?",
    "Say goodbye in one short sentence.",
)
SENTENCE_END = re.compile(r"(?<=\D[.!?])\s+|\n+")  # not the points of `46.66` and `1. Whales`
THINKING_S = 0.5  # a person reads the answer before the next turn


async def run(say: Callable[[str], None] = print) -> None:
    """Hold the conversation."""
    conversation = [{"role": "system", "content": "You are friendly and answer in one sentence."}]
    async with Program("chat") as program:
        for turn in TURNS:
            say(f"> {turn}")
            conversation.append({"role": "user", "content": turn})
            stream = program.stream(conversation, max_tokens=40, temperature=0.3)
            await say_sentences(stream, say)
            conversation.append(stream.answer.message)
            await asyncio.sleep(THINKING_S)


async def say_sentences(pieces: AsyncIterable[str], say: Callable[[str], None]) -> None:
    """Say each sentence as soon as it is complete."""
    rest = ""
    async for piece in pieces:
        *sentences, rest = SENTENCE_END.split(rest + piece)
        for sentence in filter(None, sentences):
            say(sentence.strip())
    if rest.strip():
        say(rest.strip())


if __name__ == "__main__":
    asyncio.run(run())
