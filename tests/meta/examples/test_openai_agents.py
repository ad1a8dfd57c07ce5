"""The example runs as its page says: what two processes said at once is all there."""

from __future__ import annotations

from pathlib import Path

from support.forked_processes import run_forked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "openai_agents" / "shift_change.py"


def test_a_third_process_knows_what_two_others_were_told_at_once() -> None:
    done = run_forked(str(EXAMPLE))

    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(" -> noted" in line for line in done.stdout.splitlines()) == 5
    assert "evening: What do you know? -> noted, 5 in all" in done.stdout
    assert "10 items in the session" in done.stdout
