"""How a long run is judged: by the memory of its last third, and by what does not add up."""

import asyncio
import os
from pathlib import Path

import pytest
import scale
import soak
from watch import Sample, growth_mib_h, last_third, processor_s, resident_mib, size_mib

MINUTE = 60.0


def run(*mib: float, minutes: float = 30.0) -> list[Sample]:
    """Return samples of a run that lasts so long, evenly spread."""
    return [Sample(minutes * MINUTE * number / (len(mib) - 1), each) for number, each in enumerate(mib)]


def test_growth() -> None:
    """A straight line grows as it does; a spike, or one that falls back, does not count."""
    assert 60.0 == pytest.approx(growth_mib_h(run(50, 60, 70, 80)))
    assert 0.0 == growth_mib_h(run(50, 50, 50, 90, 50, 50, 50))
    assert 0.0 == growth_mib_h([])
    assert 0.0 == growth_mib_h([Sample(0.0, 1.0), Sample(0.0, 2.0)])


def test_last_third() -> None:
    """It is by time: what grew before, and stopped, is not in it."""
    samples = run(10, 20, 30, 40, 50, 60, 60, 60, 60, 60)

    assert [60.0] * 4 == [sample.mib for sample in last_third(samples)]
    assert [] == last_third([])


@pytest.mark.parametrize(
    ("samples", "is_wrong"),
    [
        (run(*range(50, 80)), True),
        (run(50, 60, 70, 80, 80, 80, 80), False),
        (run(*range(50, 80), minutes=10), False),
        (run(80, 70, 60), False),
    ],
    ids=["grows all the time", "is full", "is too short", "shrinks"],
)
def test_judgement(samples: list[Sample], is_wrong: bool) -> None:  # noqa: FBT001
    """A process that still grows by more than the bound in the last third is named; files have bounds of their own."""
    report = soak.Report(memory={"a service": samples, "its files": samples})
    report.judge()

    assert is_wrong == bool(report.wrong)
    assert not [text for text in report.wrong if "files" in text]


def test_report_is_drawn_and_told(tmp_path: Path) -> None:
    """Both show every process."""
    report = soak.Report(memory={"gateway": run(50, 51, 52), "JetStream's files": run(0, 8, 9)})
    report.counts["calls"] = 1234
    soak.draw(report, tmp_path / "soak.png")

    assert b"PNG" in (tmp_path / "soak.png").read_bytes()[:8]
    assert "| gateway | 50 | 52 | 52 | +0.0 |" in soak.table(report)
    assert "1,234 calls" in soak.table(report)


def test_what_the_kernel_counts(tmp_path: Path) -> None:
    """This process has memory and has run; one that is gone has none."""
    (tmp_path / "file").write_bytes(b"x" * 2**20)

    assert 5 < resident_mib(os.getpid()) < 10_000
    assert processor_s(os.getpid()) > 0
    assert (0.0, 0.0) == (resident_mib(2**22 + 1), processor_s(2**22 + 1))
    assert 1.0 == size_mib(tmp_path)


def test_scale_on_a_small_scale() -> None:
    """It finds nothing wrong, and counts what it made."""
    found = asyncio.run(scale.measured(programs=20, count=3, streams=10, rate=20.0, seconds=2.0))

    assert [] == found.wrong
    assert 20 == found.programs
    assert found.made == found.answered == len(found.ids)
    assert 30 <= found.made <= 41
    assert {"gateway", "engines 0", "the client"} <= found.busy.keys()
    assert 0 <= found.percentile(0.5) <= found.percentile(0.99)
