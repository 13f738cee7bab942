"""Who may import whom: the contracts in `pyproject.toml`."""

import subprocess
import sysconfig
from pathlib import Path


def test_import_contracts_are_kept(root: Path) -> None:
    """Layers import downwards only, services not each other, decisions nothing impure, and only the worker vLLM."""
    command = Path(sysconfig.get_path("scripts")) / "lint-imports"
    done = subprocess.run([command, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout
