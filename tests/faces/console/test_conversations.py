"""Conversations and threads in the console: read, measured against a context window, forked, ended."""

from __future__ import annotations

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem import SharedMemoryStore


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


@pytest.fixture
def chat(service: ConsoleService, store: SharedMemoryStore) -> str:
    """The key of a conversation with four entries of about 100 tokens each, and a state."""
    entries = [{"role": role, "content": role * (360 // len(role))} for role in ("system", "user", "assistant", "user")]
    tags = {"user": "anna", "app": "flats"}
    service.run(store.conversations.append("chat", entries, state={"step": 2}, tags=tags, ttl=3600))
    return store.access.absolute("chat")


def add_turns(service: ConsoleService, store: SharedMemoryStore) -> None:
    """Remember a thread of three turns."""
    for who, words in (
        ("Anna", "Where could I live?"),
        ("Clerk", "In Harbour Street."),
        ("Anna", "What does it cost?"),
    ):
        role = "user" if who == "Anna" else "agent"
        message = {"role": role, "name": who, "content": words}
        metrics = {"input_tokens": 100}
        service.run(store.memory.add({"thread_id": "flat", "memory": words, "messages": [message], "metrics": metrics}))


def test_conversations_are_found_by_their_tags_and_seen_at_once(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    page.enter("conversations")
    page.see("There are no conversations yet")
    service.run(store.conversations.append("chat", ["hello"], tags={"user": "anna"}))
    service.run(store.conversations.append("talk", ["hello"], tags={"user": "bert"}))
    page.row(store.access.absolute("chat"))
    page.row(store.access.absolute("talk"))
    page.type("User", "bert\n")
    page.until("return document.querySelectorAll('[role=region] tbody tr').length === 1")
    assert "user=bert" in page.browser.current_url
    page.go("conversations?user=nobody")
    page.see("No conversation has these tags.")


def test_entries_and_state_are_shown_and_what_a_window_would_hold(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, chat: str
) -> None:
    page.enter("conversations")
    page.open_row(chat)
    page.see("All 4 fit", "aside")
    page.see('"step": 2', "aside")
    page.go(f"conversations/{chat}?window=250")
    page.see("The newest 2 of 4 fit", "aside")
    label = page.one("aside .bars").get_attribute("aria-label")
    assert label is not None
    assert "user" in label
    assert "assistant" in label
    assert "system" not in label
    service.run(store.conversations.append(chat, [{"role": "tool", "content": "950 euros"}]))
    page.see("950 euros", "aside")


def test_a_fork_begins_behind_the_entry_that_was_chosen(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, chat: str
) -> None:
    second = service.run(store.conversations.read(chat)).entries[1]
    page.enter(f"conversations/{chat}")
    page.open_row(second.cursor)
    page.see("Whole entry 2", "aside")
    page.type("Id of the fork", store.access.absolute("chat-2"))
    page.press("Fork behind entry 2")
    page.see("Forked.")
    page.open_row(store.access.absolute("chat-2"))
    page.see("Fork of", "aside")
    fork = service.run(store.conversations.get("chat-2"))
    assert fork is not None
    assert (fork.length, fork.parent, fork.user) == (2, chat, "anna")


def test_an_expiry_is_set_and_a_deletion_says_what_would_go(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, chat: str
) -> None:
    page.enter(f"conversations/{chat}")
    page.press("Set the expiry")
    page.see("The expiry is set.")
    known = service.run(store.conversations.get(chat))
    assert known is not None
    assert known.ttl is None

    page.press("Delete", "aside")
    page.see(f"This would delete {chat} for good: 4 entries")
    page.type("Reason (is kept with your name)", "asked by Anna")
    page.press("Yes, delete")
    page.see("This conversation is not there any more.")
    assert service.run(store.conversations.get(chat)) is None
    told = service.run(service.store("vera").read_list("console-audit"))
    assert [(one["action"], one["reason"]) for one in told][-1] == ("delete conversation", "asked by Anna")
    assert all("404" in complaint for complaint in page.complaints())


def test_threads_of_memory_have_their_turns_participants_and_tokens(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    add_turns(service, store)
    page.enter("conversations")
    page.press("Threads of memory")
    page.open_row("flat")
    page.see("Anna 2, Clerk 1", "aside")
    page.see("300 (as its turns say)", "aside")
    page.see("In Harbour Street.", "aside")
    page.go("conversations?show=threads&thread=flat&window=250")
    page.see("The newest 2 of 3 fit", "aside")
    page.type("Open a thread by its name", "elsewhere")
    page.press("Open")
    page.see("This thread has no turns.", "aside")


def test_a_reader_is_offered_no_change(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, chat: str
) -> None:
    add_turns(service, store)
    page.enter(f"conversations/{chat}", who="reader")
    page.see("All 4 fit", "aside")
    page.see_not("Id of the fork", "aside")
    page.see_not("Delete", "aside")
    page.go("conversations?show=threads&thread=flat")
    page.see("Who took part", "aside")
    page.see_not("Write the summary", "aside")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, text: str
) -> None:
    entries = [{"role": text, "content": text}, text, {text: text}]
    service.run(store.conversations.append("chat", entries, state={"note": text}))
    message = {"role": "user", "name": text.replace("\n", " "), "content": text}
    service.run(store.memory.add({"thread_id": "flat", "memory": text, "messages": [message]}))
    page.enter(f"conversations/{store.access.absolute('chat')}")
    page.see("All 3 fit", "aside")
    page.go("conversations?show=threads&thread=flat")
    page.see("Who took part", "aside")
    assert page.run("return window.broken") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, chat: str, theme: str
) -> None:
    add_turns(service, store)
    page.enter(f"conversations/{chat}?window=250", theme=theme)
    page.see("The newest 2 of 4 fit", "aside")
    assert page.violations() == []
    page.go("conversations?show=threads&thread=flat")
    page.see("Who took part", "aside")
    assert page.violations() == []
