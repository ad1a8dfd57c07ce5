"""What `fsck` finds wrong with notes, and how it mends them without losing any."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from support.example_budget import example_count
from support.note_chains import (
    APP,
    chain_of_two_consolidations,
    damaged_notes,
    make_chain_note,
    make_retired_note,
    reachable_ids,
    sound_notes,
)
from support.note_harness import open_note_harnesses

from sharedmem.models import Note
from sharedmem.synthesis.consistency import find_problems, fsck, plan_repair


def repaired(notes: tuple[Note, ...]) -> dict[str, Note]:
    """The notes by id, after a repair."""
    return {one.id: one for one in notes} | {one.id: one for one in plan_repair(notes).changed}


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(sound_notes())
def test_notes_that_hang_together_have_no_problem(notes: tuple[Note, ...]) -> None:
    found = plan_repair(notes)

    assert (found.problems, found.changed) == ((), ())
    assert found.chains == sum(one.next_id is None for one in notes)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(damaged_notes())
def test_whatever_went_wrong_is_mended_once_and_no_text_is_lost(notes: tuple[Note, ...]) -> None:
    found = plan_repair(notes)
    after = repaired(notes)

    assert bool(found.problems) == bool(found.changed)
    assert find_problems(after.values()) == []
    assert after.keys() == {one.id for one in notes}
    assert reachable_ids(after.values()) == after.keys()
    kin = [(one, other) for one in after.values() for other in (one.next_id, *one.sources) if other is not None]
    assert all(one.user_id == after[other].user_id for one, other in kin)
    assert all((one.memory_note, one.messages) == (after[one.id].memory_note, after[one.id].messages) for one in notes)


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ((make_retired_note("a", "gone"),), {("dangling_next", "a")}),
        ((make_chain_note("a", status="updated"),), {("unreachable", "a")}),
        ((make_chain_note("a", status="deleted", status_reason="contradicted"),), {("unreachable", "a")}),
        ((make_chain_note("a", status="deleted", status_reason="manual_update"),), set()),
        ((make_chain_note("a", next_id="a"),), {("cycle", "a")}),
        (
            (make_retired_note("a", "b", sources=("b",)), make_retired_note("b", "a", day=1, sources=("a",))),
            {("cycle", "b")},
        ),
        ((make_retired_note("a", "b"), make_chain_note("b", day=1)), {("unreachable", "a")}),
        ((make_chain_note("a"), make_chain_note("b", day=1, sources=("a",), chain_id="a")), {("not_retired", "a")}),
        (
            (make_chain_note("a", next_id="b"), make_chain_note("b", day=1, sources=("a",), chain_id="a")),
            {("not_retired", "a")},
        ),
        ((make_chain_note("a", sources=("gone", "a")),), {("missing_source", "a")}),
        (
            (make_retired_note("a", "b"), make_chain_note("b", day=1, sources=("a",), chain_id="a", user_id="bob")),
            {("dangling_next", "a"), ("missing_source", "b")},
        ),
        ((make_chain_note("a"), make_chain_note("b", day=1, chain_id="a", user_id="bob")), set()),
        ((make_chain_note("a"), make_chain_note("b", day=1, chain_id="a")), {("two_heads", "a")}),
        (
            (
                make_retired_note("a", "b"),
                make_chain_note("b", day=1, sources=("a",), chain_id="a"),
                make_chain_note("c", day=2, sources=("a",), chain_id="a"),
            ),
            {("missing_source", "c"), ("two_heads", "b")},
        ),
    ],
)
def test_each_damage_has_its_name(notes: tuple[Note, ...], told: set[tuple[str, str]]) -> None:
    assert {(problem.kind, problem.note_id) for problem in find_problems(notes)} == told
    assert all(one.status in {"active", "updated", "deleted"} for one in repaired(notes).values())
    assert find_problems(repaired(notes).values()) == []


def test_of_two_heads_the_newest_that_is_alive_stays() -> None:
    notes = (
        make_chain_note("old"),
        make_chain_note("new", day=1, chain_id="old"),
        make_retired_note("lost", "gone", day=2, chain_id="old"),
    )

    after = repaired(notes)

    assert {one.id: (one.status, one.next_id, one.sources) for one in after.values()} == {
        "old": ("updated", "new", ()),
        "lost": ("updated", "new", ()),
        "new": ("active", None, ("old", "lost")),
    }


def test_twenty_thousand_notes_in_one_chain_are_checked_without_a_deep_stack() -> None:
    count = 20_000
    links = {"user_id": "ada", "app_id": APP, "memory_note": "", "chain_id": "n0", "messages": ()}
    first = make_chain_note("n0")
    notes = [
        first.model_copy(
            update=links
            | {
                "id": f"n{place}",
                "next_id": f"n{place + 1}" if place < count - 1 else None,
                "sources": (f"n{place - 1}",) if place else (),
                "status": "updated" if place < count - 1 else "active",
            }
        )
        for place in range(count)
    ]

    assert plan_repair(notes) == ((), (), 1)


DAMAGED = (
    *(make_retired_note("a", "b"), make_chain_note("b", day=1, sources=("a",), chain_id="a")),
    *(make_retired_note("c", "gone"), make_chain_note("d", sources=("gone",))),
    *(make_retired_note("e", "f", sources=("f",)), make_retired_note("f", "e", day=1, sources=("e",), chain_id="e")),
    *(make_chain_note("g"), make_chain_note("h", day=1, chain_id="g")),
)


async def test_fsck_tells_without_touching_and_mends_when_told_to() -> None:
    async with open_note_harnesses(("one", "two")) as (ground, _):
        await ground.put(*DAMAGED, make_chain_note("x", app_id="other", next_id="gone"))
        before = await ground.all()
        seen: list[int] = []

        found = await fsck(ground.repository, ground.chains, APP, progress=seen.append)

        assert (found.notes, found.is_clean, seen) == (8, False, [8])
        assert [(problem.note_id, problem.kind) for problem in found.problems] == [
            ("c", "dangling_next"),
            ("d", "missing_source"),
            ("f", "cycle"),
            ("g", "two_heads"),
        ]
        assert await ground.all() == before

        done = await fsck(ground.repository, ground.chains, APP, repair=True)

        assert (done.is_clean, len(done.problems), done.chains) == (True, 4, 5)
        after = await ground.all()
        assert {id_: one.memory_note for id_, one in after.items()} == {
            id_: one.memory_note for id_, one in before.items()
        }
        assert (after["a"], after["b"]) == (before["a"], before["b"])
        assert await ground.found("text of c") != []
        again = await fsck(ground.repository, ground.chains, APP, repair=True)
        assert (again.problems, again.notes, again.chains) == ((), 8, 5)
        assert not (await fsck(ground.repository, ground.chains, "other")).is_clean


async def test_two_who_repair_at_once_mend_it_once() -> None:
    async with open_note_harnesses() as (ground,):
        await ground.put(*DAMAGED)

        both = await asyncio.gather(*(fsck(ground.repository, ground.chains, APP, repair=True) for _ in range(2)))

        assert all(check.is_clean for check in both)
        assert sum(len(check.problems) for check in both) == 4
        assert await ground.is_sound()


async def test_a_user_who_restores_meanwhile_is_not_told_as_damage() -> None:
    async with open_note_harnesses() as (ground,):
        await ground.put(*chain_of_two_consolidations())

        async def restore() -> None:
            for id_ in ("a", "b", "s1", "c") * 3:
                await ground.evolution.restore(APP, id_)

        async def check(restoring: asyncio.Task[None]) -> None:
            while not restoring.done():
                assert (await fsck(ground.repository, ground.chains, APP)).problems == ()

        async with asyncio.TaskGroup() as group:
            restoring = group.create_task(restore())
            group.create_task(check(restoring))
