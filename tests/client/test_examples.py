"""The examples that need no particular answers run on simulated engines; the others with a real model."""

import json
import os
import re
import subprocess
import sys

import pytest

from autellix.client.examples import react, tree_search
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
