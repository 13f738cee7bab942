"""Asks whether any pinned package has a known vulnerability (`make audit`).

pip-audit asks PyPI's advisory service about the pins of `ops/requirements`. A finding ends it with 1. Where the service
cannot be reached, or does not know a package, it says so and ends with 0: not to know is not to be safe, but neither is
it a finding.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"


def command(file: Path) -> list[str]:
    """Return the command line that asks about what a file pins, and resolves nothing."""
    options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    return [str(Path(sys.executable).parent / "pip-audit"), *options, "-r", str(file)]


def judged(answer: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the exit status for an answer of pip-audit, and what to say."""
    packages = answer["dependencies"]
    unknown = sorted({each["name"] for each in packages if "skip_reason" in each})
    found = [
        f"{each['name']} {each['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version'}"
        for each in packages
        for flaw in each.get("vulns", ())
    ]
    asked = len({each["name"] for each in packages}) - len(unknown)
    said = [*found, f"{asked} packages were asked about: {len(found)} known vulnerabilities."]
    if unknown:
        said.append(f"COULD NOT ASK about {len(unknown)}: {', '.join(unknown)[:300]}")
    return (1 if found else 0), said


def main() -> int:
    """Ask, and say what was found."""
    worst = 0
    for file in sorted(path for path in REQUIREMENTS.glob("*.txt") if "==" in path.read_text()):
        done = subprocess.run(command(file), capture_output=True, text=True, check=False)
        try:
            status, said = judged(json.loads(done.stdout))
        except (json.JSONDecodeError, KeyError):
            why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            status, said = 0, [f"COULD NOT ASK: {why}"]
        worst = max(worst, status)
        print(*(f"{file.name}: {line}" for line in said), sep="\n")  # noqa: T201 - a command
    return worst


if __name__ == "__main__":
    sys.exit(main())
