"""examples/helpdesk_models: agents close the tickets of their topic from what was remembered, and no others'."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.forked_processes import run_forked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "helpdesk_models"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHAREDMEM_")}
    # A socket's path may not be long.
    environment["SHAREDMEM_DATA_DIR"] = str(tmp_path_factory.mktemp("h"))
    done = run_forked(str(EXAMPLE / "helpdesk.py"), "--json", environment=environment)
    assert done.returncode == 0, done.stderr[-2_000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_tickets_are_closed_with_what_was_remembered_of_their_topic(outcome: dict[str, Any]) -> None:
    assert len(outcome["closed"]) == 4
    for title, answer in outcome["closed"].items():
        assert ("fuser" if "printer" in title else "clock") in answer
    assert outcome["open"] == ["A desk lamp flickers"]
    assert outcome["most_urgent"] == "The login page is slow in the morning"


def test_each_change_is_on_the_feed(outcome: dict[str, Any]) -> None:
    assert outcome["changes"] == 9


def test_what_is_not_allowed_is_refused_with_what_to_do(outcome: dict[str, Any]) -> None:
    own, memory = outcome["refused"]

    assert re.match("actor 'otto' may not write 'helpdesk:ines:Draft:", own)
    assert "store.memory.add" in memory
