"""The example runs as its page says: what two processes said at once is all there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.forked_processes import run_forked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "openai_agents" / "shift_change.py"


def test_a_third_process_knows_what_two_others_were_told_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    # A server of its own, not that of who runs the tests; the path of a socket may not be long.
    environment = os.environ | {"SHAREDMEM_DATA_DIR": str(tmp_path_factory.mktemp("x"))}
    done = run_forked(str(EXAMPLE), environment=environment)

    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(" -> noted" in line for line in done.stdout.splitlines()) == 5
    assert "evening: What do you know? -> noted, 5 in all" in done.stdout
    assert "10 items in the session" in done.stdout
