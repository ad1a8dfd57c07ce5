"""How memories came about and what they became, and what can be done to a version by hand."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from support.example_budget import example_count
from support.note_chains import APP, chain_of_two_consolidations, make_chain_note, make_retired_note, sound_notes
from support.note_harness import NoteHarness

from sharedmem import ConflictError, InvalidError, NotFoundError
from sharedmem.models import Note, NoteLink, NoteStatus
from sharedmem.models.notes import ChainDirection, sort_by_succession


@settings(max_examples=example_count(10, thorough=25), deadline=None)
@given(sound_notes())
def test_each_note_stands_before_what_took_its_place(notes: tuple[Note, ...]) -> None:
    places = {one.id: place for place, one in enumerate(sort_by_succession(reversed(notes)))}

    assert places.keys() == {one.id for one in notes}
    assert all(places[one.id] < places[one.next_id] for one in notes if one.next_id is not None)


@pytest.mark.parametrize(
    ("start", "direction", "ids"),
    [
        ("b", "forward", ["b", "s1", "s2"]),
        ("s2", "forward", ["s2"]),
        ("s2", "backward", ["s2", "c", "s1", "b", "a"]),
        ("s1", "backward", ["s1", "b", "a"]),
        ("a", "both", ["a", "b", "s1", "c", "s2"]),
        ("s2", "both", ["a", "b", "s1", "c", "s2"]),
    ],
)
async def test_a_chain_is_walked_in_any_direction(
    harness: NoteHarness, start: str, direction: ChainDirection, ids: list[str]
) -> None:
    await harness.put(*chain_of_two_consolidations(), make_chain_note("stranger"), make_chain_note("a", app_id="other"))

    found = await harness.evolution.chain(APP, start, direction)

    assert ([one.id for one in found.notes], found.missing) == (ids, ())


async def test_a_damaged_chain_ends_and_tells_what_is_missing(harness: NoteHarness) -> None:
    ring = (
        make_retired_note("a", "b", sources=("b",)),
        make_retired_note("b", "a", sources=("a", "gone")),
        make_retired_note("c", "lost"),
    )
    await harness.put(*ring)

    for direction in ("forward", "backward", "both"):
        around = await harness.evolution.chain(APP, "a", direction)
        assert {one.id for one in around.notes} == {"a", "b"}
        assert around.missing == (() if direction == "forward" else ("gone",))

    assert (await harness.evolution.chain(APP, "c")).missing == ("lost",)
    with pytest.raises(ConflictError, match="fsck"):
        await harness.evolution.restore(APP, "a")
    with pytest.raises(NotFoundError, match="fsck"):
        await harness.evolution.restore(APP, "c")


async def test_a_missing_note_and_an_unknown_direction_are_refused(harness: NoteHarness) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        await harness.evolution.chain(APP, "nobody")
    with pytest.raises(InvalidError, match="forward, backward, both"):
        await harness.evolution.chain(APP, "nobody", "sideways")  # type: ignore[arg-type]  # what is tested
    for call in (harness.evolution.restore, harness.evolution.delete):
        with pytest.raises(NotFoundError, match="nobody"):
            await call(APP, "nobody")


async def test_a_restored_version_follows_the_head_and_is_found_again(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())

    fresh = await harness.evolution.restore(APP, "b")

    notes = await harness.all()
    assert (fresh.memory_note, fresh.status, fresh.status_reason) == (
        "## Summary\n\ntext of b",
        "active",
        "manual_update",
    )
    assert (fresh.sources, fresh.chain_id, fresh.messages) == (("s2",), "a", ())
    assert fresh.links == (NoteLink(memory_id="b", relationship_type="source"),)
    assert (notes["s2"].status, notes["s2"].status_reason, notes["s2"].next_id) == (
        "updated",
        "manual_update",
        fresh.id,
    )
    assert notes["b"].next_id == "s1"
    assert await harness.is_sound()
    assert await harness.found("text of b") == [fresh.id]


async def test_restoring_goes_back_and_forth_and_a_repeat_changes_nothing(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())

    once = await harness.evolution.restore(APP, "b")
    again = await harness.evolution.restore(APP, "b")
    back = await harness.evolution.restore(APP, "s2")
    same = await harness.evolution.restore(APP, back.id)
    third = await harness.evolution.restore(APP, "b")

    assert (once.id, back.id) == (again.id, same.id)
    assert back.memory_note.endswith("text of s2")
    assert third.id not in {once.id, back.id}
    assert [one.id for one in (await harness.evolution.chain(APP, "b")).notes] == [
        "b",
        "s1",
        "s2",
        once.id,
        back.id,
        third.id,
    ]
    assert await harness.is_sound()


async def test_those_who_restore_at_once_leave_one_head(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())

    await asyncio.gather(*(harness.evolution.restore(APP, id_) for id_ in ("a", "b", "s1", "a", "c", "b")))

    notes = await harness.all()
    assert [one.id for one in notes.values() if one.next_id is None] == [
        one.id for one in notes.values() if one.status == "active"
    ]
    assert sum(one.status == "active" for one in notes.values()) == 1
    assert await harness.is_sound()


async def test_a_memory_is_deleted_by_hand_and_taken_back(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())

    gone = await harness.evolution.delete(APP, "s2")
    assert (gone.status, gone.status_reason, gone.memory_note) == (
        "deleted",
        "manual_update",
        "## Summary\n\ntext of s2",
    )
    assert (await harness.evolution.delete(APP, "s2")).version == gone.version
    assert await harness.found("text of s2") == []
    assert await harness.is_sound()

    assert (await harness.evolution.restore(APP, "s2")).status == "active"
    assert await harness.found("text of s2") == ["s2"]
    await harness.evolution.delete(APP, "s2")
    assert (await harness.evolution.set_status(APP, "s2", "active")).id == "s2"
    await harness.evolution.delete(APP, "s2")
    fresh = await harness.evolution.restore(APP, "a")
    assert ((await harness.one("s2")).status, (await harness.one("s2")).next_id) == ("deleted", fresh.id)
    assert await harness.is_sound()


@pytest.mark.parametrize(
    ("id_", "status", "advice"),
    [
        ("s2", "updated", "add the newer memory"),
        ("s2", "archived", "call archive"),
        ("s2", "conflict_pending", "waits to be settled"),
        ("s1", "active", "restore it instead"),
        ("c", "active", "restore it instead"),
        ("old", "active", "unarchive it first"),
        ("old", "deleted", "unarchive it first"),
        ("s2", "forgotten", "use one of active"),
    ],
)
async def test_a_status_that_would_only_pretend_is_refused(
    harness: NoteHarness, id_: str, status: NoteStatus, advice: str
) -> None:
    await harness.put(
        *chain_of_two_consolidations(), make_chain_note("old", status="archived", status_reason="age_decay")
    )

    with pytest.raises(InvalidError, match=advice):
        await harness.evolution.set_status(APP, id_, status)

    with pytest.raises(InvalidError, match="manual_update"):
        await harness.evolution.set_status(APP, id_, "deleted", "age_decay")


async def test_a_note_that_waits_is_settled_by_hand(harness: NoteHarness) -> None:
    await harness.put(make_chain_note("new", status="conflict_pending"))

    assert (await harness.evolution.set_status(APP, "new", "active")).status == "active"
    assert await harness.found("text of new") == ["new"]


async def test_each_change_of_a_note_is_counted_by_its_event(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())
    await harness.evolution.restore(APP, "a")
    counted = {
        labels: value
        for name, labels, value in harness.context.counters.snapshot()
        if name == "sharedmem_synthesis_notes"
    }
    (sizes,) = [
        one for one in harness.context.counters.histograms() if one.labels == (("operation", "synthesis.commit"),)
    ]

    assert counted[("event", "created"),] >= 5
    assert sum(counted.values()) == sizes.total
