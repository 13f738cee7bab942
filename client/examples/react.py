"""ReAct: the model thinks, chooses a tool, sees what it found, and so on until it answers.

The tools are real: they look into the source files beside this one. The choice of a tool is a structured output, so
that even a small model chooses what exists; and nothing is offered twice, so that it does not go round in circles.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autellix.client import Program

FOLDER = Path(__file__).parent
QUESTION = "Which example program searches a tree?"
STEPS_MAX = 3
OBSERVATION_CHARS = 240

Action = tuple[str, str]
"""A tool and its argument."""


def list_files(_: str) -> str:
    """Return the names of the example programs."""
    return ", ".join(names())


def read_file(name: str) -> str:
    """Return the beginning of a file."""
    return (FOLDER / name).read_text()[:OBSERVATION_CHARS]


def search(word: str) -> str:
    """Return the names of the files that contain a word."""
    return ", ".join(name for name in names() if word in (FOLDER / name).read_text()) or "nothing"


def names() -> list[str]:
    """Return the names of the files beside this one, which contains the question and would find itself."""
    return sorted(file.name for file in FOLDER.glob("[a-z]*.py") if file != Path(__file__))


TOOLS: dict[str, Callable[[str], str]] = {"list_files": list_files, "read_file": read_file, "search": search}


def possible_actions() -> dict[str, list[str]]:
    """Return the arguments that each tool takes."""
    words = [word for word in QUESTION.strip("?").split() if word.islower() and len(word) > 1]
    return {"list_files": ["."], "search": words, "read_file": names()}


def schema_of(actions: dict[str, list[str]]) -> dict[str, Any]:
    """Return the JSON schema of one action among `actions`."""
    choices = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool}, "argument": {"enum": arguments}},
            "required": ["tool", "argument"],
            "additionalProperties": False,
        }
        for tool, arguments in actions.items()
        if arguments
    ]
    return {"type": "json_schema", "json_schema": {"name": "action", "schema": {"anyOf": choices}}}


async def run(say: Callable[[str], None] = print) -> None:
    """Answer the question."""
    actions = possible_actions()
    notes = f"Question about a folder of Python programs: {QUESTION}"
    async with Program("react") as program:
        for _ in range(STEPS_MAX):
            thought = await ask(program, f"{notes}\nWhat should be looked up next? One short sentence.", max_tokens=20)
            say(f"thought: {thought}")
            tool, argument = await choose(program, f"{notes}\nThought: {thought}\nChoose the next tool.", actions)
            actions[tool].remove(argument)
            observation = await asyncio.to_thread(TOOLS[tool], argument)
            say(f"action: {tool}({argument}) -> {observation[:80]!r}")
            notes += f"\n{tool}({argument}) found: {observation}"
        choice = {"choice": names()}
        answer = await ask(program, f"{notes}\nThe answer is the file", max_tokens=16, structured_outputs=choice)
        say(f"answer: {answer}")


async def ask(program: Program, prompt: str, **fields: Any) -> str:
    """Return what the model says to a prompt."""
    answer = await program.chat([{"role": "user", "content": prompt}], temperature=0, **fields)
    return " ".join(answer.text.split())


async def choose(program: Program, prompt: str, actions: dict[str, list[str]]) -> Action:
    """Return the action that the model chooses; the schema leaves it no other way to answer but to be cut short."""
    text = await ask(program, prompt, max_tokens=96, response_format=schema_of(actions))
    try:
        chosen = json.loads(text)
    except json.JSONDecodeError:
        return next((tool, arguments[0]) for tool, arguments in actions.items() if arguments)
    return chosen["tool"], chosen["argument"]


if __name__ == "__main__":
    asyncio.run(run())
