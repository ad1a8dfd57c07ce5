"""The distribution sharedmem-client: built from the hub's sources, it works with what its metadata requires alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.rest_server import running_rest_server

from sharedmem import __version__

PROJECT = Path(__file__).resolve().parents[2] / "packages" / "sharedmem-client"

# Arguments: folder of the wheel, folder of installed packages, names that may be imported, URL of a service.
PROGRAM = """
import asyncio, json, sys
from importlib.abc import MetaPathFinder

wheel, installed, importable, url = sys.argv[1:]
known = {*json.loads(importable), *sys.stdlib_module_names}

class NothingElse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in known and not name.startswith("_sysconfigdata_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.path += [wheel, installed]
sys.meta_path.insert(0, NothingElse())

from sharedmem_client import SharedMemoryClient, verify_webhook
from sharedmem_client.client.sync import SharedMemoryClient as BlockingClient
from sharedmem_client.errors import LockHeldError, NotFoundError, UsageError
from sharedmem_client.models import MemoryItem, Note, SynthesisTask

MESSAGES = [{"role": "user", "content": "I moved to York."}]

async def ask():
    async with SharedMemoryClient(url) as memory:
        await memory.call("value.write", key="findings", value={"topic": "tides"})
        task = await memory.add_memory(app_id="shop", user_id="ada", messages=MESSAGES)
        assert isinstance(task, SynthesisTask), task
        try:
            await memory.get_task_status("0000000000000009")
        except NotFoundError as error:
            return task.task_id, str(error)

async def two_loops():
    memory = SharedMemoryClient(url)
    await memory.warm_up()
    def from_another():
        try:
            asyncio.run(memory.warm_up())
        except UsageError as error:
            return str(error)
    told = await asyncio.to_thread(from_another)
    await memory.close()
    return told

async def work():
    async with SharedMemoryClient(url) as client:
        one = await client.memory.add("The lift in house four is broken")
        found = await client.memory.search("what is broken?", limit=1)
        assert isinstance(found.hits[0].item, MemoryItem), found
        grant = await client.lease.acquire("index", lease=60)
        try:
            await client.lease.acquire("index")
        except LockHeldError:
            is_locked = True
        await client.lease.release("index", grant.id)
        await client.queue.put("jobs", {"doc": 17})
        task = await client.queue.claim("jobs")
        await client.queue.ack("jobs", task.id, task.token, result="done")
        plan = await client.plan.save_if_new("desk", "BTC", "BUY", 0.8, "the trend is strong")
        again = await client.plan.save_if_new("desk", "BTC", "BUY", 0.8, "the trend is strong")
        return {"memory": found.hits[0].item.id == one.id, "lock": is_locked, "payload": task.payload,
                "result": (await client.queue.result("jobs", task.id)).value, "plan": [plan.saved, again.saved]}

task_id, missing = asyncio.run(ask())
with BlockingClient(url) as memory:
    found = memory.call("value.read", key="findings")
    same = memory.get_task_status(task_id).task_id == task_id
    note = Note(id="n1", app_id="shop", user_id="ada", memory_note="lives in York",
                created_at="2026-01-01T00:00:00Z", updated_at="2026-01-01T00:00:00Z")
    page = memory.generate_evolution_graph([note], "html").text
print(json.dumps({"found": found, "same": same, "missing": missing, "drawn": "lives in York" in page,
                  "forged": verify_webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", {}, b""),
                  "two_loops": asyncio.run(two_loops()), "work": asyncio.run(work()),
                  "loaded": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def build(project: Path, target: str, into: Path) -> Path:
    """The file that hatchling makes of a project."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = into.iterdir()
    return made


def unpacked(wheel: Path, into: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    return into


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unpacked wheel."""
    return unpacked(build(PROJECT, "wheel", tmp_path_factory.mktemp("built")), tmp_path_factory.mktemp("wheel"))


def metadata_of(wheel: Path) -> Distribution:
    (folder,) = wheel.glob("*.dist-info")
    return Distribution.at(folder)


def needed_distributions(requirements: Iterable[str]) -> set[str]:
    """The distributions that pip would install for some requirements, by their canonical names."""
    needed: set[str] = set()
    waiting = [*requirements]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in needed and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            needed.add(name)
            waiting += distribution(name).requires or ()
    return needed


def test_it_requires_httpx2_and_pydantic_alone_in_the_version_of_the_hub(wheel: Path) -> None:
    metadata = metadata_of(wheel)

    assert {Requirement(one).name for one in metadata.requires or ()} == {"httpx2", "pydantic"}
    assert metadata.version == __version__


async def test_it_works_with_what_it_requires_alone(wheel: Path) -> None:
    needed = needed_distributions(metadata_of(wheel).requires or ())
    homes = packages_distributions().items()
    importable = {name for name, made_by in homes if needed.intersection(map(canonicalize_name, made_by))}
    assert importable.isdisjoint({"sharedmem", "redis", "hiredis", "msgpack", "orjson", "numpy", "yaml"})

    async with running_rest_server() as (server, _):
        names = json.dumps([*importable, "sharedmem_client"])
        command = ["-I", "-S", "-B", "-c", PROGRAM, str(wheel), sysconfig.get_path("purelib"), names, server.url]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 0, err.decode()
    told = json.loads(out)
    assert "sharedmem" not in told.pop("loaded")
    assert "0000000000000009" in told.pop("missing")
    assert "sharedmem_client.client.sync" in told.pop("two_loops")
    assert told.pop("work") == {
        "memory": True,
        "lock": True,
        "payload": {"doc": 17},
        "result": "done",
        "plan": [True, False],
    }
    assert told == {"found": {"topic": "tides"}, "same": True, "drawn": True, "forged": False}


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(PROJECT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (project,) = (tmp_path / "sources").iterdir()

    again = unpacked(build(project, "wheel", tmp_path / "wheel"), tmp_path / "unpacked")

    def content(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert content(again) == content(wheel)
