"""Agreement in the console: who holds what under which fence, who is here, and the end of a lease by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from support.browser import HOSTILE
from support.console import ConsolePage, ConsoleService

from sharedmem import LockLostError, SharedMemoryStore
from sharedmem.models import LeaseGrant

T = TypeVar("T")


@pytest.fixture
def store(service: ConsoleService) -> SharedMemoryStore:
    """What agents share, as one of them sees it."""
    return service.store()


async def fill(store: SharedMemoryStore, other: SharedMemoryStore) -> LeaseGrant:
    """One name of each kind that is held without a process; return the lock."""
    await store.lease_acquire("boss", kind="leader", lease=600)
    for one in (store, other):
        await one.lease_acquire("gpu", kind="semaphore", limit=2, lease=600)
        await one.lease_acquire("book", kind="rwlock", shared=True, lease=600)
    await store.rate_limit("api", limit=100, per=600).take(30)
    await other.presence.announce(role="reader", info={"desk": 7}, ttl=600)
    return await store.lease_acquire("index", lease=600)


def reasons(service: ConsoleService) -> list[tuple[str, str, str]]:
    """What persons changed by hand: (action, subject, reason)."""
    told = service.run(service.hub.store(service.namespace, actor="vera").read_list("console-audit"))
    return [(one["action"], one["subject"], one["reason"]) for one in told]


def test_what_is_held_is_shown_with_holder_and_fence(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    page.enter("agreement")
    page.see("Nothing is held")
    page.see("No agent has announced itself")
    grant = service.run(fill(store, service.store("bob")))
    page.see(str(grant.token), 'tr[data-key="lock index"]')
    page.see("30 used", 'tr[data-key="limit api"]')
    page.see("reads", 'tr[data-key="rwlock book"]')
    page.see("desk", 'tr[data-key="bob"]')

    page.go("agreement?kind=semaphore")
    page.until("return document.querySelectorAll('tr[data-key^=semaphore]').length === 2")
    assert page.run("return document.querySelectorAll('tr[data-key^=lock]').length") == 0


def test_a_lease_is_released_after_the_fence_that_it_revokes_was_named(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    held: asyncio.Future[int] = service.run(_future())

    async def work() -> str:
        try:
            async with store.lock("index", lease=3) as lease:
                held.set_result(lease.token)
                await asyncio.Event().wait()
        except LockLostError as lost:
            return str(lost)
        return "never"

    working = service.run(_started(work()))
    token = service.run(_result(held))
    page.enter("agreement")
    page.open_row("lock index")
    page.see("Time left", "aside")
    page.press("Release", "aside")
    page.see(f"This revokes fence {token}, with which ada holds index.", "aside")
    page.type("Reason (is kept with your name)", "it hangs")
    page.press("Yes, release")
    page.see(f"Fence {token} of ada is revoked.")
    page.see("Nobody holds it any more.", "aside")
    page.see("lock.revoke", "aside")

    assert str(token) in service.run(_result(working))
    assert reasons(service) == [("release", f"lock index, fence {token} of ada", "it hangs")]


async def _future() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def _started(work: Coroutine[Any, Any, str]) -> asyncio.Task[str]:
    return asyncio.create_task(work)


async def _result(awaited: asyncio.Future[T]) -> T:
    return await awaited


def test_what_ended_meanwhile_is_said(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    grant = service.run(store.lease_acquire("index", lease=600))
    page.enter("agreement/lock/index")
    page.press("Release", "aside")
    service.run(store.lease_revoke("index", grant.token))
    page.see("Nobody holds it any more.", "aside")
    page.see_not("Yes, release")


def test_a_reader_looks_and_is_offered_no_release(
    page: ConsolePage, service: ConsoleService, store: SharedMemoryStore
) -> None:
    service.run(fill(store, service.store("bob")))
    page.enter("agreement/lock/index", who="reader")
    page.see("Time left", "aside")
    page.see_not("Release", "main")


def test_hostile_names_stay_texts(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore) -> None:
    names = [name for name in HOSTILE if not set(name) & set("{}\n:") and "\u2028" not in name]
    for name in names:
        service.run(store.lease_acquire(name, lease=600))
        service.run(store.presence.announce(role=name[:40], info={"text": name}, ttl=600))
    page.enter("agreement")
    page.until(f"return document.querySelectorAll('tr[data-key^=lock]').length === {len(names)}")
    for name in names:
        page.run("location.hash = '#/agreement/lock/' + encodeURIComponent(arguments[0])", name)
        page.see("Time left", "aside")
    assert page.run("return window.broken") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_it(page: ConsolePage, service: ConsoleService, store: SharedMemoryStore, theme: str) -> None:
    service.run(fill(store, service.store("bob")))
    page.enter("agreement/semaphore/gpu", theme=theme)
    page.see("Time left", "aside")
    page.press("Release", "aside")
    page.button("Yes, release")
    assert page.violations() == []
