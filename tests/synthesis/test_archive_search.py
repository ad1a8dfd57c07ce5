"""Queries look into archives when they are asked to, and rank what they find there with the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.note_chains import APP, chain_of_two_consolidations, make_chain_note, make_retired_note
from support.note_harness import NoteHarness

from sharedmem import InvalidError, UnavailableError
from sharedmem.models import NoteHit
from sharedmem.synthesis.chain_archive import ArchiveSearch
from sharedmem.synthesis.search import NoteQuery, decay
from sharedmem.text.analysis import query_terms

GAUGE = "## Summary\nThe tide gauge of Skarn was replaced in spring."


@pytest.fixture
async def old(harness: NoteHarness) -> NoteHarness:
    """Two archived notes of ada, one of bob, and a current one."""
    await harness.put(
        make_chain_note("gauge", says=GAUGE, tags=("Skarn",), session_id="s1"),
        make_chain_note("soup", says="## Summary\nA recipe for soup with leeks.", tags=("kitchen",)),
        make_chain_note("bobs", says=GAUGE, user_id="bob", tags=("Skarn",)),
    )
    harness.pass_years(11)
    await harness.archiver.archive(APP)
    await harness.put(make_chain_note("new", day=4017, says="## Summary\nThe tide gauge of Skarn is broken."))
    return harness


async def found(harness: NoteHarness, query: str = "tide gauge of Skarn", **narrowed: Any) -> list[NoteHit]:
    return await harness.store.synthesis.query_memory(app_id=APP, query=query, **narrowed)


def ids(hits: list[NoteHit]) -> set[str]:
    return {hit.metadata.id for hit in hits}


async def test_a_query_finds_archived_notes_only_when_it_is_asked_to(old: NoteHarness) -> None:
    assert ids(await found(old)) == {"new"}

    assert ids(await found(old, archived=True)) == {"new", "gauge", "bobs"}
    assert ids(await found(old, archived=True, user_id="ada")) == {"new", "gauge"}
    assert ids(await found(old, archived=True, session_id="s1")) == {"gauge"}
    assert ids(await found(old, "leeks", archived=True)) == {"soup"}


async def test_of_many_archived_notes_those_are_read_whose_tags_are_nearest_to_the_query(harness: NoteHarness) -> None:
    await harness.put(make_chain_note("gauge", says=GAUGE, tags=("tide gauge",)))
    await harness.put(*(make_chain_note(f"n{day}", day=day, tags=("kitchen",)) for day in range(1, 12)))
    harness.pass_years(11)
    await harness.archiver.archive(APP)

    (hit,) = await found(harness, archived=True, n_results=1)

    assert hit.metadata.id == "gauge"


async def test_an_archived_hit_has_its_text_its_place_and_a_flag(old: NoteHarness) -> None:
    hits = await found(old, archived=True, user_id="ada")

    assert [(hit.metadata.id, hit.archived, hit.flagged) for hit in hits] == [
        ("new", False, False),
        ("gauge", True, False),
    ]
    hit = hits[1]
    assert (hit.memory_note, hit.metadata.memory_note, hit.metadata.status) == (GAUGE, GAUGE, "archived")
    assert str(hit.metadata.archival_location).startswith("blob:")
    assert [message.content for message in hit.metadata.messages] == ["message of gauge"]
    stored = await old.one("gauge")
    assert (stored.memory_note, stored.status) == ("", "archived")


async def test_archived_notes_are_ranked_with_the_rest_by_the_same_scores(old: NoteHarness) -> None:
    hits = await found(old, archived=True, similarity_threshold=0.0)

    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    scores = [hit.composite_score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    (hit,) = (hit for hit in hits if hit.metadata.id == "gauge")
    # Recency counts from the last change before the archive, which is eleven years ago.
    note = hit.metadata
    assert decay(note.created_at, note.updated_at, now=old.clock.now()) < 0.01
    assert hit.recency_score == 0.01
    assert hit.composite_score <= 1.2 * hit.similarity_score
    (best,) = await found(old, archived=True, n_results=1)
    assert best.rank == 1


async def test_a_note_is_found_by_its_text_although_its_tags_do_not_say_it(old: NoteHarness) -> None:
    (hit,) = await found(old, "replaced spring", archived=True, user_id="ada")

    assert (hit.metadata.id, hit.by_words or hit.similarity_score > 0) == ("gauge", True)


async def test_retired_versions_are_found_where_retired_notes_are_asked_for(harness: NoteHarness) -> None:
    await harness.put(
        make_retired_note("before", "after", says="## Summary\nThe lamp is red."),
        make_chain_note("after", says="## Summary\nThe lamp is green.", sources=("before",), chain_id="before"),
    )
    harness.pass_years(11)
    await harness.archiver.archive(APP)

    assert ids(await found(harness, "lamp", archived=True)) == {"after"}
    hits = await found(harness, "lamp", archived=True, recall="all")
    assert {(hit.metadata.id, hit.flagged) for hit in hits} == {("after", False), ("before", True)}


async def test_a_chain_that_is_restored_is_found_as_before(old: NoteHarness) -> None:
    await old.archiver.unarchive(APP, "gauge")

    hits = {hit.metadata.id: hit for hit in await found(old, archived=True, user_id="ada")}

    assert hits.keys() == {"new", "gauge"}
    assert not hits["gauge"].archived


async def test_a_lost_archive_does_not_hide_the_other_notes(old: NoteHarness) -> None:
    location = (await old.one("gauge")).archival_location
    assert location is not None
    await old.archives.remove(APP, location)

    assert ids(await found(old, archived=True)) == {"new", "bobs"}


async def test_a_blob_store_that_cannot_be_read_is_an_outage(old: NoteHarness) -> None:
    _make_unreadable(Path(old.context.settings.blob_path()))

    assert ids(await found(old)) == {"new"}
    with pytest.raises(UnavailableError):
        await found(old, archived=True)


def _make_unreadable(folder: Path) -> None:
    for content in folder.rglob("content"):
        content.unlink()
        content.mkdir()


async def test_an_app_without_archives_answers_as_without_the_flag(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())

    plain = await found(harness, "text of s2", recall="all")

    assert plain == await found(harness, "text of s2", recall="all", archived=True)


@pytest.mark.parametrize("switch", ["yes", 1, None])
async def test_the_flag_is_true_or_false(harness: NoteHarness, switch: Any) -> None:
    with pytest.raises(InvalidError, match="archived"):
        await found(harness, archived=switch)


async def test_without_an_embedder_archived_notes_are_found_by_their_words(old: NoteHarness) -> None:
    search = ArchiveSearch("team", repository=old.repository, archives=old.archives, embedder=None)
    wanted = NoteQuery(APP, None, query_terms("soup with leeks"), None, None, ("active",), k=30)

    near = {one.note.id: one for one in await search.near(wanted)}

    assert near["soup"].word_share == 1
    assert {one.similarity for one in near.values()} == {0.0}
    assert near["gauge"].word_share == 0
