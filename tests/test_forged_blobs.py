"""A reference to a blob that a raw client has forged touches no file but those of its own key."""

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
    async with fake_hub(server=server, settings=Settings(data_dir=tmp_path / "data")) as opened:
        yield opened


@pytest.fixture(params=["outside", "of another key", "the key file", "the folder itself"])
async def victim(request: pytest.FixtureRequest, hub: Hub, server: fakeredis.FakeServer, tmp_path: Path) -> Path:
    """A file that the reference in `research:shared:forged` names but must not reach."""
    store = hub.store("research")
    await store.write("theirs", "x" * 300_000)
    await store.write("forged", "y" * 300_000)
    (blobs,) = (tmp_path / "data" / "blobs").glob("*/ns-research")
    outside = tmp_path / "outside"
    outside.write_bytes(SECRET)
    of_key = {path.read_text(): path for path in blobs.glob("*/key")}
    theirs = next(path for path in of_key["research:shared:theirs"].parent.iterdir() if path.name != "key")
    own = of_key["research:shared:forged"]
    path = {
        "outside": outside,
        "of another key": theirs,
        "the key file": own,
        "the folder itself": own.parent / "..",
    }[request.param]
    body = path.read_bytes() if path.is_file() else b""
    reference = {
        "type": "blob",
        "path": str(path),
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
    return path


async def test_a_forged_reference_is_not_followed(hub: Hub, victim: Path) -> None:
    with pytest.raises(NotFoundError, match="names no file of this key"):
        await hub.store("research").read("forged")

    assert is_there(victim)


async def test_deleting_a_key_with_a_forged_reference_removes_no_foreign_file(hub: Hub, victim: Path) -> None:
    assert await hub.store("research").delete("forged")

    assert is_there(victim)


async def test_writing_over_a_forged_reference_removes_no_foreign_file(hub: Hub, victim: Path) -> None:
    await hub.store("research").write("forged", "mended")

    assert is_there(victim)
    assert await hub.store("research").read("forged") == "mended"
