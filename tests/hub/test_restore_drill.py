"""docs/archives.md: restores are rehearsed in a place of their own, and everything that does not come back is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded_fixtures import is_there
from support.redis_process import RedisProcess

from sharedmem import Hub, InvalidError, NotFoundError, Settings
from sharedmem.archive.daily_exports import list_exports
from sharedmem.archive.files import ArchiveFooter, extend_footer, format_line
from sharedmem.hub.restore_drill import KeyChecksum, compare_checksums, drill_archive
from sharedmem.models import DurableRecord
from sharedmem.testing import fake_hub

LASTING = {"team:*": "session"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", embedder="hashing", embedded_modules=(), kind_rules=LASTING)


async def fill(hub: Hub) -> None:
    store = hub.store("team", actor="ann")
    await store.write("plan", {"topic": "tides"})
    await store.write("note", "soon gone", ttl=5000)
    await store.write("large", "x" * 400_000)
    for item in ("a", "b", "c"):
        await store.append("log", item)
    await store.hset("facts", "colour", "blue")
    await store.sadd("names", "Ann", "Bob")
    await store.incr("visits")
    await store.memory.add_many([f"The lift in house {number} is broken." for number in range(5)], dedup=False)
    await store.memory.add("", messages=[{"role": "user", "content": "Hello"}], ttl=5000)
    await store.graph.add_episode("Ada works at Acme.", group_id="people")
    await store.decisions.save_plan("desk", "BTC", "BUY", 0.5, "up", "rules")


@pytest.fixture
async def file(settings: Settings, tmp_path: Path) -> Path:
    """The archive of a namespace that holds something of everything."""
    folder = tmp_path / "exports"
    async with fake_hub(settings=settings.replace(durable_url=f"sqlite://{tmp_path}/kept.db")) as hub:
        await fill(hub)
        done = await hub.archive.export_daily("team", folder, compressed=False)
    return Path(done.file)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


async def test_a_sound_archive_comes_back_on_a_private_server(file: Path, settings: Settings) -> None:
    unused = settings.data_dir / "unused"
    report = await drill_archive(file, settings=settings.replace(data_dir=unused))

    assert (report.ok, report.differences, report.left_out.count) == (True, {}, 0)
    assert (report.namespace, report.missing, report.changed, report.unexpected) == ("team", 0, 0, 0)
    assert report.documents > report.keys > 10
    (stored,) = list_exports(file.parent)
    assert stored.drilled == report.at
    assert not is_there(unused), "the server in use is not started"


async def test_on_a_given_server_the_drill_leaves_nothing_behind(
    file: Path, settings: Settings, server: RedisProcess
) -> None:
    with server.client() as raw:
        raw.set("sm:{team}:shared:plan", "production")
        report = await drill_archive(str(file), settings=settings, server=server.url)

        assert report.ok
        assert raw.keys() == [b"sm:{team}:shared:plan"]
        assert raw.get("sm:{team}:shared:plan") == b"production"


def replace_text(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def add_document(file: Path, record: DurableRecord) -> None:
    """Add a document to an archive, such as the head of a hash whose field is not there."""
    *lines, end = file.read_bytes().splitlines(keepends=True)
    added = format_line(record)
    footer = extend_footer(ArchiveFooter.model_validate_json(end), [added], [record])
    file.write_bytes(b"".join([*lines, added, format_line(footer)]))


async def test_what_does_not_come_back_is_named_and_the_drill_has_failed(
    file: Path, settings: Settings, server: RedisProcess
) -> None:
    add_document(file, DurableRecord(key="team:ann:odd", type="hash", kind="ephemeral", version=1, stamp=1, size=1))

    report = await drill_archive(file, settings=settings, server=server.url)

    assert not report.ok
    assert (report.differences, report.changed) == ({"team:ann:odd": "changed"}, 1)
    (stored,) = list_exports(file.parent)
    assert stored.drilled is None


async def test_a_damaged_or_missing_archive_is_an_error(file: Path, settings: Settings) -> None:
    replace_text(file, "tides", "storm")
    with pytest.raises(InvalidError, match="differ from what was written"):
        await drill_archive(file, settings=settings)
    with pytest.raises(NotFoundError):
        await drill_archive(file.with_name("missing.jsonl"), settings=settings)


def test_keys_that_have_expired_need_not_come_back_and_all_others_do() -> None:
    archived = {"a": KeyChecksum(1, 5, 1_000), "b": KeyChecksum(1, 5, 90_000), "c": KeyChecksum(1, 5, 0)}

    assert compare_checksums(archived, {"b": KeyChecksum(1, 5, 90_500), "c": KeyChecksum(1, 5, 0)}, 10_000) == {}
    restored = {"b": KeyChecksum(1, 5, 0), "d": KeyChecksum(2, 5, 0)}
    assert compare_checksums(archived, restored, 10_000) == {"b": "changed", "c": "missing", "d": "unexpected"}
