"""The example runs as its page says: what was done before the process was killed is not done again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.forked_processes import run_forked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "langgraph_research" / "research.py"


def test_a_killed_graph_goes_on_where_it_was(tmp_path_factory: pytest.TempPathFactory) -> None:
    # A server of its own, not that of who runs the tests; the path of a socket may not be long.
    environment = os.environ | {"SHAREDMEM_DATA_DIR": str(tmp_path_factory.mktemp("x"))}
    done = run_forked(str(EXAMPLE), environment=environment)

    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.split("killed.")
    assert [line.split()[-1] for line in first.splitlines() if "searching" in line] == ["almanac", "buoys", "harbour"]
    assert [line.split()[-1] for line in second.splitlines() if "searching" in line] == ["harbour"]
    assert "it asks: publish 3 findings?" in second
    assert "report: almanac: tides rise 4.2 m; buoys: B-17 measured 4.3 m; harbour: the gate holds 5 m" in second
