"""What is generated is what the generators would write today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("generator", sorted(path.name for path in ROOT.glob("tools/generate_*.py")))
def test_generated_files_are_fresh(generator: str) -> None:
    command = [sys.executable, f"tools/{generator}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"run make generate:\n{done.stdout}{done.stderr}"
