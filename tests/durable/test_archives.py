"""Archives: whatever a namespace holds goes into a file and comes back as it was, in whatever order and however often.

docs/archives.md promises it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from backports import zstd
from support.contexts import context_of

from sharedmem import ConflictError, Hub, InvalidError, NotFoundError, Settings, SharedMemoryStore, UnsupportedError
from sharedmem.archive import files as archive_files
from sharedmem.archive.files import UnpackLimits
from sharedmem.archive.transfer import ProgressStep
from sharedmem.testing import fake_hub

LASTING = {"research:*": "knowledge", "desk:*": "session"}
LARGE = "x" * 400_000
Opened = Callable[[], AbstractAsyncContextManager[Hub]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture(params=["without a tier", "with a tier, nothing lasts", "with a tier, all lasts"])
async def fake(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub on fakeredis."""
    if request.param != "without a tier":
        settings = settings.replace(durable_url=f"sqlite://{tmp_path}/kept.db")
    if request.param == "with a tier, all lasts":
        settings = settings.replace(kind_rules=LASTING)
    async with fake_hub(settings=settings) as hub:
        yield hub


@pytest.fixture
def research(fake: Hub) -> SharedMemoryStore:
    return fake.store("research")


async def fill(store: SharedMemoryStore) -> None:
    """Something of every type, coded in every way."""
    await store.write("plan", {"topic": "tides", "weights": [1, 2.5, None, True]})
    await store.write("moment", datetime(2026, 3, 1, 12, tzinfo=UTC), ttl=5000)
    await store.write("id", UUID(int=7))
    await store.write("bytes", b"\x00\xff\n")
    await store.write("large", LARGE)
    await store.write("ünïcode: spaces ✓".replace(":", ""), "ж")
    await store.incr("counter", 41)
    for item in (1, "two", b"three", {"four": 4.5}):
        await store.append("list", item)
    await store.hset("hash", mapping={"plain": 1, "coded": b"\x01\x02", "a b\nc": [1]})
    await store.sadd("set", 1, "two", b"three")
    await store.hset("wide", mapping={f"field-{n}": n for n in range(1500)})
    await store.sadd("many", *range(1500))
    await store.expire("hash", 7000)


async def everything(store: SharedMemoryStore) -> dict[str, Any]:
    """All that the store can tell of what `fill` has put there."""
    values = {key: await store.entry(key) for key in ("plan", "moment", "id", "bytes", "large")}
    told: dict[str, Any] = {
        key: (entry.value, entry.version, entry.actor, entry.created) for key, entry in values.items() if entry
    }
    told["counter"] = await store.read("counter")
    told["list"] = await store.read_list("list")
    for key in ("hash", "wide"):
        told[key] = await store.hgetall(key)
    for key in ("set", "many"):
        told[key] = await store.smembers(key)
    return told


def lines(file: Path) -> list[dict[str, Any]]:
    """The documents of a plain archive, in an order that does not depend on the server's."""
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert (found[0]["sharedmem"], found[-1]["sharedmem"]) == ("archive", "end")
    return sorted(found[1:-1], key=lambda one: (one["key"], one.get("element", ""), one["type"]))


def as_kept(document: dict[str, Any]) -> dict[str, Any]:
    """Without what says when the tier took it: what was deleted comes back as a new change."""
    return {name: part for name, part in document.items() if name not in {"stamp", "floor"}}


async def drained(hub: Hub) -> None:
    if hub.settings.durable_url is not None:
        await hub.durable.drain()


# -- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst"])
async def test_every_type_comes_back_as_it_was(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path, suffix: str
) -> None:
    await fill(research)
    await drained(fake)
    before = await everything(research)
    file = tmp_path / f"a.{suffix}"
    exported = await fake.archive.export("research", file)

    await research.clear()
    imported = await fake.archive.import_(file)

    assert (imported.documents, imported.imported) == (exported.documents, exported.documents)
    assert (imported.older, imported.skipped, exported.left_out.count) == (0, 0, 0)
    assert await everything(research) == before
    assert 4000 < (await research.ttl("moment") or 0) <= 5000
    assert 6000 < (await research.ttl("hash") or 0) <= 7000


async def test_another_export_gives_the_same_lines(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await fill(research)
    await drained(fake)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    await fake.archive.export("research", first)

    await research.clear()
    await fake.archive.import_(first)
    await fake.archive.export("research", second)

    if fake.settings.kind_rules == LASTING:
        assert [*map(as_kept, lines(second))] == [*map(as_kept, lines(first))]
    else:
        assert lines(second) == lines(first)


async def test_what_waits_for_the_tier_is_exported_as_it_is_now(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    await fill(research)
    await drained(fake)
    await research.append("list", "five")
    await research.delete("plan")
    await research.write("id", 8)

    await fake.archive.export("research", tmp_path / "a.jsonl")
    await research.clear()
    await fake.archive.import_(tmp_path / "a.jsonl")

    assert await research.read_list("list") == [1, "two", b"three", {"four": 4.5}, "five"]
    assert (await research.read("plan"), await research.read("id")) == (None, 8)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst"])
async def test_importing_twice_changes_nothing(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path, suffix: str
) -> None:
    await fill(research)
    file = tmp_path / f"a.{suffix}"
    await fake.archive.export("research", file)
    await research.clear()
    await fake.archive.import_(file)
    before = await everything(research)

    again = await fake.archive.import_(file)

    assert (again.imported, again.older) == (0, again.documents)
    assert await everything(research) == before


async def test_nothing_older_replaces_anything_newer(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await research.write("plan", "old")
    await research.append("log", "one")
    await fake.archive.export("research", tmp_path / "a.jsonl")
    await research.write("plan", "new")
    await research.append("log", "two")

    await fake.archive.import_(tmp_path / "a.jsonl")

    assert await research.read("plan") == "new"
    assert await research.read_list("log") == ["one", "two"]


async def test_versions_go_on_above_those_of_the_archive(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    version = await research.write("plan", 1)
    file = tmp_path / "a.jsonl"
    await fake.archive.export("research", file)
    later = version + 3_600_000_000
    file.write_text(file.read_text().replace(str(version), str(later)))
    _seal(file)

    await fake.archive.import_(file)

    entry = await research.entry("plan")
    assert entry is not None
    assert (entry.version, await research.write("plan", 2) > later) == (later, True)


async def test_what_has_expired_meanwhile_is_skipped(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await research.write("short", 1, ttl=1000)
    file = tmp_path / "a.jsonl"
    await fake.archive.export("research", file)
    await research.clear()
    documents = lines(file)
    file.write_text(file.read_text().replace(str(documents[0]["expires"]), "1000"))
    _seal(file)

    imported = await fake.archive.import_(file)

    assert (imported.skipped, imported.imported) == (1, 0)
    assert await research.read("short") is None


async def test_structures_give_way_when_asked(settings: Settings, tmp_path: Path) -> None:
    async with fake_hub(settings=settings) as hub:
        store = hub.store("research")
        await store.append("log", "one")
        await store.incr("count")
        await hub.archive.export("research", tmp_path / "a.jsonl")
        await store.append("log", "two")
        await store.incr("count")

        await hub.archive.import_(tmp_path / "a.jsonl", replace=True)

        assert (await store.read_list("log"), await store.read("count")) == (["one"], 1)


async def test_a_restored_key_is_announced(settings: Settings, tmp_path: Path) -> None:
    async with fake_hub(settings=settings) as hub:
        store = hub.store("research")
        await store.write("plan", 1)
        await hub.archive.export("research", tmp_path / "a.jsonl")
        await store.delete("plan")

        async with asyncio.timeout(60):
            changes = store.watch("plan")
            heard = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await hub.archive.import_(tmp_path / "a.jsonl")
            change = await heard
            await changes.aclose()  # type: ignore[attr-defined]  # it is an async generator

        assert (change.key, change.operation) == ("research:shared:plan", "restore")


async def test_a_real_server_gives_back_what_it_was_given(
    hub: Hub, store: SharedMemoryStore, namespace: str, tmp_path: Path
) -> None:
    await fill(store)
    before = await everything(store)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    await hub.archive.export(namespace, first)
    await store.clear()

    await hub.archive.import_(first)

    assert await everything(store) == before
    await hub.archive.export(namespace, second)
    assert lines(second) == lines(first)


async def test_plans_and_executions_go_from_tier_to_tier(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    one = settings.replace(durable_url=f"sqlite://{tmp_path}/one.db")
    async with fake_hub(settings=one) as hub:
        log = hub.store("trading", actor="ada").decisions
        short = await log.save_plan("desk", "BTC", "BUY", 0.75, "the trend is strong", "llm")
        claim = await log.begin_execution("desk", short)
        await log.finish("desk", short, claim.fence, status="success", order_id="o-1", order_size_usdt=1.0)
        plans, stats = await log.get_recent_plans("desk"), await log.get_execution_stats("desk")
        await hub.archive.export("trading", file)

    other = settings.replace(durable_url=f"sqlite://{tmp_path}/other.db")
    async with fake_hub(settings=other) as hub:
        await hub.archive.import_(file)

        log = hub.store("trading", actor="bob").decisions
        assert (await log.get_recent_plans("desk"), await log.get_execution_stats("desk")) == (plans, stats)

    async with fake_hub(settings=settings) as hub:
        done = await hub.archive.import_(file)

        assert (done.imported, done.skipped) == (0, done.documents)
        assert "needs a durable store" in next(iter(done.left_out.reasons.values()))


# -- progress, names, refusals --------------------------------------------------------------------


async def test_progress_tells_what_is_done_and_what_there_is(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    await fill(research)
    steps: list[ProgressStep] = []

    await fake.archive.export("research", tmp_path / "a.jsonl", progress=steps.append)
    await fake.archive.import_(tmp_path / "a.jsonl", progress=steps.append)

    assert {step.doing for step in steps} == {"exporting", "checking", "importing"}
    assert steps[-1].done <= (steps[-1].total or 0)


async def test_an_archive_that_exists_stays_unless_it_is_to_give_way(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    await research.write("plan", 1)
    await fake.archive.export("research", tmp_path / "a.jsonl")

    with pytest.raises(ConflictError, match="exists already"):
        await fake.archive.export("research", tmp_path / "a.jsonl")

    await fake.archive.export("research", tmp_path / "a.jsonl", replace=True)
    assert [path for path in ("a.jsonl.part", "a.jsonl.checkpoint") if (tmp_path / path).exists()] == []


async def test_a_namespace_that_never_was_has_no_archive(fake: Hub, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing was ever written"):
        await fake.archive.export("nowhere", tmp_path / "a.jsonl")


async def test_what_is_not_ours_is_left_out_and_told(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await research.write("plan", 1)
    await drained(fake)
    line = context_of(research).client
    await line.call("ZADD", "sm:{research}:shared:ranks", 1, "a")
    await line.call("SET", b"sm:{research}:shared:\xff", "x")
    await line.call("HSET", "sm:{research}:shared:odd", b"\xff", "x")

    exported = await fake.archive.export("research", tmp_path / "a.jsonl")

    assert (exported.keys, exported.left_out.count) == (1, 3)
    assert "which sharedmem does not use" in exported.left_out.reasons["research:shared:ranks"]


async def test_the_archive_of_another_namespace_is_refused(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    await research.write("plan", 1)
    await fake.archive.export("research", tmp_path / "a.jsonl")

    with pytest.raises(InvalidError, match="is of namespace 'research', not of 'desk'"):
        await fake.archive.import_(tmp_path / "a.jsonl", namespace="desk")


def _seal(file: Path) -> None:
    """Give changed lines the last line that belongs to them."""
    first, *documents, last = file.read_bytes().splitlines()
    footer = json.loads(last) | {"digest": archive_files._extend_digest(archive_files._EMPTY_DIGEST, documents)}
    end = json.dumps(footer, separators=(",", ":")).encode()
    file.write_bytes(b"\n".join([first, *documents, end, b""]))


async def test_an_archive_writes_no_key_of_the_house(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await research.write("plan", 1)
    file = tmp_path / "a.jsonl"
    await fake.archive.export("research", file)
    file.write_text(file.read_text().replace("research:shared:plan", "research:$clock"))
    _seal(file)

    with pytest.raises(InvalidError, match="reserved for sharedmem"):
        await fake.archive.import_(file)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda text: text[: len(text) // 2], InvalidError, "truncated"),
        (lambda text: b"\n".join(text.splitlines()[:-1]) + b"\n", InvalidError, "truncated, or is not"),
        (lambda text: text.replace(b"tides", b"tidal"), InvalidError, "differ from what was written"),
        (lambda text: text.replace(b'"format":1', b'"format":2', 1), UnsupportedError, "archive format 2"),
        (lambda _: b'{"id": 1}\n', InvalidError, "is not an archive"),
        (lambda _: b"", InvalidError, "truncated, or is not"),
        (lambda text: text + b"{}\n", InvalidError, "after its last line"),
    ],
    ids=["cut in a line", "cut behind a line", "changed", "newer", "foreign", "empty", "longer"],
)
async def test_a_file_that_is_not_as_it_was_written_changes_nothing(
    fake: Hub,
    research: SharedMemoryStore,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    error: type[Exception],
    words: str,
) -> None:
    await fill(research)
    file = tmp_path / "a.jsonl"
    await fake.archive.export("research", file)
    await research.clear()
    file.write_bytes(change(file.read_bytes()))

    with pytest.raises(error, match=words):
        await fake.archive.import_(file)

    assert await research.read("plan") is None


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([b"\n" * (1 << 20)] * 20, "its line 2 is empty"),
        ([b"{}\n" * (1 << 20)] * 20, "its line 2 is too short for a document"),
        ([b""] * 20_000, "have hardly any text"),
        ([b"x"] * 20_000, "have hardly any text"),
    ],
    ids=["blank lines", "short lines", "empty frames", "tiny frames"],
)
async def test_a_small_archive_that_stands_for_endless_work_is_refused_at_once(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path, frames: list[bytes], words: str
) -> None:
    """docs/archives.md: no line is empty or shorter than a document, and frames hold more than a few bytes each."""
    await fill(research)
    await fake.archive.export("research", tmp_path / "a.jsonl")
    first, *_, last = (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)
    bomb = tmp_path / "bomb.jsonl.zst"
    bomb.write_bytes(b"".join(map(zstd.compress, [first, *frames, last])))
    read: list[int] = []

    with pytest.raises(InvalidError, match=words):
        await fake.archive.import_(bomb, progress=lambda step: read.append(step.done))

    assert len(read) <= 1001, "it was read on"


async def test_an_archive_that_unpacks_to_more_than_is_allowed_is_refused(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    await research.write("long", "x" * 200_000)
    file = tmp_path / "a.jsonl.zst"
    await fake.archive.export("research", file)

    for limits, words in (
        (UnpackLimits(max_bytes=100_000, max_ratio=10_000, free_bytes=0), "more than 0 MiB"),
        (UnpackLimits(max_bytes=1 << 30, max_ratio=10, free_bytes=100_000), "more than 10 times its size"),
    ):
        with pytest.raises(InvalidError, match=words):
            await fake.archive.import_(file, limits=limits)
    generous = UnpackLimits(max_bytes=1 << 30, max_ratio=10, free_bytes=1 << 20)
    assert (await fake.archive.import_(file, limits=generous)).documents == 1


async def test_a_damaged_frame_is_found(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await fill(research)
    file = tmp_path / "a.jsonl.zst"
    await fake.archive.export("research", file)
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 0xFF
    file.write_bytes(body)

    with pytest.raises(InvalidError, match="damaged in the frame at byte 0"):
        await fake.archive.import_(file)


async def test_an_archive_that_is_not_there_is_named(fake: Hub, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        await fake.archive.import_(tmp_path / "nowhere.jsonl")


# -- copying --------------------------------------------------------------------------------------


async def test_a_copy_is_like_an_export_and_an_import(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    await fill(research)
    await fake.store("desk").write("order", 1)
    before = await everything(research)

    async with fake_hub(settings=Settings(data_dir=tmp_path / "other")) as other:
        copied = await fake.archive.copy_to(other.archive)
        again = await fake.archive.copy_to(other.archive, ["research"])

        assert [one.namespace for one in copied] == ["desk", "research"]
        assert await everything(other.store("research")) == before
        assert await other.store("desk").read("order") == 1
        assert (again[0].imported, again[0].older) == (0, again[0].documents)


async def test_a_place_is_not_copied_to_itself(fake: Hub) -> None:
    with pytest.raises(InvalidError, match="the source itself"):
        await fake.archive.copy_to(fake.archive)
