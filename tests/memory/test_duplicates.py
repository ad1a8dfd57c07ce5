"""A later pass merges stored memories that say the same, as an addition would have, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import fakeredis
import pytest

from sharedmem import Hub, InvalidError, Settings
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem, MemoryMessage
from sharedmem.testing import fake_hub

HARBOUR = "The quiet old harbour of Bergen opens its gates early in the morning"
LONGER = f"{HARBOUR} hours"


@pytest.fixture(params=["exact", "redisearch"])
async def hub(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Hub]:
    chosen = settings.replace(embedder="hashing")
    if request.param == "exact":
        async with fake_hub(settings=chosen) as hub:
            yield hub
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=chosen) as hub:
        yield hub


async def add_apart(memory: Memories, *texts: str, **fields: object) -> list[str]:
    """Add texts without deduplication, one after the other; return their ids."""
    return [(await memory.add({"memory": text, **fields}, dedup=False)).id for text in texts]


async def all_of(memory: Memories) -> list[MemoryItem]:
    return [item async for item in memory.export()]


async def test_the_newer_of_two_becomes_part_of_the_older(memory: Memories) -> None:
    older, newer, other = await add_apart(memory, HARBOUR, LONGER, "Ada likes tea")

    report = await memory.merge_duplicates()

    assert (report.compared, report.found, report.merged, report.kept_apart) == (3, 1, 1, 0)
    (one,) = report.duplicates
    assert (one.id, one.memory, one.into, one.into_memory) == (newer, LONGER, older, HARBOUR)
    assert 0.95 <= one.similarity < 1
    assert sorted(item.id for item in await all_of(memory)) == sorted([older, other])
    kept = await memory.get(older)
    assert kept is not None
    assert (kept.memory, kept.content, kept.occurrences) == (HARBOUR, f"{HARBOUR}\n{LONGER}", 2)
    assert await memory.get(newer) is None


async def test_a_dry_run_reports_what_would_be_merged_and_changes_nothing(memory: Memories) -> None:
    older, newer, _ = await add_apart(memory, HARBOUR, LONGER, "Ada likes tea")
    before = await all_of(memory)

    report = await memory.merge_duplicates(dry_run=True)

    assert (report.compared, report.found, report.merged) == (3, 1, 0)
    assert [(one.id, one.into) for one in report.duplicates] == [(newer, older)]
    assert await all_of(memory) == before


async def test_a_second_pass_finds_nothing(memory: Memories) -> None:
    await add_apart(memory, HARBOUR, LONGER, HARBOUR, HARBOUR.upper())

    first, second = await memory.merge_duplicates(), await memory.merge_duplicates()

    assert (first.merged, second.merged, second.compared) == (3, 0, 1)
    assert [item.occurrences for item in await all_of(memory)] == [4]


async def test_the_history_says_where_a_memory_went_and_undo_brings_both_back(memory: Memories) -> None:
    older, newer = await add_apart(memory, HARBOUR, LONGER)
    await memory.merge_duplicates()

    last, *_ = await memory.history(newer)
    assert (last.change, last.merged_into) == ("deleted", older)
    assert (await memory.history(older))[0].merged_text == LONGER
    await memory.undo(older)

    assert sorted((item.memory, item.occurrences) for item in await all_of(memory)) == [(HARBOUR, 1), (LONGER, 1)]


@pytest.mark.parametrize(
    ("one", "other"),
    [(f"{HARBOUR} at 6", f"{HARBOUR} at 7"), (HARBOUR, HARBOUR.replace("opens", "never opens"))],
)
async def test_guards_keep_near_memories_apart_and_the_report_counts_them(
    memory: Memories, one: str, other: str
) -> None:
    await add_apart(memory, one, other)

    report = await memory.merge_duplicates(similarity=0.8)

    assert (report.found, report.kept_apart) == (0, 1)
    assert len(await all_of(memory)) == 2


async def test_memories_of_different_users_and_categories_stay(memory: Memories) -> None:
    await add_apart(memory, HARBOUR, user_id="u1")
    await add_apart(memory, HARBOUR, user_id="u2")
    await add_apart(memory, HARBOUR, category="port")

    assert (await memory.merge_duplicates()).found == 0


async def test_both_memories_of_a_pair_match_the_filter_and_the_narrowing(memory: Memories) -> None:
    await add_apart(memory, HARBOUR, thread_id="a", tags=("x",))
    await add_apart(memory, LONGER, thread_id="b", tags=("y",))

    assert (await memory.merge_duplicates({"tags": "x"})).found == 0
    assert (await memory.within(thread_id="a").merge_duplicates()).compared == 1
    assert (await memory.merge_duplicates()).merged == 1


async def test_turns_of_a_conversation_and_summaries_are_not_compared(memory: Memories) -> None:
    said = (MemoryMessage(role="user", content=HARBOUR),)
    await add_apart(memory, HARBOUR, HARBOUR, messages=said)
    await add_apart(memory, HARBOUR, HARBOUR, category="summary")

    report = await memory.merge_duplicates()

    assert (report.compared, report.found) == (0, 0)


async def test_a_lower_similarity_merges_more(memory: Memories) -> None:
    await add_apart(memory, HARBOUR, "The old harbour of Bergen opens its gates early in the morning, it is quiet")

    assert (await memory.merge_duplicates(similarity=1)).found == 0
    assert (await memory.merge_duplicates(similarity=0.75)).merged == 1


@pytest.mark.parametrize("similarity", [0.69, 1.01, float("nan"), "0.9", True])
async def test_a_similarity_out_of_bounds_is_refused(memory: Memories, similarity: object) -> None:
    with pytest.raises(InvalidError, match=r"similarity .* give a cosine similarity"):
        await memory.merge_duplicates(similarity=similarity)  # type: ignore[arg-type]  # as untyped callers do


async def test_two_texts_that_are_too_long_for_one_memory_stay(memory: Memories) -> None:
    fill = "tide " * 120_000
    for text in (HARBOUR, LONGER):
        await memory.add(text, content=f"{text} {fill}", dedup=False)

    report = await memory.merge_duplicates()

    assert (report.found, report.kept_apart) == (0, 1)


async def test_progress_is_reported(memory: Memories) -> None:
    await add_apart(memory, *(f"{HARBOUR} {word}" for word in "abcdefgh" * 9))
    seen: list[tuple[int, int]] = []

    report = await memory.merge_duplicates(on_progress=lambda compared, found: seen.append((compared, found)))

    assert seen[-1] == (report.compared, report.found)
    assert len(seen) == 2


async def test_passes_at_the_same_time_as_additions_lose_and_double_nothing(hub: Hub, namespace: str) -> None:
    texts = [f"{HARBOUR}{end}" for end in ("", " hours", "!", " hour", " Hours")]
    memory = hub.store(namespace, actor="ann").memory
    await add_apart(memory, *texts)

    await asyncio.gather(
        *(memory.merge_duplicates() for _ in range(4)),
        *(memory.add(text) for text in texts),
        *(memory.add(text, dedup=False) for text in texts),
    )
    await memory.merge_duplicates()

    (item,) = await all_of(memory)
    assert item.occurrences == 3 * len(texts)


async def test_without_an_embedder_the_same_text_is_merged(settings: Settings) -> None:
    async with fake_hub(settings=settings.replace(embedder="none")) as hub:
        memory = hub.store("team").memory
        await add_apart(memory, HARBOUR, HARBOUR.upper(), LONGER)

        report = await memory.merge_duplicates()

        assert [(one.memory, one.similarity) for one in report.duplicates] == [(HARBOUR.upper(), 1.0)]
        assert len(await all_of(memory)) == 2


async def test_where_memories_have_owners_each_actor_merges_its_own(settings: Settings) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(server=server, settings=settings.replace(embedder="hashing", memory_rights="owner")) as hub:
        ann, bob = (hub.store("team", actor=actor).memory for actor in ("ann", "bob"))
        await add_apart(ann, HARBOUR)
        await add_apart(bob, LONGER)

        assert (await bob.merge_duplicates()).compared == 1
        assert (await hub.store("team").memory.merge_duplicates()).merged == 1
