"""Data in the console: found, shown, changed on the version that was seen, deleted."""

from __future__ import annotations

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem import SharedMemoryStore


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


def audit_of(service: ConsoleService, store: SharedMemoryStore) -> list[dict[str, str]]:
    """What persons changed by hand: (action, subject, reason)."""
    return service.run(service.hub.store(store.namespace, actor="vera").read_list("console-audit"))


def test_a_value_is_changed_on_the_version_that_was_seen(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(store.write("plan", {"step": 1}))
    key = store.access.absolute("plan")
    page.enter(f"data/{key}")
    page.type("Value (JSON)", '{"step": 2')
    page.see("This is not JSON")
    page.type("Value (JSON)", '{"step": 2}')
    page.type("Reason (is kept with your name)", "was counted wrongly")
    page.press("Save")
    page.see("Saved as version")

    entry = service.run(store.entry("plan"))
    assert entry is not None
    assert (entry.value, entry.actor) == ({"step": 2}, "vera")
    (told,) = audit_of(service, store)
    assert (told["action"], told["subject"], told["reason"]) == ("write", key, "was counted wrongly")


def test_a_conflict_shows_both_values_and_lets_the_person_decide(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(store.write("plan", "collect"))
    page.enter(f"data/{store.access.absolute('plan')}")
    page.type("Value (text)", "compare")
    service.run(store.write("plan", "write"))
    page.press("Save")
    page.see("Somebody else has changed it meanwhile")
    page.see("Now, by ada")
    assert service.run(store.read("plan")) == "write"

    page.press("Save mine over it")
    page.see("Saved as version")
    assert service.run(store.read("plan")) == "compare"
    assert [told for told in page.complaints() if "412" not in told and "409" not in told] == []


def test_members_of_collections_are_shown_added_and_taken_out(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(store.hset("profile", mapping={"role": "planner"}))
    service.run(store.sadd("topics", "tides", "rents"))
    service.run(store.append("log", "hello"))

    page.enter(f"data/{store.access.absolute('profile')}")
    page.see("planner", "aside")
    page.type("Field", "score")
    page.type("Value", "0.7")
    page.press("Add")
    page.see("score", "aside table")
    assert service.run(store.hgetall("profile")) == {"role": "planner", "score": 0.7}

    page.go(f"data/{store.access.absolute('log')}")
    page.see("hello", "aside")
    page.type("Value", "bye")
    page.press("Append")
    page.see("bye", "aside table")

    page.go(f"data/{store.access.absolute('topics')}")
    page.see("rents", "aside")
    page.press("Delete 0", "aside")
    page.until("return document.querySelectorAll('aside [role=region] tbody tr').length === 1")
    assert len(service.run(store.smembers("topics"))) == 1


def test_ticked_keys_are_deleted_after_what_would_go_was_shown(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(store.write_many({f"note-{number}": number for number in range(3)}))
    page.enter("data?pattern=note-*")
    for number in (0, 2):
        page.row(store.access.absolute(f"note-{number}")).find_element("css selector", "input").click()
    page.press("Delete 2 …")
    page.see(f"This would delete 2: {store.access.absolute('note-0')}")
    page.press("Yes, delete 2 …")
    page.see("2 deleted.")

    assert service.run(store.read_many(["note-0", "note-1", "note-2"])) == {"note-1": 1}


def test_changes_of_agents_are_seen_without_asking(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    page.enter("data")
    page.see("This namespace has no keys yet")
    service.run(store.write("plan", 1))
    page.see(store.access.absolute("plan"))
    page.open_row(store.access.absolute("plan"))
    page.see("Value (JSON)")
    service.run(store.write("plan", 2))
    page.until("return document.querySelector('aside textarea')?.value === '2'")


def test_a_reader_is_offered_no_change(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    service.run(store.write("plan", 1))
    page.enter(f"data/{store.access.absolute('plan')}", who="reader")
    page.see("Value (JSON)")
    assert page.one("aside textarea").get_attribute("readonly")
    page.see_not("Delete", "main")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, text: str
) -> None:
    service.run(store.write("note", {"text": text}))
    service.run(store.hset("notes", text.replace("\n", " "), text))
    page.enter(f"data/{store.access.absolute('note')}")
    page.see("Value (JSON)")
    page.go(f"data/{store.access.absolute('notes')}")
    page.see("hash", "aside")
    page.until("return document.querySelectorAll('aside [role=region] tbody tr').length === 1")
    assert page.run("return window.broken") is None


def test_a_large_value_is_shown_in_part_and_downloaded_whole(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(store.write("report", "x" * 10_000_000))
    page.enter(f"data/{store.access.absolute('report')}")
    page.see("This value has 10 MB; it is shown in part.")
    page.button("Download")
