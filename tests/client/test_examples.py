"""The examples that need no particular answers run on simulated engines; the others with a real model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from autellix.client.examples import chat, react, tree_search
from autellix.client.stack import Stack

EXAMPLES = "autellix.client.examples"


def start(example: str, stack: Stack, *arguments: str) -> "subprocess.Popen[str]":
    """Start an example in a process of its own."""
    environment = {**os.environ, "AUTELLIX_NATS_URL": stack.nats_url}
    command = [sys.executable, "-P", "-m", f"{EXAMPLES}.{example}", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("example", ["chat", "map_reduce", "react"])
def test_program_runs_alone(example: str, stack: Stack) -> None:
    """The example finds model and server by the environment, talks, and ends well."""
    with start(example, stack) as process:
        said, _ = process.communicate()

    assert process.returncode == 0
    assert len(said.splitlines()) >= 5


def test_plain_client_gets_every_frame(stack: Stack) -> None:
    """A client of nats-py and msgpack alone gets accepted, chunks without a gap, and one finished."""
    with start("submit_plain", stack, "tiny") as process:
        said, _ = process.communicate()

    kinds = re.findall(r"^\{'type': '(\w+)'", said, re.MULTILINE)
    numbers = [int(number) for number in re.findall(r"'seq': (\d+)", said)]
    assert (kinds[0], kinds[-1]) == ("accepted", "finished")
    assert {*kinds[1:-1]} == {"chunk"}
    assert [*range(1, len(numbers) + 1)] == numbers


def test_plain_subscriber_hears_the_end_of_a_call(stack: Stack) -> None:
    """An outsider that only subscribes prints a line for a call that somebody else made."""
    with start("subscriber", stack) as subscriber:
        assert subscriber.stdout
        assert subscriber.stdout.readline().startswith("listening")
        with start("submit_plain", stack, "tiny") as process:
            process.communicate()
        line = subscriber.stdout.readline()
        subscriber.kill()

    assert re.fullmatch(r"call-\w+ on engine-\d: served \d+ ms, waited \d+ ms\n", line)


@pytest.mark.parametrize("example", ["submit_plain", "subscriber"])
def test_plain_client_without_server_ends_with_one_line(example: str) -> None:
    """The first failure to connect is said once, and is the last."""
    environment = {**os.environ, "AUTELLIX_NATS_URL": "nats://127.0.0.1:9"}
    command = [sys.executable, "-P", "-m", f"{EXAMPLES}.{example}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert re.fullmatch(r"NATS: .*Connect call failed.*\n", done.stderr)


async def test_sentences_end_after_words() -> None:
    """Each sentence is said by itself; the point within a number, or behind one that counts, ends none."""

    async def pieces() -> AsyncIterator[str]:
        for piece in ("It is 150 feet (46.", "66 meters).", " Really", "! Two:\n1. Whales\n", "2. Sharks"):
            yield piece

    said: list[str] = []
    await chat.say_sentences(pieces(), said.append)

    assert said == ["It is 150 feet (46.66 meters).", "Really!", "Two:", "1. Whales", "2. Sharks"]


def test_react_does_not_find_itself() -> None:
    """The file that contains the question is no answer to it."""
    assert "react.py" not in react.names()
    assert react.search("tree") == "tree_search.py"


def test_action_schema_offers_what_is_left() -> None:
    """A tool whose arguments are used up is not offered."""
    schema = react.schema_of({"search": ["tree"], "read_file": []})["json_schema"]["schema"]

    assert [choice["properties"]["tool"]["const"] for choice in schema["anyOf"]] == ["search"]
    assert json.dumps(schema)


def test_every_action_works() -> None:
    """Each tool takes each of the arguments that it is offered with."""
    found = [
        react.TOOLS[tool](argument) for tool, arguments in react.possible_actions().items() for argument in arguments
    ]

    assert all(found)


def test_value_is_backed_up_from_the_best_end() -> None:
    """A step is worth the best plan that begins with it, and without followers its own score."""
    leaf, better = tree_search.Step(("a", "b"), 2), tree_search.Step(("a", "c"), 5)

    assert tree_search.Step(("a",), 1, [leaf, better]).value == 5
    assert leaf.value == 2
