"""The check at start: this vLLM is the tested one, and another is refused by name with everything it lacks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autellix.engine.vllm_adapter import conformance
from autellix.engine.vllm_adapter.conformance import IncompatibleVllmError, check_scheduler, check_version

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pins", ["vllm-cpu.txt", "vllm-cuda.txt"])
def test_tested_version_is_the_pinned_one(pins: str) -> None:
    """What the scheduler was tested with is what the installer installs."""
    text = (ROOT / "ops/requirements" / pins).read_text()

    assert re.findall(r"^vllm(?:-cpu)?==([\d.]+)", text, re.MULTILINE) == [conformance.TESTED_VERSION]


def test_other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version is refused, saying which is tested and what to set; the operator may insist."""
    monkeypatch.setattr(conformance, "TESTED_VERSION", "0.1.2")

    with pytest.raises(IncompatibleVllmError, match=r"tested with 0\.1\.2.*allow_untested_vllm = true"):
        check_version(allow_untested=False)
    check_version(allow_untested=True)


def test_this_one_conforms(bench: Bench) -> None:
    """The installed vLLM has everything that the scheduler relies on."""
    check_scheduler(bench.scheduler)


def test_what_is_missing_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that lacks a field, or whose method takes other parameters, is refused with the list of both."""
    monkeypatch.setattr(conformance, "FIELDS", [*conformance.FIELDS, "kv_cache_manager.no_such.thing"])
    monkeypatch.setitem(conformance.PARAMETERS, "schedule", ["throttle"])

    with pytest.raises(IncompatibleVllmError, match=r"no_such\.thing, schedule\(throttle\)"):
        check_scheduler(bench.scheduler)
