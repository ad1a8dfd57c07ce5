"""Queues in the console: found by their content, tried again, moved to the dead, paused, added to."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem import SharedMemoryStore, TaskQueue


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


@pytest.fixture
def queue(store: SharedMemoryStore) -> TaskQueue:
    """The queue that is looked at."""
    return store.queue("reading")


async def fill(queue: TaskQueue) -> dict[str, str]:
    """One task in each state; return their ids."""
    await queue.put({"read": "torn.md"}, priority=9)
    torn = await queue.claim()
    assert torn is not None
    await queue.fail(torn, "page 3 is missing")
    await queue.put({"read": "tides.md"})
    running = await queue.claim()
    assert running is not None
    ready = await queue.put({"read": "rents.md"})
    late = await queue.put({"read": "later.md"}, delay=600)
    return {"dead": torn.id, "claimed": running.id, "ready": ready.id, "delayed": late.id}


def reasons(service: ConsoleService) -> list[tuple[str, str, str]]:
    """What persons changed by hand: (action, subject, reason)."""
    told = service.run(service.hub.store(service.namespace, actor="vera").read_list("console-audit"))
    return [(one["action"], one["subject"], one["reason"]) for one in told]


def test_a_failed_task_is_found_by_its_error_and_tried_again(
    page: ConsolePage, service: ConsoleService, queue: TaskQueue
) -> None:
    ids = service.run(fill(queue))
    page.enter("queues")
    page.open_row("reading")
    page.see("page 3 is missing", "main")
    page.type("Search payload, error, producer, worker", "MISSING page")
    page.until("return document.querySelectorAll('tr[data-key]').length === 1")
    page.open_row(ids["dead"])
    page.see("Became a dead letter", "aside")
    page.see("Attempt 1 of 5, by ada", "aside")
    page.press("Try again", "aside")
    page.see("Waits for a worker", "aside")

    assert service.run(queue.dead()) == []
    assert reasons(service) == [("try again", f"reading/{ids['dead']}", "")]


def test_ticked_tasks_are_moved_to_the_dead_or_deleted_for_a_reason(
    page: ConsolePage, service: ConsoleService, queue: TaskQueue
) -> None:
    ids = service.run(fill(queue))
    page.enter("queues/reading")
    for state in ("ready", "delayed"):
        page.row(ids[state]).find_element(By.CSS_SELECTOR, "input").click()
    page.press("Move 2 to dead")
    page.type("Reason (is kept with your name)", "nobody reads them")
    page.press("Yes, move 2 to dead")
    page.see("2 moved to dead.")
    assert [letter.error for letter in service.run(queue.dead())] == ["page 3 is missing", *["nobody reads them"] * 2]

    page.row(ids["claimed"]).find_element(By.CSS_SELECTOR, "input").click()
    page.row(ids["dead"]).find_element(By.CSS_SELECTOR, "input").click()
    for state in ("ready", "delayed"):
        page.row(ids[state]).find_element(By.CSS_SELECTOR, "input").click()
    page.press("Delete 2")
    page.press("Yes, delete 2")
    page.see("2 deleted.")
    assert {letter.id for letter in service.run(queue.dead())} == {ids["ready"], ids["delayed"]}
    assert service.run(queue.peek(state="claimed")) == []

    page.press("Try all dead again")
    page.press("Yes, try all dead again")
    page.see("All dead tasks are tried again.")
    assert service.run(queue.stats()).ready == 2
    assert [(action, reason) for action, _, reason in reasons(service)] == [
        ("move to dead", "nobody reads them"),
        ("delete", ""),
        ("try all again", ""),
    ]


def test_a_queue_is_paused_resumed_and_added_to(page: ConsolePage, service: ConsoleService, queue: TaskQueue) -> None:
    service.run(queue.put("first"))
    page.enter("queues/reading")
    page.press("Pause")
    page.press("Yes, pause")
    page.see("The queue is paused.")
    assert service.run(queue.stats()).paused
    page.press("Resume")
    page.see("The queue goes on.")
    assert not service.run(queue.stats()).paused

    page.press("Add a task")
    page.type("Payload (JSON)", '{"read"')
    page.see("This is not JSON")
    page.type("Payload (JSON)", '{"read": "new.md"}')
    page.type("Priority (higher first)", "7")
    page.press("Put into the queue")
    page.see("The task was put.")
    page.see("new.md", "[role=region]")
    (task, _) = service.run(queue.peek())
    assert (task.payload, task.priority, task.put_by) == ({"read": "new.md"}, 7, "vera")


def test_what_workers_do_is_seen_without_asking(page: ConsolePage, service: ConsoleService, queue: TaskQueue) -> None:
    page.enter("queues")
    page.see("This namespace has no queues")
    put = service.run(queue.put("first"))
    page.open_row("reading")
    page.open_row(put.id)
    page.see("Waits for a worker", "aside")
    task = service.run(queue.claim())
    assert task is not None
    page.see("Runs; unless it is renewed", "aside")
    service.run(queue.ack(task, {"pages": 12}))
    page.see("pages", "aside")
    page.see("Done", "aside")


def test_a_reader_looks_and_is_offered_no_change(page: ConsolePage, service: ConsoleService, queue: TaskQueue) -> None:
    ids = service.run(fill(queue))
    page.enter(f"queues/reading/{ids['dead']}", who="reader")
    page.see("page 3 is missing", "aside")
    for name in ("Try again", "Pause", "Add a task", "Delete"):
        page.see_not(name, "main")
    assert page.run("return document.querySelectorAll('input[type=checkbox]').length") == 0


def test_hostile_texts_stay_texts(page: ConsolePage, service: ConsoleService, queue: TaskQueue) -> None:
    for text in HOSTILE:
        service.run(queue.put({"text": text}))
        task = service.run(queue.claim())
        assert task is not None
        service.run(queue.fail(task, text))
    page.enter("queues/reading")
    page.until(f"return document.querySelectorAll('tr[data-key]').length === {len(HOSTILE)}")
    for letter in service.run(queue.dead(n=len(HOSTILE))):
        page.go(f"queues/reading/{letter.id}")
        page.see(letter.id, "aside")
        page.see("Became a dead letter", "aside")
    assert page.run("return window.broken") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(page: ConsolePage, service: ConsoleService, queue: TaskQueue, theme: str) -> None:
    ids = service.run(fill(queue))
    page.enter("queues", theme=theme)
    page.row("reading")
    assert page.violations() == []
    page.go(f"queues/reading/{ids['dead']}")
    page.see("Became a dead letter", "aside")
    page.press("Add a task")
    page.row(ids["ready"]).find_element(By.CSS_SELECTOR, "input").click()
    page.button("Move 1 to dead")
    assert page.violations() == []
