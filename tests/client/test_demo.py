"""The demo, with the real engine and the real model."""

import subprocess
import sys

import pytest


@pytest.mark.vllm
@pytest.mark.timeout(600)
def test_demo_runs_to_its_end() -> None:
    """Four programs talk at the same time, their account and their chart are shown, and nothing fails."""
    command = [sys.executable, "-P", "-m", "autellix.client.demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = done.stdout

    assert (done.returncode, done.stderr) == (0, "")
    assert "react answer: " in " ".join(shown.split())
    for name in ("chat", "react", "map-reduce", "tree-search"):
        assert f"{name}: lived " in shown
    assert "autellix ps --nats-url nats://" in shown
    assert "main " in shown
    assert "##" in shown
    assert "Everything has stopped." in shown
