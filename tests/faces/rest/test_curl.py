"""Other languages: a shell with curl and Node with fetch() use the REST face on a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.waiting import wait_until

from sharedmem import Hub
from sharedmem.faces.auth import Bearer
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.rest import RestServer, create_app
from sharedmem.faces.token_registry import TokenRegistry

HERE = Path(__file__).resolve().parents[2]
RUNNING_S = 60


class Served(NamedTuple):
    """A service that runs, and the token of its namespace."""

    server: RestServer
    token: str


@pytest.fixture
async def served(hub: Hub, namespace: str) -> AsyncIterator[Served]:
    registry = TokenRegistry(hub)
    token, entry = await registry.create(Bearer.of(namespace))
    async with RestServer(create_app(hub, admission=registry), ListenAddress(port=0), has_tokens=True) as server:
        yield Served(server, token)
    await registry.revoke(entry.id)


async def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        async with asyncio.timeout(RUNNING_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    return out.decode()


class Steps:
    """What the script has left.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def status(self, name: str) -> int:
        return int(self._text(f"{name}.status"))

    def header(self, name: str, header: str) -> str:
        lines = self._text(f"{name}.head").splitlines()
        return next(line.partition(": ")[2] for line in lines if line.lower().startswith(f"{header}: "))

    def data(self, name: str) -> Any:
        return json.loads(self._text(f"{name}.body"))

    def events(self, name: str) -> list[dict[str, str]]:
        blocks = self._text(f"{name}.body").split("\n\n")
        found = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
        return [fields for fields in found if "data" in fields]

    def _text(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="utf-8")


async def test_a_shell_with_curl_takes_part(served: Served, namespace: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")

    await run("sh", str(HERE / "faces" / "rest" / "session.sh"), served.server.url, served.token, str(tmp_path))

    steps = Steps(tmp_path)
    names = ("write", "read", "unchanged", "replace", "late", "absent", "elsewhere", "stranger", "task", "again")
    assert [steps.status(name) for name in names] == [200, 200, 304, 200, 412, 404, 403, 401, 201, 201]
    assert steps.data("read")["value"] == {"name": "news", "ü": [1, 2.5]}
    assert steps.header("read", "etag") == f'"{steps.data("write")["version"]}"'
    for name in ("late", "absent", "elsewhere", "stranger"):
        assert steps.header(name, "content-type") == "application/problem+json"
        assert steps.data(name)["status"] == steps.status(name)
    assert 'error="invalid_token"' in steps.header("stranger", "www-authenticate")
    assert steps.data("task") == steps.data("again")
    keys = [json.loads(one["data"]).get("key") for one in steps.events("resumed")]
    assert keys == [None, f"{namespace}:shared:meanwhile"]
    assert [steps.status(name) for name in ("export", "import")] == [200, 200]
    assert steps.data("import")["namespace"] == namespace


async def test_an_agent_in_another_language_takes_part_with_fetch(served: Served, namespace: str) -> None:
    seen = json.loads(await run("node", str(HERE / "support" / "node" / "rest.js"), served.server.url, served.token))

    assert (seen["written"]["status"], seen["read"]["status"]) == (200, 200)
    assert seen["read"]["data"]["value"] == seen["value"]
    assert seen["read"]["data"]["key"] == f"{namespace}:shared:plan/today ü"
    assert seen["read"]["tag"] == f'"{seen["written"]["data"]["version"]}"'
    assert (seen["same"]["status"], seen["same"]["data"]) == (304, None)
    for name, status, code in (("late", 412, "precondition_failed"), ("stranger", 401, "unauthenticated")):
        assert seen[name]["type"] == "application/problem+json"
        assert (seen[name]["status"], seen[name]["data"]["code"]) == (status, code)
    assert [change["data"]["key"] for change in seen["changes"]] == [f"{namespace}:shared:k{n}" for n in (1, 2, 3)]


async def test_a_server_that_ends_says_so_to_who_follows_it(served: Served) -> None:
    follower = asyncio.create_task(
        run("curl", "-sN", "-H", f"authorization: Bearer {served.token}", f"{served.server.url}/api/v1/changes")
    )
    streams = served.server._app.state.service
    await wait_until(lambda: followers() > 0 or follower.done(), description="curl follows")

    await served.server.stop()
    text = await follower

    assert streams.closing.is_set()
    assert "event: started" in text
    assert "event: closing" in text


async def test_a_client_that_leaves_is_followed_no_more(served: Served) -> None:
    process = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "-H", f"authorization: Bearer {served.token}", f"{served.server.url}/api/v1/changes"),
        stdout=subprocess.DEVNULL,
    )
    await wait_until(lambda: followers() > 0, description="curl follows")

    process.kill()
    await process.wait()

    await wait_until(lambda: followers() == 0, description="its watcher has ended")


def followers() -> int:
    """Streams that are sent in this process."""
    return sum("_pump" in repr(task.get_coro()) for task in asyncio.all_tasks())
