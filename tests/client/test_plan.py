"""What a plan starts."""

import sys
from pathlib import Path

from autellix.client.plan import POLICIES, Plan, service_command
from autellix.engine import policy


def test_processes_come_in_the_order_of_starting() -> None:
    """The gateway, which lets callers in, is the last to start and so the first to stop."""
    commands = Plan(engines=2).commands("nats://n", port=1, metrics_port=2)

    assert [*commands] == [
        "session-manager",
        "process-table",
        "load-balancer",
        "engine-0",
        "engine-1",
        "durable-calls",
        "metrics",
        "gateway",
    ]


def test_every_process_gets_the_same_settings() -> None:
    """The file, the overrides and what the plan chooses reach each service; the plan's choice is the last word."""
    plan = Plan(model="m", config=Path("a.toml"), overrides=("gateway.port=9",))
    command = plan.commands("nats://n", port=1, metrics_port=2)["gateway"]

    chosen = ["--config", "a.toml", "--set", "gateway.port=9", "--set", "nats.url=nats://n", "--set", "gateway.port=1"]
    chosen += ["--set", "metrics.port=2", "--set", "engine_worker.model=m"]
    assert chosen == command[4:]


def test_each_engine_has_its_own_id() -> None:
    """Two workers differ in their engine id, and in nothing else."""
    commands = Plan(engines=2).commands("nats://n", port=1, metrics_port=2)
    first, second = commands["engine-0"], commands["engine-1"]

    assert first[:-1] == second[:-1]
    assert (first[-1], second[-1]) == ("engine_worker.engine_id=engine-0", "engine_worker.engine_id=engine-1")


def test_service_runs_in_this_python() -> None:
    """A service is a module run by the same interpreter, which does not look into the current folder."""
    expected = [sys.executable, "-P", "-m", "autellix.services.load_balancer", "--set", "a.b=c"]

    assert expected == service_command("load-balancer", ["--set", "a.b=c"])


def test_policies_are_those_of_the_engine() -> None:
    """The command line offers each policy that the engine knows, and no other."""
    assert {*policy.POLICIES} == {*POLICIES}
