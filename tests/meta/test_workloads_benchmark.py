"""The measurement of what a team saves does what docs/workloads.md says of it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "workloads.py"
PAGE = "before\n<!-- workloads: begin -->\nold\n<!-- workloads: end -->\nafter\n"


# A measurement of three teams takes half a minute.
@pytest.mark.nightly
@pytest.mark.usefixtures("redis_url")
async def test_three_teams_are_measured_and_at_the_usual_thresholds_nothing_goes_wrong(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "out.json"
    page.write_text(PAGE)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, PROGRAM, "--quick", "--sizes", "200", "--json", results, "--page", page),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaints = await process.communicate()

    assert process.returncode == 0, complaints.decode()
    told = json.loads(results.read_text())
    assert {one["workload"] for one in told["savings"]} == {"support desk", "research team", "coding agents"}
    for one in told["savings"]:
        assert 0 < one["saved"] <= one["repeated"] + one["false_hits"]
        assert one["false_hits"] == 0 or one["threshold"] == 0.9
    for one in told["deduplication"]:
        assert one["found"] > 0.3
        assert one["false_merges"] == 0 or one["threshold"] < 0.95
    assert {(one["size"], one["mode"]) for one in told["searches"]} == {(200, "by meaning"), (200, "hybrid")}
    text = page.read_text()
    assert text.startswith("before\n<!-- workloads: begin -->\n\nPython ")
    assert text.endswith("\n<!-- workloads: end -->\nafter\n")
    assert "| support desk | calibrated |" in text
