"""docs/grpc.md: any language that speaks gRPC can take part; shown with Node, which reads memory.proto itself."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sharedmem import Hub
from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.grpc import GrpcAddress, MemoryServer, v1

HERE = Path(__file__).resolve().parents[2] / "support" / "node"
PROTO = Path(v1.__file__).parent / "memory.proto"
INSTALLING_S, RUNNING_S = 120, 30


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> Path:
    """The client with its packages, which are installed once and kept in pytest's cache."""
    if missing := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    if pytestconfig.cache is None:
        pytest.skip("pytest has no cache folder to install npm packages in")
    folder = pytestconfig.cache.mkdir("sharedmem-node")
    for name in ("package.json", "client.js"):
        shutil.copy(HERE / name, folder)
    if not (folder / "node_modules" / "@grpc" / "proto-loader").is_dir():
        _install(folder)
    return folder / "client.js"


def _install(folder: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALLING_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the packages within {INSTALLING_S} s")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install the packages: {(done.stderr or done.stdout).strip()[-200:]}")


async def run(program: Path, *arguments: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        "node", str(program), *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(RUNNING_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    seen: dict[str, Any] = json.loads(out)
    return seen


async def test_an_agent_in_another_language_decides_with_the_others(program: Path, hub: Hub, namespace: str) -> None:
    token, entry = new_token(Bearer.of(namespace, actor="node-1"))

    async with MemoryServer(hub, GrpcAddress(port=0), tokens=TokenFile([entry])) as server:
        seen = await run(program, server.target, str(PROTO), token)

    (plan,) = await hub.store(namespace).decisions.get_recent_plans("btc")
    (told,) = seen["plans"]
    same = ("plan_id", "plan_hash", "session_id", "symbol", "action", "confidence", "reasoning", "method")
    assert {name: told[name] for name in same} == plan.model_dump(include=set(same))
    assert not seen["again"]["saved"]
    assert [claim["started"] for claim in seen["claims"]] == [True, False]
    assert (seen["finished"]["state"], seen["finished"]["actor"]) == ("succeeded", "node-1")
    assert (seen["stats"]["win_rate"], seen["stats"]["duplicates_prevented"]) == (1, "2")
    assert [change["operation"] for change in seen["changes"]][:1] == ["plan.saved"]
    assert {change["actor"] for change in seen["changes"]} == {"node-1"}
    assert seen["refusals"] == {
        "twice": {"status": "ALREADY_EXISTS", "code": "already_executed"},
        "lost": {"status": "FAILED_PRECONDITION", "code": "claim_lost"},
        "bad": {"status": "INVALID_ARGUMENT", "code": "invalid"},
        "stranger": {"status": "UNAUTHENTICATED", "code": "unauthenticated"},
    }
