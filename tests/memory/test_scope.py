"""Scopes of memory, on both indexes."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from conformance.memory import MemoryScopeTests
from conformance.memory.base import NOON
from support.backends import OnFakeredis

from sharedmem import Settings, SharedMemoryStore
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.testing import fake_hub


class TestScopeOnFakeredis(OnFakeredis, MemoryScopeTests):
    """Every promise, on fakeredis."""


class TestScopeOnARealServer(MemoryScopeTests):
    """Every promise, on a real server."""


# -- any filter in any scope ------------------------------------------------------------------------

_USERS = (None, "alice", "Alice", "alice,bob", "a")
_CATEGORIES = (None, "work", "works", "work|play")
_TAGS = ("red", "Red", "red-ish", "re", "the")


def _random_item(rng: random.Random, number: int) -> MemoryItem:
    return MemoryItem(
        id=f"m{number}",
        memory=f"note about the lift, number {number}",
        user_id=rng.choice(_USERS),
        run_id=rng.choice(_USERS),
        thread_id=rng.choice(("t1", "t10", "t1:0")),
        category=rng.choice(_CATEGORIES),
        importance=rng.choice(("low", "high")),
        tags=tuple(rng.sample(_TAGS, rng.randrange(3))),
        metadata={"n": rng.randrange(3), "s": rng.choice(("x", "X", "x y")), "b": rng.choice((True, False))},
        timestamp=NOON + timedelta(hours=rng.randrange(5)),
    )


def _random_filter(rng: random.Random) -> MemoryFilter:
    fields: dict[str, object] = {
        "user_id": rng.choice((*_USERS[1:], ("alice", "a"))),
        "run_id": rng.choice(_USERS[1:]),
        "thread_id": rng.choice(("t1", "t10")),
        "category": rng.choice((*_CATEGORIES[1:], ("work", "works"))),
        "importance": "low",
        "tags": rng.choice((*_TAGS, ("red", "the"))),
        "metadata": rng.choice(({"n": 1}, {"s": "x"}, {"b": True, "n": 2}, {"other": 1})),
        "since": NOON + timedelta(hours=2),
        "until": NOON + timedelta(hours=3),
    }
    chosen = rng.sample(sorted(fields), rng.randrange(4))
    return MemoryFilter.model_validate({name: fields[name] for name in chosen})


def _meant(wanted: MemoryFilter, item: MemoryItem) -> bool:
    """What a filter means, said once more, slowly."""
    for name in ("user_id", "run_id", "thread_id", "category", "importance"):
        values = getattr(wanted, name)
        if values is not None and getattr(item, name) not in ((values,) if isinstance(values, str) else values):
            return False
    tags = (wanted.tags,) if isinstance(wanted.tags, str) else wanted.tags
    assert item.timestamp is not None
    return (
        all(tag in item.tags for tag in tags)
        and all(key in item.metadata and item.metadata[key] == value for key, value in wanted.metadata.items())
        and (wanted.since is None or item.timestamp >= wanted.since)
        and (wanted.until is None or item.timestamp <= wanted.until)
    )


async def _obeys(memory: Memories, rng: random.Random) -> None:
    items = [_random_item(rng, number) for number in range(80)]
    await memory.add_many(items, dedup=False)
    for _ in range(12):
        wanted, user = _random_filter(rng), rng.choice(_USERS[1:])
        for narrowed in (memory, memory.within(user_id=user)):
            scoped = [item for item in items if narrowed is memory or item.user_id == user]
            meant = {item.id for item in scoped if _meant(wanted, item)}
            found = await narrowed.search("lift note", filters=wanted, limit=100)
            assert {hit.item.id for hit in found} == meant, (wanted, user)
            assert {item.id for item in await narrowed.list(wanted)} == meant, (wanted, user)
            assert {item.id async for item in narrowed.export(wanted)} == meant, (wanted, user)
            assert (await narrowed.stats(wanted)).count == len(meant), (wanted, user)


@pytest.mark.parametrize("seed", range(2))
async def test_any_filter_in_any_scope_means_what_it_says(seed: int, store: SharedMemoryStore) -> None:
    await _obeys(store.memory, random.Random(seed))
    async with fake_hub(settings=Settings(embedder="hashing")) as hub:
        await _obeys(hub.store("team").memory, random.Random(seed + 100))
