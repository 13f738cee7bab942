"""How a starting stack is shown."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from autellix.client.plan import Plan
from autellix.client.progress import started
from autellix.client.stack import Stack


@pytest.mark.parametrize(("terminal", "expected"), [(False, "gateway is ready after "), (True, "✓ gateway ")])
async def test_every_process_is_shown_until_it_is_ready(
    nats_url: str, tmp_path: Path, *, terminal: bool, expected: str
) -> None:
    """On a terminal a table changes in place, elsewhere there is a line for each process."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, color_system=None, width=80)
    simulated = ("engine_worker.backend=simulated",)
    plan = Plan(model="tiny", port=0, nats_url=nats_url, overrides=simulated, log_dir=tmp_path)
    async with started(Stack(plan), console):
        pass

    assert expected in shown.getvalue()
    assert "engine-0" in shown.getvalue()
