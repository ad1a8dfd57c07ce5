"""What is forgotten is gone for good, and what rules of retention name goes without harm to what stays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.contexts import scope_of
from support.example_budget import example_count
from support.note_chains import APP, START, chain_of_two_consolidations, make_chain_note, make_retired_note, sound_notes
from support.note_harness import NoteHarness

from sharedmem import InvalidError
from sharedmem.models import Note, RetentionRule, RetentionRules, SynthesisMessage
from sharedmem.synthesis.consistency import find_problems
from sharedmem.synthesis.erasure import expired_notes
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.tasks import AddMemoryTask
from sharedmem.testing.notes import assert_sound

ALL_AFTER_A_YEAR = RetentionRules(rules=(RetentionRule(max_age_days=365),))
ALL_AT_ONCE = RetentionRules(rules=(RetentionRule(max_age_days=0),), keeps_heads=False)


class FallenError(Exception):
    """The process is gone."""


async def put_two_users(harness: NoteHarness) -> None:
    """Ada has a chain, an archive and a task; Bob has a note and a task; in another app Ada has a note."""
    await harness.put(*chain_of_two_consolidations())
    harness.pass_years(11)
    await harness.archiver.archive(APP)
    await harness.put(
        make_chain_note("late", day=4017),
        make_chain_note("bob", day=4017, user_id="bob"),
        make_chain_note("a", app_id="other"),
    )
    for user in ("ada", "bob"):
        said = (SynthesisMessage(role="user", content="hello"),)
        await harness.intake.put(AddMemoryTask(app_id=APP, user_id=user, messages=said))
    await harness.repository.remember(APP, {"d": b"{}"}, ttl_s=60)
    await harness.repository.remember("other", {"d": b"{}"}, ttl_s=60)


async def test_only_the_named_user_is_forgotten(harness: NoteHarness) -> None:
    await put_two_users(harness)
    before = await harness.all()

    told = await harness.eraser.forget(APP, "ada", dry_run=True)
    assert (told.notes, told.messages, told.archives, told.tasks, told.dry_run) == (6, 1, 1, 0, True)
    assert (told.oldest, told.newest) == (START + timedelta(days=1), START + timedelta(days=4017))
    assert (await harness.all(), await harness.archived()) == (before, 1)

    done = await harness.eraser.forget(APP, "ada")
    assert done == told.model_copy(update={"dry_run": False, "tasks": 1})
    assert (set(await harness.all()), set(await harness.all("other"))) == ({"bob"}, {"a"})
    assert await harness.archived() == 0
    assert [task.task_id for task in await harness.intake.list()] != []
    assert (await harness.repository.remembered(APP, ["d"]), await harness.repository.remembered("other", ["d"])) == (
        {},
        {"d": b"{}"},
    )
    assert (await harness.eraser.forget(APP, "ada")).notes == 0


async def test_an_app_is_forgotten_whole(harness: NoteHarness) -> None:
    await put_two_users(harness)
    await harness.archives.put(APP, [make_chain_note("left by a crash")])

    done = await harness.eraser.forget(APP)

    assert (done.notes, done.tasks, done.user_id) == (7, 2, None)
    assert (await harness.all(), await harness.archived(), await harness.intake.list()) == ({}, 0, [])
    assert await harness.repository.apps() == ["other"]


class FallingRepository(RedisNoteRepository):
    """A repository whose process falls after it has erased some notes, or right before."""

    left = 0

    async def erase(self, app_id: str, ids: Sequence[str]) -> int:
        if not self.left:
            raise FallenError
        self.left -= 1
        return await super().erase(app_id, ids)


async def test_forgetting_that_was_broken_off_goes_on(harness: NoteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharedmem.synthesis.consistency._PAGE", 2)
    await put_two_users(harness)
    repository = FallingRepository(harness.context, scope_of(harness.store))
    eraser, repository.left = harness.services(repository).eraser, 1
    with pytest.raises(FallenError):
        await eraser.forget(APP, "ada")
    repository.left = 100

    await eraser.forget(APP, "ada")

    assert (set(await harness.all()), await harness.archived()) == ({"bob"}, 0)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(sound_notes(), st.integers(0, 12), st.booleans())
def test_what_stays_of_a_chain_hangs_together(notes: tuple[Note, ...], days: int, keeps_heads: bool) -> None:
    rules = RetentionRules(rules=(RetentionRule(max_age_days=5),), keeps_heads=keeps_heads)

    gone = {one.id for one in expired_notes(notes, rules, now=START + timedelta(days=days))}

    assert all(one.status not in {"active", "conflict_pending"} for one in notes if one.id in gone)
    assert all(one.created_at <= START + timedelta(days=days - 5) for one in notes if one.id in gone)
    assert not keeps_heads or all(one.next_id is not None for one in notes if one.id in gone)
    staying = [
        one.model_copy(update={"sources": tuple(source for source in one.sources if source not in gone)})
        for one in notes
        if one.id not in gone
    ]
    assert find_problems(staying) == []


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        (RetentionRule(max_age_days=365), ["a", "b", "c", "s1"]),
        (RetentionRule(max_age_days=365, statuses=("deleted",)), ["c"]),
        (RetentionRule(max_age_days=365, statuses=("archived",)), []),
        (RetentionRule(max_age_days=365, kinds=("agent",)), []),
        (RetentionRule(max_age_days=3), ["a", "b"]),
        (RetentionRule(max_age_days=400), []),
    ],
)
def test_rules_name_statuses_kinds_and_ages(rule: RetentionRule, gone: list[str]) -> None:
    day = 371 if rule.max_age_days != 3 else 5.5
    found = expired_notes(chain_of_two_consolidations(), RetentionRules(rules=(rule,)), now=START + timedelta(days=day))

    assert sorted(one.id for one in found) == gone


def test_notes_that_share_an_archive_go_together_and_damage_is_left_alone() -> None:
    away = {"status": "archived", "status_reason": "age_decay", "archival_location": "blob:x?"}
    chain = tuple(one.model_copy(update=away) for one in chain_of_two_consolidations())
    later = START + timedelta(days=400)

    assert expired_notes(chain, ALL_AFTER_A_YEAR, now=later) == []
    assert len(expired_notes(chain, ALL_AT_ONCE, now=later)) == 5
    assert (
        expired_notes((*chain_of_two_consolidations(), make_chain_note("rival", chain_id="a")), ALL_AT_ONCE, now=later)
        == []
    )


@pytest.mark.parametrize(
    "wrong", [{"max_age_days": -1}, {"max_age_days": 1, "statuses": ("active",)}, {"statuses": ()}]
)
def test_a_rule_that_would_erase_what_is_alive_is_none(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RetentionRule.model_validate(wrong)


async def test_rules_are_applied_and_a_crash_between_its_steps_is_mended_by_the_next_call(harness: NoteHarness) -> None:
    await harness.put(
        *chain_of_two_consolidations(),
        make_retired_note("x", "y"),
        make_chain_note("y", day=900, sources=("x",), chain_id="x"),
    )
    await harness.put(make_chain_note("bin", status="deleted", status_reason="manual_update"))
    harness.pass_years(2)

    told = await harness.retention.apply(APP, ALL_AFTER_A_YEAR, dry_run=True)
    assert (told.notes, told.messages, told.dry_run) == (5, 4, True)

    repository = FallingRepository(harness.context, scope_of(harness.store))
    retention = harness.services(repository).retention
    with pytest.raises(FallenError):
        await retention.apply(APP, ALL_AFTER_A_YEAR)
    repository.left = 100

    done = await retention.apply(APP, ALL_AFTER_A_YEAR)

    assert (done.notes, done.dry_run) == (5, False)
    assert set(await harness.all()) == {"bin", "s2", "y"}
    assert await harness.is_sound()
    assert (await harness.retention.apply(APP, ALL_AT_ONCE)).notes == 1


async def test_archives_that_a_rule_names_go_with_their_notes(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())
    harness.pass_years(11)
    await harness.archiver.archive(APP)

    done = await harness.retention.apply(APP, ALL_AT_ONCE)

    assert (done.notes, done.archives, await harness.archived(), await harness.all()) == (5, 1, 0, {})


async def test_a_test_of_agents_can_ask_whether_notes_are_sound(harness: NoteHarness) -> None:
    await harness.put(*chain_of_two_consolidations())
    assert (await assert_sound(harness.store, APP)).notes == 5

    await harness.put(make_retired_note("lost", "gone"))
    with pytest.raises(AssertionError, match="lost: dangling_next"):
        await assert_sound(harness.store, APP)


async def test_an_app_that_can_be_none_is_refused(harness: NoteHarness) -> None:
    for call in (harness.eraser.forget, harness.archiver.archive):
        with pytest.raises(InvalidError, match="app_id"):
            await call("")
