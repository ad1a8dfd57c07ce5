"""What is optional is missed in one sentence: without its extras the package is there, and names what to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.python_without_extras import brought_by, extras

_TESTS = Path(__file__).resolve().parents[1]
_REMEDY = re.compile(r"pip install 'sharedmem-hub\[([a-z-]+)\]'")
# What is of no use without its extra; everything else can be imported, and refuses when it is asked for.
_NEEDS_AN_EXTRA = {
    "sharedmem.durable.cosmos.account": "cosmos",
    "sharedmem.faces.cli": "cli",
    "sharedmem.faces.grpc": "grpc",
    "sharedmem.faces.mcp": "mcp",
    "sharedmem.faces.metrics": "metrics",
    "sharedmem.faces.rest": "server",
    "sharedmem.hub.embeddings": "memory",
    "sharedmem.integrations.langgraph": "langgraph",
    "sharedmem.integrations.openai_agents": "openai-agents",
    "sharedmem.testing.fake_connection": "testing",
    "sharedmem.testing.pytest_required": "testing",
    "sharedmem.testing.store_fixtures": "testing",
}

_WITH_MOST_MODULES = ("cli", "cosmos", "memory", "server", "testing")

# Parts of memory import their libraries plainly: a store refuses before it imports any of them.
_MISSES_MEMORY = re.compile(r"ModuleNotFoundError: No module named '(numpy|Stemmer)'")
_OF_MEMORY = {
    *("cache", "graph", "index_maintenance", "indexes", "knowledge_context", "memory", "om", "providers", "search"),
    *("recall", "synthesis", "testing"),
    "redis.vectors",
    *("api.graph", "api.memory", "api.synthesis"),
}


def processes(*tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """What processes found out in which only some extras are installed."""
    done = subprocess.run(
        [sys.executable, "-m", "support.python_without_extras", *map(json.dumps, tasks)],
        cwd=_TESTS,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(tasks), done.stderr
    return found


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.nightly)])
def installs(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """By extra: what can be imported and run where only that one is installed; "" is none."""
    names = ["", *(extras() if request.param == "all" else _WITH_MOST_MODULES)]
    return dict(zip(names, processes(*({"extras": [name] if name else []} for name in names)), strict=True))


def refused(install: dict[str, Any]) -> dict[str, str]:
    return {module: why for module, why in install["imported"].items() if why}


def extra_needed(why: str) -> str | None:
    """The extra without which an import ended with this error; None where the error names none."""
    named = _REMEDY.search(why) if why.startswith("UnsupportedError: ") else None
    return named[1] if named else "memory" if _MISSES_MEMORY.match(why) else None


def test_without_extras_every_module_can_be_imported_or_names_the_extra_it_needs(
    installs: dict[str, dict[str, Any]],
) -> None:
    found = refused(installs[""])

    assert installs[""]["imported"]["sharedmem.sync"] == ""
    for module, why in found.items():
        if _MISSES_MEMORY.match(why):
            assert any(f"{module}.".startswith(f"sharedmem.{part}.") for part in _OF_MEMORY), (module, why)
        else:
            of_a_suite = module.endswith("_suite") and "testing"
            assert extra_needed(why) == (of_a_suite or _NEEDS_AN_EXTRA.get(module)), (module, why)


def test_with_one_extra_its_modules_can_be_imported_and_no_other_becomes_worse(
    installs: dict[str, dict[str, Any]],
) -> None:
    without = refused(installs[""])

    assert {"", *_WITH_MOST_MODULES} <= installs.keys()
    assert {"graph", "synthesis", "grpc", *_WITH_MOST_MODULES} <= set(extras())
    for extra, install in installs.items():
        there = brought_by(extra) if extra else set()
        found = refused(install)
        assert {module for module, why in without.items() if extra_needed(why) not in there} <= found.keys(), extra
        assert {module: why for module, why in found.items() if extra_needed(why) in there | {None}} == {}, extra


def test_the_help_of_every_command_needs_no_extra_but_that_of_the_command_line(
    installs: dict[str, dict[str, Any]],
) -> None:
    for extra, install in installs.items():
        helped = install["helped"]
        assert bool(helped) == (bool(extra) and "cli" in brought_by(extra)), extra
        assert not helped or {"graph", "notes", "serve rest", "serve grpc", "metrics"} <= helped.keys()
        assert {words: wrong for words, wrong in helped.items() if wrong} == {}, extra


def test_without_its_extra_the_console_script_says_which_one_to_install() -> None:
    program = """
import sys
from sharedmem.__main__ import main

sys.stderr = sys.stdout
try:
    main()
except SystemExit as end:
    print("exit", end.code)
"""
    (found,) = processes({"extras": [], "program": program})

    assert found["printed"].splitlines() == [
        "sharedmem: the command line is not available here: pip install 'sharedmem-hub[cli]'",
        "exit 8",
    ]


def test_a_command_that_needs_an_extra_says_so_in_one_sentence(redis_url: str, tmp_path: Path) -> None:
    url = ["--url", redis_url, "--data-dir", str(tmp_path)]
    lines = {
        "graph": [*url, "graph", "groups"],
        "synthesis": [*url, "notes", "search", "tides", "--app", "a", "--user", "u"],
        "server": [*url, "serve", "rest", "--port", "0"],
        "grpc": [*url, "serve", "grpc", "--port", "0"],
        "metrics": [*url, "metrics", "--once"],
        "memory": [*url, "memories", "search", "tides"],
        "archive": [*url, "export", "bare", str(tmp_path / "all.jsonl.zst")],
    }

    something = [*url, "--namespace", "bare", "set", "topic", "tides", "--ttl", "60"]
    (found,) = processes({"extras": ["cli"], "lines": [something, *lines.values()]})

    assert found["ran"].pop(0) == [0, ""]
    for extra, (code, said) in zip(lines, found["ran"], strict=True):
        assert code == 8, (extra, said)
        assert said.startswith("sharedmem: "), said
        assert said.count("\n") == 1, said
        assert f"pip install 'sharedmem-hub[{extra}]'" in said


_PROGRAM = """
from sharedmem import UnsupportedError
from sharedmem.sync import Hub

with Hub.open({url!r}) as hub:
    store = hub.store("bare", actor="ada")
    print(store.write("topic", "tides", ttl=60) > 0, store.read("topic"))
    for name in ("memory", "cache", "graph", "synthesis"):
        try:
            getattr(store, name)
        except UnsupportedError as error:
            print(error)
    store.clear()
"""


def test_the_sync_api_works_without_extras_and_refuses_memory_graphs_and_notes_when_they_are_asked_for(
    redis_url: str,
) -> None:
    (found,) = processes({"extras": [], "program": _PROGRAM.format(url=redis_url)})

    assert found["printed"].splitlines() == [
        "True tides",
        "semantic memory is not available here: pip install 'sharedmem-hub[memory]'",
        "the semantic cache is not available here: pip install 'sharedmem-hub[memory]'",
        "the knowledge graph is not available here: pip install 'sharedmem-hub[graph]'",
        "synthesis is not available here: pip install 'sharedmem-hub[synthesis]'",
    ]
