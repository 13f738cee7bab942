"""How a starting stack is shown."""

import io

import pytest
from rich.console import Console

from autellix.client.plan import Plan
from autellix.client.progress import started
from autellix.client.stack import Stack


@pytest.mark.parametrize(("terminal", "expected"), [(False, "gateway is ready after "), (True, "✓ gateway ")])
async def test_every_process_is_shown_until_it_is_ready(nats_url: str, *, terminal: bool, expected: str) -> None:
    """On a terminal a table changes in place, elsewhere there is a line for each process."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, color_system=None, width=80)
    plan = Plan(model="tiny", port=0, nats_url=nats_url, overrides=("engine_worker.backend=simulated",))
    async with started(Stack(plan), console):
        pass

    assert expected in shown.getvalue()
    assert "engine-0" in shown.getvalue()
