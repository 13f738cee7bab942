"""Any service is killed and started again, and nobody loses anything; on a stack with simulated engines."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from autellix.client.child import Child, start_child
from autellix.client.plan import Plan
from autellix.client.program import Program
from autellix.client.stack import Stack, free_port

PLAN = Plan(model="tiny", engines=2, port=0, overrides=("engine_worker.backend=simulated",))
SERVICES = ("session-manager", "process-table", "load-balancer")
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


class Killed:
    """A stack whose services a test kills and starts again."""

    def __init__(self, stack: Stack, folder: Path, plan: Plan = PLAN) -> None:
        self.stack = stack
        self._plan = plan
        self._folder = folder
        self._again: list[Child] = []

    async def kill(self, name: str) -> None:
        """End a service without any warning."""
        (child,) = [each for each in [*self.stack.children, *self._again] if each.name == name][-1:]
        os.kill(child.pid, signal.SIGKILL)
        await child.ended()
        child.readiness.close()

    async def start(self, name: str) -> None:
        """Start it again, as systemd would."""
        ports = {"port": self.stack.port, "metrics_port": free_port()}
        command = self._plan.commands(self.stack.nats_url, **ports)[name]
        child = await start_child(
            name, command, log=self.stack.log_dir / f"{name}.log", notify=self._folder / f"{name}.again.sock"
        )
        self._again.append(child)
        async with asyncio.timeout(20):
            await child.readiness.event.wait()

    async def close(self) -> None:
        """Stop what was started again."""
        for child in self._again:
            await child.stop(20)


@pytest.fixture
async def killed(tmp_path: Path) -> AsyncIterator[Killed]:
    """Return a stack of its own."""
    async with Stack(PLAN) as stack:
        killed = Killed(stack, tmp_path)
        yield killed
        await killed.close()


async def ask(http: httpx.AsyncClient, session: str) -> str:
    """Make a call of a named program; return the program's id."""
    answer = await http.post("/v1/chat/completions", json=BODY, headers={"X-Session-ID": session})
    assert answer.status_code == 200, answer.text
    return answer.headers["X-Autellix-Program-Id"]


async def record(http: httpx.AsyncClient, program_id: str) -> dict[str, Any]:
    """Return what is known of a program."""
    return dict((await http.get(f"/v1/programs/{program_id}")).json())


async def test_every_service_dies(killed: Killed) -> None:
    """Programs go on where they were, whichever service died between their calls, and nothing is counted twice."""
    async with httpx.AsyncClient(base_url=killed.stack.http_url, timeout=30) as http:
        started = (await http.post("/v1/programs", json={"name": "started", "agent": "coder"})).json()["id"]
        named = await ask(http, "mine")
        for name in SERVICES:
            await killed.kill(name)
            await killed.start(name)
            again = await ask(http, "mine")
            call = await http.post("/v1/chat/completions", json=BODY, headers={"X-Autellix-Program-Id": started})

            assert again == named, name
            assert call.status_code == 200, (name, call.text)
        rows = {each: await record(http, each) for each in (named, started)}

    assert (rows[named]["calls"], rows[named]["output_tokens"], rows[named]["state"]) == (4, 12, "running")
    assert (rows[started]["calls"], rows[started]["name"], rows[started]["kind"]) == (3, "started", "coder")
    assert rows[named]["live_calls"] == rows[started]["live_calls"] == 0


async def test_a_program_ends_while_the_session_manager_is_away(killed: Killed) -> None:
    """Leaving a program ends its session once somebody is there to be told, and does not leave it to expire."""
    async with httpx.AsyncClient(base_url=killed.stack.http_url, timeout=30) as http:
        async with Program("mine", model="tiny", nats_url=killed.stack.nats_url) as program:
            await killed.kill("session-manager")
            back = asyncio.create_task(killed.start("session-manager"))
        await back

        assert (await record(http, program.id))["state"] == "ended"


@pytest.mark.parametrize("name", ["process-table", "load-balancer"])
async def test_call_while_a_service_is_away(killed: Killed, name: str) -> None:
    """A call that comes while a service on its way is dead is answered once that is back, not refused."""
    async with httpx.AsyncClient(base_url=killed.stack.http_url, timeout=30) as http:
        program_id = await ask(http, "mine")
        await killed.kill(name)
        asking = asyncio.create_task(ask(http, "mine"))
        await asyncio.sleep(1.0)
        assert not asking.done()
        await killed.start(name)

        assert await asking == program_id
        assert (await record(http, program_id))["calls"] == 2


async def test_programs_that_are_over_stay_so(killed: Killed) -> None:
    """An ended program is not revived, and one that was idle when the session manager died expires in its time."""
    async with httpx.AsyncClient(base_url=killed.stack.http_url, timeout=30) as http:
        over = (await http.post("/v1/programs")).json()["id"]
        await http.delete(f"/v1/programs/{over}")
        idle = (await http.post("/v1/programs", json={"ttl_s": 3})).json()["id"]
        await killed.kill("session-manager")
        await killed.start("session-manager")
        refused = await http.post("/v1/chat/completions", json=BODY, headers={"X-Autellix-Program-Id": over})
        before = (await record(http, idle))["state"]
        async with asyncio.timeout(20):
            while (after := (await record(http, idle))["state"]) == "running":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)

    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "program_not_found")
    assert (before, after) == ("running", "expired")
