"""A conversation of several turns: one thread, and a person who thinks between the calls."""

import asyncio
from collections.abc import AsyncIterable, Callable

from autellix.client import Program

TURNS = (
    "Name three animals that live in the sea.",
    "Which of them is the largest?",
    "What does it eat?",
    "Say goodbye in one short sentence.",
)
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
    sentence = ""
    async for piece in pieces:
        sentence += piece
        if sentence.endswith((".", "!", "?", "\n")):
            say(sentence.strip())
            sentence = ""
    if sentence.strip():
        say(sentence.strip())


if __name__ == "__main__":
    asyncio.run(run())
