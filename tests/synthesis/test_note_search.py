"""docs/synthesis.md: notes are found by their words too, whichever index searches, and nothing else changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakeredis import FakeServer
from support import embedded_fixtures
from support.contexts import knowledge_of
from support.durable_graphs import drain_and_flush
from support.notes import BEGAN, make_fresh_note, make_note, open_note_repository, put_notes, vector
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.models import NoteHit
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.synthesis.note_serialization import note_terms, prefixed_terms, word_share
from sharedmem.synthesis.protocol import SimilarNote
from sharedmem.synthesis.search import ThresholdOverrides, note_thresholds, rank_hits, score_note
from sharedmem.synthesis.synthesis import Synthesis
from sharedmem.testing import fake_hub
from sharedmem.text.analysis import query_terms

data_dir = embedded_fixtures.data_dir
SHOP = "shop"
LONG = (
    "In spring the harbour office of Skarn sent its yearly report to the county and to the people who live on the"
    " quay. It names the ferries that were late, the fish that was landed, the lamps that were painted and the crews"
    " that were hired for the summer. The tide gauge of Skarn was replaced. Then it lists what was paid for ropes,"
    " diesel, bread and coffee, how many visitors slept in the guest house, and which roofs leaked after the storm."
)


class Contrary(HashingEmbedder):
    """Takes questions for the opposite of what they say: meaning finds nothing."""

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        made = await super().embed(texts, purpose=purpose)
        return made._replace(vectors=-made.vectors) if purpose == "query" else made


Opens = Callable[..., AbstractAsyncContextManager[Hub]]


@pytest.fixture(params=["fakeredis", "server"])
def opens(request: pytest.FixtureRequest, settings: Settings) -> Opens:
    """Opens hubs that share one server."""
    if request.param == "fakeredis":
        server = FakeServer()
        return partial(fake_hub, settings=settings, server=server, embedder=Contrary())
    return partial(Hub.open, request.getfixturevalue("redis_url"), settings=settings, embedder=Contrary())


@pytest.fixture
async def namespace(opens: Opens) -> AsyncIterator[str]:
    name = f"test-{new_id(8)}"
    yield name
    async with opens() as hub:
        await hub.store(name).clear()


@pytest.fixture
async def hub(opens: Opens) -> AsyncIterator[Hub]:
    async with opens() as hub:
        yield hub


async def remembered(synthesis: Synthesis, text: str, *, user: str = "ada", app: str = SHOP, **more: Any) -> str:
    """The id of the note that a text became."""
    task = await synthesis.add_agent_memory(app_id=app, user_id=user, messages=text, **more)
    done = await synthesis.wait(task.task_id, timeout=60)
    assert done.status == "done", done.error
    assert done.result is not None
    return str(done.result["memory_id"])


def ids(hits: list[NoteHit]) -> list[str]:
    return [hit.metadata.id for hit in hits]


async def test_two_words_find_a_long_note_whose_meaning_is_far_away(hub: Hub, namespace: str) -> None:
    synthesis = hub.store(namespace).synthesis
    note_id = await remembered(synthesis, LONG)

    (hit,) = await synthesis.query_memory(app_id=SHOP, query="Where is the tide gauge?")

    assert (hit.metadata.id, hit.by_words) == (note_id, True)
    assert (hit.similarity_score, hit.composite_score) == (0.0, 0.0)


async def test_with_the_offline_embedder_two_words_find_what_it_holds_for_unlike(settings: Settings) -> None:
    async with fake_hub(settings=settings.replace(embedder="wordllama")) as hub:
        synthesis = hub.store("research").synthesis
        note_id = await remembered(synthesis, LONG)

        (hit,) = await synthesis.query_memory(app_id=SHOP, query="tide gauge")

        assert (hit.metadata.id, hit.by_words) == (note_id, True)
        assert 0 < hit.similarity_score < note_thresholds(settings, "wordllama:l2_supercat-256").recall
        assert hit.similarity_score <= hit.composite_score <= 1.2 * hit.similarity_score


async def test_what_a_question_asks_for_finds_a_note_without_a_word_in_common(settings: Settings) -> None:
    """docs/synthesis.md: found by what a question asks for."""
    async with fake_hub(settings=settings.replace(embedder="wordllama")) as hub:
        synthesis = hub.store("research").synthesis
        for fact in ("I moved to York in spring.", "I have a nurse's job.", "My sister lives on a boat."):
            await remembered(synthesis, fact)

        first, *_ = await synthesis.query_memory(app_id=SHOP, query="Where does she live?")

        assert "I moved to York" in first.memory_note
        assert first.relevance > first.similarity_score
        assert await synthesis.query_memory(app_id=SHOP, query="Where does Bo live?", user_id="nobody") == []


async def test_a_threshold_of_the_call_holds_for_what_is_asked_for_too(hub: Hub, namespace: str) -> None:
    synthesis = hub.store(namespace).synthesis
    await remembered(synthesis, "I moved to York in spring.")

    query = "Where does she live?"
    (hit,) = await synthesis.query_memory(app_id=SHOP, query=query)
    assert hit.by_words
    assert await synthesis.query_memory(app_id=SHOP, query=query, similarity_threshold=0.9) == []


@pytest.mark.parametrize(
    "query",
    [
        "purple elephants juggle quietly",
        "does the gauge of the boiler measure pressure",
        "summary and guidance",
        "the and of",
        "@terms:* | (tide)=>{$weight:9} zzz yyy xxx",
    ],
)
async def test_what_shares_too_few_words_finds_nothing(hub: Hub, namespace: str, query: str) -> None:
    synthesis = hub.store(namespace).synthesis
    await remembered(synthesis, LONG)

    assert await synthesis.query_memory(app_id=SHOP, query=query) == []


async def test_words_find_nothing_of_other_apps_users_sessions_and_namespaces(hub: Hub, namespace: str) -> None:
    synthesis = hub.store(namespace).synthesis
    mine = await remembered(synthesis, LONG, session_id="s-1")
    bobs = await remembered(synthesis, LONG, user="bob")
    others = await remembered(synthesis, LONG, app="sales")

    async def found(store: Synthesis = synthesis, app: str = SHOP, **narrowed: Any) -> set[str]:
        hits = await store.query_memory(app_id=app, query="tide gauge", **narrowed)
        assert all(hit.by_words for hit in hits)
        return set(ids(hits))

    assert await found() == {mine, bobs}
    assert await found(user_id="bob") == {bobs}
    assert await found(user_id="ada", session_id="s-1") == {mine}
    assert await found(user_id="ada", session_id="s-2") == set()
    assert await found(app="sales") == {others}
    assert await found(hub.store(f"{namespace}-b").synthesis) == set()


async def test_a_note_that_was_retired_is_found_by_words_where_it_would_be_by_meaning(hub: Hub, namespace: str) -> None:
    synthesis = hub.store(namespace).synthesis
    note_id = await remembered(synthesis, LONG)
    await synthesis.delete_memory(note_id, app_id=SHOP)

    assert await synthesis.query_memory(app_id=SHOP, query="tide gauge") == []
    (hit,) = await synthesis.query_memory(app_id=SHOP, query="tide gauge", recall="all")
    assert (hit.flagged, hit.by_words) == (True, True)


async def test_a_threshold_that_the_call_names_holds_for_words_too(hub: Hub, namespace: str) -> None:
    synthesis = hub.store(namespace).synthesis
    note_id = await remembered(synthesis, LONG)

    assert await synthesis.query_memory(app_id=SHOP, query="tide gauge", similarity_threshold=0.9) == []
    assert ids(await synthesis.query_memory(app_id=SHOP, query="tide gauge", similarity_threshold=0.0)) == [note_id]


async def test_without_an_embedder_words_find_notes(opens: Opens, settings: Settings, namespace: str) -> None:
    async with opens(settings=settings.replace(embedder="none"), embedder=None) as hub:
        synthesis = hub.store(namespace).synthesis
        note_id = await remembered(synthesis, LONG)

        (hit,) = await synthesis.query_memory(app_id=SHOP, query="tide gauge")

        assert (hit.metadata.id, hit.similarity_score, hit.by_words) == (note_id, 0.0, True)
        assert await synthesis.query_memory(app_id=SHOP, query="purple elephants") == []


async def as_before(hub: Hub, namespace: str, count: int = 3) -> None:
    """Notes as a release stored them that did not know of words."""
    made = [make_fresh_note(f"n{number}", 1, app=SHOP, memory_note=LONG) for number in range(count)]
    await put_notes(open_note_repository(hub, namespace), *made, app=SHOP)
    context = knowledge_of(hub)
    keys = [context.keyspace.record("note", namespace, f"{SHOP}/n{number}") for number in range(count)]
    assert await context.client.read_many([("HDEL", key, "terms") for key in keys]) == [1] * count


async def test_notes_of_an_earlier_release_get_their_words_by_themselves(opens: Opens, namespace: str) -> None:
    async with opens() as older:
        await as_before(older, namespace)
    async with opens() as hub:
        repository = open_note_repository(hub, namespace)
        near, seen = await repository.near(SHOP, vector(1), user_id="ada")
        assert {each.note.id for each in near} == {"n0", "n1", "n2"}
        synthesis = hub.store(namespace).synthesis

        async def are_found() -> bool:
            return len(await synthesis.query_memory(app_id=SHOP, query="tide gauge")) == 3

        await wait_until(are_found, description="the notes have their words")
        # Who settles a note with others is not held up by that.
        assert (await repository.near(SHOP, vector(1), user_id="ada"))[0] == near
        assert not (await repository.get(SHOP, ["n0"]))["n0"].version > seen.version


async def test_an_index_that_is_built_anew_gives_notes_their_words(opens: Opens, namespace: str) -> None:
    async with opens() as older:
        await as_before(older, namespace)
    async with opens() as hub:
        await hub.index.rebuild(namespace, family="note")

        found = await hub.store(namespace).synthesis.query_memory(app_id=SHOP, query="tide gauge")

    assert sorted(ids(found)) == ["n0", "n1", "n2"]


async def test_notes_that_come_back_from_the_durable_tier_have_their_words(data_dir: Path) -> None:
    async with Hub.open(settings=Settings(data_dir=data_dir, embedder="hashing")) as hub:
        synthesis = hub.store("research").synthesis
        await put_notes(
            open_note_repository(hub, "research", "ada"), make_fresh_note("n0", 1, app=SHOP, memory_note=LONG), app=SHOP
        )
        await drain_and_flush(hub)

        found = await synthesis.query_memory(app_id=SHOP, query="tide gauge")

    assert ids(found) == ["n0"]


def test_words_add_answers_and_count_in_the_order() -> None:
    shares = {"near": (0.9, 0.0), "both": (0.5, 1.0), "all": (0.1, 1.0), "most": (0.1, 2 / 3), "half": (0.1, 0.5)}
    near = [SimilarNote(make_note(id_), similarity, share) for id_, (similarity, share) in shares.items()]

    found = rank_hits(near, now=BEGAN)

    assert ids(found) == ["both", "near", "all", "most"]
    assert [hit.by_words for hit in found] == [False, False, True, True]
    by_id = {each.note.id: score_note(each.note, each.similarity, now=BEGAN).composite for each in near}
    assert [hit.composite_score for hit in found] == [by_id[hit.metadata.id] for hit in found]
    assert ids(rank_hits(near, now=BEGAN, named=ThresholdOverrides(recall=0.2))) == ["both", "near"]
    assert ids(rank_hits(near, now=BEGAN, named=ThresholdOverrides(threshold=0.2))) == ["both", "near"]
    assert ids(rank_hits(near, now=BEGAN, number=3)) == ["both", "near", "all"]


@pytest.mark.parametrize(
    ("query", "text", "share"),
    [
        ("the tide gauge", "## Summary\nTide gauges.", 1.0),
        ("summary of guidance", "## Summary\nIt rains.\n\n## Guidance\nDo: wait", 0.0),
        ("key insight: wait", "## Guidance\nKey insight: wait for it", 1 / 3),
        ("Skarn, tide", "## Summary\nIt rains.\n\n---\nTags: Skarn | Content depth: high", 0.5),
        ("high", "## Summary\nIt rains.\n\n---\nTags: Skarn | Content depth: high", 0.0),
        ("潮位計", "## Summary\n潮位計は交換された", 1.0),
        ("the", "Anything.", 0.0),
    ],
)
def test_the_share_of_words_counts_what_a_note_says_itself(query: str, text: str, share: float) -> None:
    held = note_terms(make_note("n1", memory_note=text), "desk").encode()

    assert word_share(prefixed_terms(query_terms(query), "desk"), held) == share
    assert word_share(prefixed_terms(query_terms(query), "other"), held) == 0.0
    assert word_share(prefixed_terms(query_terms(query), "desk"), None) == 0.0
