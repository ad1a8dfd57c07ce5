"""A reference to a blob that a raw client has forged reaches no content and removes nothing but its own key's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import fakeredis
import pytest

from sharedmem import Hub, NotFoundError, Settings
from sharedmem.testing import fake_hub

SECRET = b'"not a blob"'


def is_there(path: Path) -> bool:
    return path.exists()


@pytest.fixture
def server() -> fakeredis.FakeServer:
    return fakeredis.FakeServer()


@pytest.fixture
async def hub(server: fakeredis.FakeServer, tmp_path: Path) -> AsyncIterator[Hub]:
    async with fake_hub(server=server, settings=Settings(data_dir=tmp_path)) as opened:
        yield opened


@pytest.fixture(params=["outside", "of another key", "of another namespace", "content of another key", "the folder"])
async def victim(request: pytest.FixtureRequest, hub: Hub, server: fakeredis.FakeServer, tmp_path: Path) -> Path:
    """A file that the reference in `research:shared:forged` names but must not reach."""
    await hub.store("research").write("theirs", "x" * 300_000)
    await hub.store("secret").write("theirs", "z" * 300_000)
    await hub.store("research").write("forged", "y" * 300_000)
    (blobs,) = (tmp_path / "blobs").iterdir()
    outside = tmp_path / "outside"
    outside.write_bytes(SECRET)
    by_key = {json.loads(path.read_text())["key"]: path for path in blobs.glob("ns-*/*/*-*")}
    theirs, own = by_key["research:shared:theirs"], by_key["research:shared:forged"]
    file, path = {
        "outside": (outside, str(outside)),
        "of another key": (theirs, name(blobs, theirs)),
        "of another namespace": (by_key["secret:shared:theirs"], name(blobs, by_key["secret:shared:theirs"])),
        "content of another key": (theirs.parent / "content", f"{name(blobs, theirs.parent)}/{own.name}"),
        "the folder": (theirs, f"{name(blobs, own.parent)}/../{theirs.parent.name}/{own.name}"),
    }[request.param]
    await forge(server, path, (theirs.parent / "content").read_bytes())
    return file


def name(blobs: Path, path: Path) -> str:
    return path.relative_to(blobs).as_posix()


async def forge(server: fakeredis.FakeServer, path: str, body: bytes) -> None:
    reference = {
        "type": "blob",
        "path": path,
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "content_type": "application/json",
        "codec": "json",
    }
    raw = fakeredis.aioredis.FakeRedis(server=server)
    await raw.set(
        "sm:{research}:shared:forged", f"1795259791035395 boss blob\n{json.dumps(reference)}".replace(": ", ":")
    )
    await raw.aclose()


async def test_a_forged_reference_is_not_followed(hub: Hub, victim: Path) -> None:
    with pytest.raises(NotFoundError, match=r"names another blob|it is not in blob folder"):
        await hub.store("research").read("forged")

    assert is_there(victim)


async def test_deleting_a_key_with_a_forged_reference_removes_no_foreign_file(hub: Hub, victim: Path) -> None:
    assert await hub.store("research").delete("forged")

    assert is_there(victim)


async def test_writing_over_a_forged_reference_removes_no_foreign_file(hub: Hub, victim: Path) -> None:
    await hub.store("research").write("forged", "mended")

    assert is_there(victim)
    assert await hub.store("research").read("forged") == "mended"
