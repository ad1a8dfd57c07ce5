"""Memory in the console: searched and explained, corrected, undone, merged, deleted."""

from __future__ import annotations

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem.memory.memories import Memories

_RENT = "The flat in Harbour Street costs 950 euros a month."
_CALL = "Anna prefers to be called in the morning, before ten."


@pytest.fixture
def memory(service: ConsoleService) -> Memories:
    """What agents remember, as one of them sees it."""
    return service.store().memory


def audit_of(service: ConsoleService) -> list[tuple[str, str, str]]:
    """What persons changed by hand: (action, subject, reason)."""
    told = service.run(service.store("vera").read_list("console-audit"))
    return [(one["action"], one["subject"], one["reason"]) for one in told]


def expected_complaints(page: ConsolePage, *statuses: str) -> bool:
    """Whether the browser complained only of responses with these statuses."""
    return all(any(status in told for status in statuses) for told in page.complaints())


def test_a_search_says_why_each_memory_is_found_and_what_it_cost(
    page: ConsolePage, service: ConsoleService, memory: Memories
) -> None:
    rent = service.run(memory.add(_RENT, category="offer", tags=["rent"]))
    service.run(memory.add(_CALL, category="preference"))
    page.enter("memory")
    page.see("Memories: 2")
    page.type("Search for, in everyday language", "rent of the flat")
    page.press("Search")
    page.see("round trips")
    page.see("words and meaning:")
    label = page.row(rent.id).find_element("css selector", ".bars").get_attribute("aria-label")
    assert label is not None
    assert "words" in label
    page.open_row(rent.id)
    page.see("Why it was found", "aside")
    page.see("words (BM25)", "aside table")
    assert "query=rent" in page.browser.current_url


def test_ranks_are_compared_with_those_of_the_search_before(
    page: ConsolePage, service: ConsoleService, memory: Memories
) -> None:
    flat = service.run(memory.add("flat", importance="low"))
    rent = service.run(memory.add("rent", importance="low"))
    page.enter("memory?query=flat&mode=keywords")
    page.row(flat.id)
    page.see_not("Before", "main table")
    page.go("memory?query=flat flat rent&mode=keywords")
    page.row(rent.id)
    page.see("new", f'tr[data-key="{rent.id}"]')
    page.see("Before", "main table")


def test_filters_and_weights_are_in_the_address(page: ConsolePage, service: ConsoleService, memory: Memories) -> None:
    rent = service.run(memory.add(_RENT, category="offer"))
    call = service.run(memory.add(_CALL, category="preference"))
    page.enter("memory")
    page.row(call.id)
    page.press("offer 1")
    page.until("return document.querySelectorAll('[role=region] tbody tr').length === 1")
    page.row(rent.id)
    assert "category=offer" in page.browser.current_url

    page.go("memory?query=flat&vector=0&text=0.9")
    page.see("Weights of the ranking (2)")
    page.open_row(rent.id)
    page.see("0.9", "aside table")
    page.press("Weights of the ranking (2)")
    page.press("As the service has them")
    page.see_not("Weights of the ranking (2)")
    assert "vector=" not in page.browser.current_url


def test_a_memory_is_corrected_on_the_version_that_was_seen(
    page: ConsolePage, service: ConsoleService, memory: Memories
) -> None:
    rent = service.run(memory.add(_RENT, category="offer"))
    page.enter(f"memory/{rent.id}")
    page.press("Edit")
    page.type("Text", "The flat in Harbour Street costs 970 euros a month.")
    page.type("Reason (is kept with your name)", "the landlord called")
    page.press("Save")
    page.see("Saved.")
    page.see("970 euros", "aside")

    item = service.run(memory.get(rent.id))
    assert item is not None
    assert (item.memory, item.content, item.category) == (
        *["The flat in Harbour Street costs 970 euros a month."] * 2,
        "offer",
    )
    assert service.run(memory.history(rent.id))[0].actor == "vera"
    assert audit_of(service) == [("correct memory", rent.id, "the landlord called")]


def test_a_conflict_shows_both_texts(page: ConsolePage, service: ConsoleService, memory: Memories) -> None:
    rent = service.run(memory.add(_RENT))
    page.enter(f"memory/{rent.id}")
    page.press("Edit")
    page.type("Text", "The flat costs 970 euros.")
    service.run(memory.update(rent.id, memory="The flat is let."))
    page.press("Save")
    page.see("Somebody else has changed it meanwhile")
    page.see("The flat is let.", "aside")
    page.press("Save mine over it")
    page.see("Saved.")
    assert service.run(memory.get(rent.id)).memory == "The flat costs 970 euros."  # type: ignore[union-attr]
    assert expected_complaints(page, "409", "412")


def test_a_merge_is_seen_and_undone(page: ConsolePage, service: ConsoleService, memory: Memories) -> None:
    call = service.run(memory.add(_CALL))
    service.run(service.store("bo").memory.add(_CALL.upper()))
    page.enter(f"memory/{call.id}")
    page.see("A duplicate was merged into it", "aside")
    page.press("Undo", "aside")
    page.see("This would take back what bo did (merged)")
    page.press("Yes, undo")
    page.see("Undone.")
    assert len(service.run(memory.list())) == 2


def test_a_deletion_says_what_would_go_and_can_be_undone(
    page: ConsolePage, service: ConsoleService, memory: Memories
) -> None:
    call = service.run(memory.add(_CALL))
    page.enter(f"memory/{call.id}")
    page.press("Delete", "aside")
    page.see(f"This would delete “{_CALL}”, which was added once")
    page.press("Yes, delete")
    page.see("It is deleted, or has expired")
    assert service.run(memory.get(call.id)) is None

    page.press("Undo", "aside")
    page.press("Yes, undo")
    page.see("Edit", "aside")
    assert service.run(memory.get(call.id)) is not None
    assert [action for action, *_ in audit_of(service)] == ["delete memory", "undo deleted"]
    assert expected_complaints(page, "404")


def test_duplicates_are_shown_before_they_are_merged(
    page: ConsolePage, service: ConsoleService, memory: Memories
) -> None:
    call = service.run(memory.add(_CALL))
    twin = service.run(memory.add(_CALL.replace(",", ""), dedup=False))
    page.enter("memory")
    page.press("Look for duplicates")
    page.press("Compare")
    page.see("duplicates: 1")
    assert len(service.run(memory.list())) == 2
    page.press("Merge 1")
    page.press("Yes, merge 1")
    page.see("1 merged.")
    assert service.run(memory.get(twin.id)) is None
    assert service.run(memory.history(call.id))[0].change == "merged"


def test_all_that_match_a_filter_are_deleted(page: ConsolePage, service: ConsoleService, memory: Memories) -> None:
    service.run(memory.add(_RENT, category="offer"))
    service.run(memory.add(_CALL, category="preference"))
    page.enter("memory?category=offer")
    page.press("Delete all 1 that match")
    page.see("This would delete 1 memories, among them: “The flat")
    page.press("Yes, delete all 1 that match")
    page.see("1 deleted.")
    assert [item.memory for item in service.run(memory.list())] == [_CALL]


def test_what_agents_remember_is_seen_at_once_and_searches_say_that_they_are_old(
    page: ConsolePage, service: ConsoleService, memory: Memories
) -> None:
    page.enter("memory")
    page.see("Nothing is remembered here yet")
    rent = service.run(memory.add(_RENT))
    page.row(rent.id)
    page.go("memory?query=flat")
    page.see("round trips")
    service.run(memory.add("The flat is let."))
    page.see("Memories have changed since this search.")
    page.press("Search again")
    page.see("The flat is let.", "[role=region]")


def test_a_search_by_words_alone_says_so(page: ConsolePage, service: ConsoleService, memory: Memories) -> None:
    service.run(memory.add(_RENT))
    page.enter("memory?query=flat&mode=keywords")
    page.see("words alone:")
    page.go("memory?query=zebra&mode=keywords")
    page.see("No memory answers that")


def test_a_reader_is_offered_no_change(page: ConsolePage, service: ConsoleService, memory: Memories) -> None:
    call = service.run(memory.add(_CALL, category="preference"))
    page.enter(f"memory/{call.id}?category=preference&show=duplicates", who="reader")
    page.see("Added so often", "aside")
    page.row(call.id)
    names = page.run("return [...document.querySelectorAll('main button')].map((one) => one.innerText.trim())")
    assert not {"Edit", "Undo", "Delete", "Compare", "Look for duplicates"} & set(names)
    page.see_not("that match", "main")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(page: ConsolePage, service: ConsoleService, memory: Memories, text: str) -> None:
    name = text.replace("\n", " ")  # names have one line
    added = service.run(memory.add(text, category=name, tags=[name], metadata={"note": text}))
    service.run(memory.update(added.id, summary=text))
    page.enter(f"memory/{added.id}")
    page.see("Added so often", "aside")
    page.row(added.id)
    assert page.run("return window.broken") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(page: ConsolePage, service: ConsoleService, memory: Memories, theme: str) -> None:
    call = service.run(memory.add(_CALL, importance="critical", category="preference"))
    service.run(memory.update(call.id, importance="high"))
    page.enter(f"memory/{call.id}?query=call&show=duplicates", theme=theme)
    page.see("Why it was found", "aside")
    page.press("Filters")
    page.press("Weights of the ranking")
    page.press("Edit", "aside")
    page.see("Cancel", "aside")
    assert page.violations() == []
