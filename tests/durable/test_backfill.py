"""Backfill: foreign records come in through a mapping; what cannot be used is told and stops nothing.

docs/archives.md promises it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sharedmem import Hub, InvalidError, NotFoundError, Settings, SharedMemoryStore
from sharedmem.archive.backfill import map_line, validate_mapping
from sharedmem.archive.files import encode_frame
from sharedmem.testing import fake_hub

ARTICLES = {"key": "research:{source}:{meta.id}", "value": "text", "timestamp": "meta.at"}


@pytest.fixture(params=["without a tier", "with a tier"])
async def fake(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hub]:
    settings = Settings(data_dir=tmp_path / "data")
    if request.param == "with a tier":
        settings = settings.replace(
            durable_url=f"sqlite://{tmp_path}/kept.db", kind_rules={"research:web:*": "knowledge"}
        )
    async with fake_hub(settings=settings) as hub:
        yield hub


@pytest.fixture
def research(fake: Hub) -> SharedMemoryStore:
    return fake.store("research")


def article(number: int, **more: object) -> dict[str, object]:
    meta = {"id": f"a{number}", "at": f"2025-01-0{number}T03:04:05Z"}
    return {"source": "web", "meta": meta, "text": f"text {number}"} | more


def written(folder: Path, *records: object) -> Path:
    file = folder / "records.jsonl"
    file.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in records), encoding="utf-8")
    return file


async def test_records_become_keys_with_their_times(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    done = await fake.archive.backfill(written(tmp_path, article(1), article(2)), ARTICLES, namespace="research")

    assert (done.lines, done.written, done.rejected) == (2, 2, 0)
    entry = await research.entry("research:web:a1")
    assert entry is not None
    assert (entry.value, entry.actor) == ("text 1", "backfill")
    assert entry.created == datetime(2025, 1, 1, 3, 4, 5, tzinfo=UTC)
    assert entry.version > 0


async def test_the_same_records_again_write_nothing(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    file = written(tmp_path, article(1), article(2))
    await fake.archive.backfill(file, ARTICLES, namespace="research")
    before = await research.entry("research:web:a1")

    again = await fake.archive.backfill(file, ARTICLES, namespace="research")

    assert (again.written, again.unchanged) == (0, 2)
    assert await research.entry("research:web:a1") == before


async def test_a_changed_record_is_written_under_a_new_version(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    await fake.archive.backfill(written(tmp_path, article(1)), ARTICLES, namespace="research")
    before = await research.entry("research:web:a1")

    done = await fake.archive.backfill(written(tmp_path, article(1, text="new")), ARTICLES, namespace="research")

    after = await research.entry("research:web:a1")
    assert done.written == 1
    assert before is not None
    assert after is not None
    assert (after.value, after.version > before.version, after.created) == ("new", True, before.created)


async def test_structures_come_from_objects_and_arrays(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    record = {"id": 1, "facts": {"role": "lead", "age": 3}, "tags": ["b", "a", "b"]}
    file = written(tmp_path, record)
    for type_, field in (("hash", "facts"), ("list", "tags"), ("set", "tags")):
        mapping = {"key": f"research:web:{type_}-{{id}}", "value": field, "type": type_}

        first = await fake.archive.backfill(file, mapping, namespace="research")
        again = await fake.archive.backfill(file, mapping, namespace="research")

        assert (first.written, again.unchanged) == (1, 1)

    assert await research.hgetall("research:web:hash-1") == {"role": "lead", "age": 3}
    assert await research.read_list("research:web:list-1") == ["b", "a", "b"]
    assert await research.smembers("research:web:set-1") == {"a", "b"}


async def test_a_large_value_becomes_one(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    file = written(tmp_path, article(1, text="x" * 500_000))

    first = await fake.archive.backfill(file, ARTICLES, namespace="research")
    again = await fake.archive.backfill(file, ARTICLES, namespace="research")

    assert (first.written, again.unchanged) == (1, 1)
    assert await research.read("research:web:a1") == "x" * 500_000


async def test_lines_that_cannot_be_used_are_told_and_kept(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    rejects = tmp_path / "rejects.jsonl"
    file = written(tmp_path, article(1), "nonsense", {"source": "web"}, "", [1], article(2))

    done = await fake.archive.backfill(file, ARTICLES, namespace="research", rejects=rejects)

    assert (done.lines, done.written, done.rejected) == (6, 2, 4)
    assert "not JSON" in done.reasons["2"]
    assert "has no field" in done.reasons["3"]
    kept = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [one["line"] for one in kept] == [2, 3, 4, 5]
    assert kept[0]["text"] == "nonsense"


async def test_a_dry_run_shows_and_writes_nothing(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    done = await fake.archive.backfill(
        written(tmp_path, article(1), "nonsense", article(2)), ARTICLES, namespace="research", dry_run=True
    )

    assert (done.written, done.rejected, len(done.preview)) == (2, 1, 2)
    assert (done.preview[1].line, done.preview[1].key, done.preview[1].value) == (3, "research:web:a2", "text 2")
    assert await research.read("research:web:a1") is None


async def test_compressed_records_come_in(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl.zst"
    text = "".join(f"{json.dumps(article(n % 9 + 1, meta={'id': n, 'at': n}))}\n" for n in range(1000))
    file.write_bytes(encode_frame(file, text.encode()[:70_000]) + encode_frame(file, text.encode()[70_000:]))

    done = await fake.archive.backfill(file, ARTICLES, namespace="research")

    assert (done.lines, done.written) == (1000, 1000)
    assert await research.read("research:web:999") == "text 1"


async def test_of_several_lines_with_one_key_the_last_counts(
    fake: Hub, research: SharedMemoryStore, tmp_path: Path
) -> None:
    file = written(tmp_path, article(1, text="first"), article(1, text="second"))

    await fake.archive.backfill(file, ARTICLES, namespace="research")

    assert await research.read("research:web:a1") == "second"


async def test_a_mapping_is_read_from_a_file(fake: Hub, research: SharedMemoryStore, tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text('key: "research:{source}:{meta.id}"\nkind: session\nttl: 3600\n')

    await fake.archive.backfill(written(tmp_path, article(1)), mapping, namespace="research")

    assert await research.read("research:web:a1") == article(1)
    assert 3500 < (await research.ttl("research:web:a1") or 0) <= 3600


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"key": "plain"}, "a field in braces"),
        ({"key": "a:{}"}, "enclose the name of a field"),
        ({"key": "a:{b"}, "enclose the name of a field"),
        ({"key": "a:{b}", "type": "queue"}, "type"),
        ({"key": "a:{b}", "ttl": 0}, "ttl"),
        ({"key": "a:{b}", "surprise": 1}, "surprise"),
        ({}, "key"),
        ([1], "mapping"),
    ],
)
def test_a_mapping_that_is_none_says_what_is_wrong(mapping: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        validate_mapping(mapping)


async def test_a_mapping_file_that_is_not_there_is_named(fake: Hub, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        await fake.archive.backfill(written(tmp_path), "nowhere.yaml", namespace="research")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"tenant": "a:$clock", "id": 1, "at": 0}, "no colon"),
        ({"tenant": "", "id": 1, "at": 0}, "a part of a key"),
        ({"tenant": "a", "id": True, "at": 0}, "a part of a key"),
        ({"tenant": "a", "id": "{x}", "at": 0}, "braces"),
        ({"tenant": "$a", "id": 1, "at": 0}, "namespace"),
        ({"tenant": "a", "id": 1, "at": -5}, "since 1970"),
        ({"tenant": "a", "id": 1, "at": "soon"}, "2026-03-01"),
        ({"tenant": "a", "id": 1}, "has no field 'at'"),
    ],
)
def test_a_record_does_not_choose_where_it_lies(record: dict[str, object], words: str) -> None:
    mapping = validate_mapping({"key": "{tenant}:shared:{id}", "timestamp": "at"})

    with pytest.raises(InvalidError, match=words):
        map_line(json.dumps(record).encode(), mapping, "research")


@pytest.mark.parametrize("moment", ["2023-11-14T22:13:20Z", 1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000])
def test_times_are_understood_as_they_are_usually_written(moment: str | int) -> None:
    mapping = validate_mapping({"key": "a:{id}", "timestamp": "at"})

    found = map_line(json.dumps({"id": "x", "at": moment}).encode(), mapping, "research")

    assert found.created == 1_700_000_000_000_000
