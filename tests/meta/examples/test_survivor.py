"""The example runs as its page says: with a durable tier nothing is missing after Redis is lost, without one it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.forked_processes import run_forked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "survivor" / "redis_is_lost.py"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_forked(str(EXAMPLE), *words)


def test_with_a_durable_tier_the_work_goes_on() -> None:
    done = run()

    assert done.returncode == 0, done.stderr
    assert "steps done: ['collect', 'compare', 'write']" in done.stdout
    assert "chat: ['collect: done', 'compare: done', 'write: done']" in done.stdout
    assert "the plan of before is known" in done.stdout


def test_control_without_one_it_begins_anew() -> None:
    done = run("--without")

    assert done.returncode == 1
    assert "steps done: ['compare', 'write']" in done.stdout
    assert "made a second time" in done.stdout
