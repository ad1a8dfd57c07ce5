"""Notes in the console: lists and questions, chains with their reasons, texts side by side, repair, tasks."""

from __future__ import annotations

from typing import Any

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService
from support.contexts import knowledge_of, scope_of
from support.note_chains import APP, make_chain_note, make_retired_note
from support.notes import open_note_repository

from sharedmem import InvalidError, SharedMemoryStore
from sharedmem.models import Note, NoteLink, Resolution
from sharedmem.synthesis.protocol import CommittedNotes, NewNote
from sharedmem.synthesis.worker import SynthesisServices

REASON = "The newer conversation names another rent."


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


def put(service: ConsoleService, *notes: Note) -> None:
    """Store notes as they are."""
    repository = open_note_repository(service.hub, service.namespace, "ada")
    done = service.run(repository.commit(APP, fresh=[NewNote(note, None) for note in notes]))
    assert isinstance(done, CommittedNotes)


def rents() -> tuple[Note, ...]:
    """Two notes that became one, and one that has nothing to do with them."""
    decision = Resolution(
        memory_id="a", operation="UPDATE", confidence_score=0.83, reasoning=REASON, decided_by="rules"
    )
    return (
        make_retired_note("a", "s", day=1, says="## Summary\n\nThe rent is 850 euro."),
        make_retired_note("b", "s", day=2, says="## Summary\n\nThe lease ends in May."),
        make_chain_note(
            "s",
            day=3,
            says="## Summary\n\nThe rent is 900 euro and the lease ends in May.",
            sources=("b", "a"),
            chain_id="a",
            status_reason="consolidated",
            resolutions=(decision,),
            links=(NoteLink(memory_id="a", similarity_score=0.91),),
        ),
        make_chain_note("c", day=4, says="## Summary\n\nThe harbour was flooded in March."),
    )


def rows(page: ConsolePage, count: int) -> None:
    """Wait until the list has so many rows."""
    page.until("return document.querySelectorAll('main .list tbody tr').length === arguments[0]", count)


def audit_of(service: ConsoleService, store: SharedMemoryStore) -> list[tuple[str, str]]:
    """What persons changed by hand: (action, reason)."""
    told: list[Any] = service.run(service.hub.store(store.namespace, actor="vera").read_list("console-audit"))
    return [(one["action"], one["reason"]) for one in told]


def test_notes_are_listed_by_state_and_found_by_questions(page: ConsolePage, service: ConsoleService) -> None:
    put(service, *rents())
    page.enter("notes")
    page.see("The rent is 900 euro and the lease ends in May.")
    rows(page, 2)
    page.go(f"notes/{APP}?which=all")
    rows(page, 4)
    page.see("superseded")
    page.go(f"notes/{APP}")
    page.type("Question or words", "harbour flooded march")
    page.see_not("The rent is 900 euro")
    rows(page, 1)
    page.open_row("c")
    page.see("Nothing came before it, and nothing after it.", "aside")


def test_new_notes_of_agents_are_seen_without_asking(page: ConsolePage, service: ConsoleService) -> None:
    put(service, *rents()[:3])
    page.enter("notes")
    rows(page, 1)
    put(service, rents()[3])
    rows(page, 2)


def test_a_chain_shows_versions_with_the_reasons_of_each_decision(page: ConsolePage, service: ConsoleService) -> None:
    put(service, *rents())
    page.enter(f"notes/{APP}/s")
    page.see("Chain, newest first", "aside")
    page.see(REASON, "aside ol")
    assert page.run("return document.querySelectorAll('aside ol li').length") == 3
    assert page.run("return document.querySelectorAll('aside ol circle').length") == 3
    page.see("What was decided on older notes", "aside")
    page.see("by rules, 83 % sure", "aside")

    page.go(f"notes/{APP}/s?beside=a")
    page.until("return document.querySelectorAll('aside .split pre').length === 2")
    page.see("The rent is 850 euro.", "aside .split")
    page.see("The rent is 900 euro and the lease", "aside .split")


def test_a_version_is_restored(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    put(service, *rents())
    page.enter(f"notes/{APP}/a")
    page.press("Restore this version")
    page.type("Reason (is kept with your name)", "850 was right")
    page.press("Yes, restore this version")
    page.until("return !location.hash.includes('/a') && document.querySelectorAll('aside ol li').length === 4")
    chain = service.run(store.synthesis.traverse_memory_evolution_chain("a", app_id=APP))
    assert "850" in chain[-1].memory_note
    assert audit_of(service, store) == [("restore a note", "850 was right")]


def test_damage_is_shown_before_it_is_repaired(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    put(service, make_retired_note("lost", "gone"), *rents())
    page.enter(f"notes/{APP}?show=check")
    page.press("Look for damage")
    page.see("a successor is missing")
    assert not service.run(store.synthesis.fsck(app_id=APP)).is_clean
    page.press("Repair")
    page.press("Yes, repair")
    page.see("repaired.")
    page.press("Look again")
    page.see("and nothing is wrong.")
    assert service.run(store.synthesis.fsck(app_id=APP)).problems == ()
    assert [action for action, _ in audit_of(service, store)] == ["repair notes"]


def test_a_failed_task_is_tried_again(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    put(service, *rents())
    intake = SynthesisServices(knowledge_of(store), scope_of(store)).intake
    service.run(intake.queue.put({"kind": "nonsense"}))
    with pytest.raises(InvalidError, match="no request"):
        service.run(store.synthesis.work_once())
    page.enter(f"notes/{APP}?show=tasks")
    page.see("failed")
    page.see("no request")
    page.press("Try again")
    page.see("It waits to be tried again.")
    assert [action for action, _ in audit_of(service, store)] == ["retry a task"]


def test_a_reader_looks_and_is_offered_no_change(page: ConsolePage, service: ConsoleService) -> None:
    put(service, make_retired_note("lost", "gone"), *rents())
    page.enter(f"notes/{APP}/a", who="reader")
    page.see("Chain, newest first", "aside")
    page.see_not("Restore this version", "main")
    page.go(f"notes/{APP}?show=check")
    page.see("This token may look and change nothing.", "main")
    page.see_not("Look for damage", "main")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(page: ConsolePage, service: ConsoleService, theme: str) -> None:
    page.enter("notes", theme=theme)
    page.see("No conversation has become a note yet")
    assert page.violations() == []
    put(service, make_retired_note("lost", "gone"), *rents())
    page.go(f"notes/{APP}/s?which=all&beside=a")
    page.see("Chain, newest first", "aside")
    assert page.violations() == []
    page.go(f"notes/{APP}?show=check")
    page.press("Look for damage")
    page.see("a successor is missing")
    assert page.violations() == []
    page.go(f"notes/{APP}?show=tasks")
    page.see("No task waits, runs or has failed.")
    assert page.violations() == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(page: ConsolePage, service: ConsoleService, text: str) -> None:
    put(
        service,
        make_retired_note("a", "s", says=text),
        make_chain_note("s", says=text, sources=("a",), chain_id="a", tags=(text,), user_id="ada"),
    )
    page.enter(f"notes/{APP}/s?beside=a")
    page.until("return document.querySelectorAll('aside .split pre').length === 2")
    assert page.run("return window.broken") is None
