"""The public API changes only on purpose: names and signatures are compared with tests/meta/public_api.txt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_public_api_is_the_one_that_was_agreed_on() -> None:
    command = [sys.executable, "tools/api_snapshot.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, f"the public API changed:\n{done.stdout}{done.stderr}"


def test_everything_listed_for_import_exists() -> None:
    import sharedmem

    missing = [name for name in sharedmem.__all__ if not hasattr(sharedmem, name)]

    assert missing == []
    assert sorted(sharedmem.__all__) == sharedmem.__all__
