"""A group that is deleted from Redis leaves nothing, also when callers write to it or die on the way."""

from __future__ import annotations

import asyncio

import pytest
from support import redis_graph_fixtures
from support.graph_rows import entity_row, fact_row
from support.redis_graph_fixtures import GROUP, changes_of, episode_with_claims, keys_left, make_redis_claim, write

from sharedmem import ConflictError, Hub
from sharedmem.graph.backends.redis import RedisBackend
from sharedmem.graph.records import LookupRequest, RecordSearch, StaleGroup

any_hub, backend = redis_graph_fixtures.any_hub, redis_graph_fixtures.backend


async def test_a_deleted_group_leaves_nothing_and_can_begin_anew(any_hub: Hub, backend: RedisBackend) -> None:
    facts = [fact_row(f"f{number}", "Ann", "knows", f"E{number}") for number in range(300)]
    story = episode_with_claims("e1", make_redis_claim("e1", 0, "ann", "rome"))
    await write(backend, story, entity_row("Ann"), *facts, names=(("ann", "ann"),), guards=("=ann",))
    await write(backend, entity_row("Ann"), group="other")
    progress: list[tuple[int, int]] = []

    deleted = await backend.delete(GROUP, progress=lambda done, total: progress.append((done, total)))

    assert deleted == 302
    assert progress[-1] == (302, 302)
    assert await backend.groups() == ["other"]
    left = [key for key in await keys_left(any_hub, backend.keys.namespace) if b"acme" in key]
    assert left == []
    assert await backend.delete(GROUP) == 0
    (found,) = await backend.search(GROUP, [RecordSearch(letters=("n", "f"), terms=("ann",))])
    assert found.text == []
    await write(backend, entity_row("Ann"))
    assert (await backend.listed(GROUP, "entity"))[0] == ["ann"]
    assert await backend.groups() == [GROUP, "other"]


async def test_an_ingestion_that_has_looked_before_a_deletion_begins_anew(backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"))
    before = await backend.look(GROUP, LookupRequest())
    token, _ = await backend.deletion.close(GROUP) or ("", 0)
    during = await backend.look(GROUP, LookupRequest())

    with pytest.raises(ConflictError, match="being deleted"):
        await backend.commit(GROUP, changes_of(entity_row("Bob")), seen=during.version)
    joined = await backend.deletion.close(GROUP)
    await backend.delete(GROUP)
    late = [
        await backend.commit(GROUP, changes_of(entity_row("Bob")), seen=seen)
        for seen in (before.version, during.version)
    ]

    assert joined == (token, 1)
    assert late == [StaleGroup(), StaleGroup()]
    assert await backend.groups() == []
    assert await backend.deletion.delete_page(GROUP, token) == ("over", 0)


async def test_the_next_writer_finishes_a_deletion_that_was_left_undone(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(backend, entity_row("Ann"), entity_row("Bob"))
    monkeypatch.setattr("sharedmem.graph.backends.redis_writer._LEASE_MS", 0)
    await backend.deletion.close(GROUP)
    monkeypatch.undo()

    seen = await backend.look(GROUP, LookupRequest())
    answer = await backend.commit(GROUP, changes_of(entity_row("Eve")), seen=seen.version)

    assert answer == StaleGroup()
    await write(backend, entity_row("Eve"))
    assert (await backend.listed(GROUP, "entity"))[0] == ["eve"]


async def test_several_who_delete_a_group_at_once_delete_it_once(backend: RedisBackend) -> None:
    await write(backend, *(entity_row(f"E{number}") for number in range(450)))

    deleted = await asyncio.gather(*(backend.delete(GROUP) for _ in range(4)))

    assert sum(deleted) == 450
    assert await backend.groups() == []


async def test_a_cleared_namespace_keeps_nothing_of_its_graphs(any_hub: Hub, backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"), fact_row("f1", "Ann", "knows", "Bob"), guards=("=ann",))
    seen = await backend.look(GROUP, LookupRequest())

    await any_hub.store(backend.keys.namespace).clear()

    kept = [key for key in await keys_left(any_hub, backend.keys.namespace) if b"graph" in key]
    assert kept == []
    assert await backend.commit(GROUP, changes_of(entity_row("Bob")), seen=seen.version) == StaleGroup()
    assert await backend.groups() == []
