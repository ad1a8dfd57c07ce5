"""A reply that was lost takes no lock twice, loses none, and leaves no waiter in line: every script on leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from conformance.coordination.leases import is_waiting
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, LockHeldError, LockLostError, SharedMemoryStore
from sharedmem.redis.scripts import scripts

NAMESPACE = "storm"
times = pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])


def digest(script: str) -> bytes:
    return scripts()[script].digest.encode()


@pytest.fixture
async def calm(bare_server: RedisProcess) -> AsyncIterator[SharedMemoryStore]:
    """A store that no fault reaches."""
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        yield hub.store(NAMESPACE, actor="calm")


@pytest.fixture
async def ada(proxy: ChaosProxy) -> AsyncIterator[SharedMemoryStore]:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        yield hub.store(NAMESPACE, actor="ada")


@times
async def test_a_lock_whose_grant_was_lost_is_held_once(
    times: int, ada: SharedMemoryStore, calm: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    proxy.lose_replies(digest("lease_acquire"), times)
    async with ada.semaphore("gpu", 5, wait=0) as lease:
        (holder,) = (await calm.lease_state("gpu", "semaphore")).holders
        assert holder.token == lease.token

    assert proxy.cuts == times
    assert (await calm.lease_state("gpu", "semaphore")).holders == ()


@times
async def test_a_lock_whose_release_was_lost_was_not_lost(
    times: int, ada: SharedMemoryStore, calm: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    async with ada.lock("index"):
        proxy.lose_replies(digest("lease_release"), times)

    assert proxy.cuts == times
    assert (await calm.lease_state("index")).holders == ()


@times
async def test_a_renewal_that_was_lost_is_repeated(times: int, ada: SharedMemoryStore, proxy: ChaosProxy) -> None:
    async with ada.lock("index", lease=3) as lease:
        proxy.lose_replies(digest("lease_renew"), times)
        await wait_until(lambda: proxy.cuts == times, description="the renewal was sent and its reply lost")
        before = lease.remaining
        await wait_until(lambda: lease.remaining > before, description="the lease was renewed")


@times
async def test_a_waiter_whose_leaving_was_lost_is_not_in_line(
    times: int, ada: SharedMemoryStore, calm: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    async with calm.lock("index"):
        proxy.lose_replies(digest("lease_leave"), times)
        with pytest.raises(LockHeldError):
            async with ada.lock("index", wait=0.05):
                raise AssertionError

        assert proxy.cuts == times
        assert (await calm.lease_state("index")).waiting == 0


@times
async def test_a_waiter_whose_grant_was_lost_has_it(
    times: int, ada: SharedMemoryStore, calm: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    async def take() -> int:
        async with ada.lock("index") as lease:
            return lease.token

    async with calm.lock("index") as lease:
        waiting = asyncio.create_task(take())
        await is_waiting(calm, "index", 1)
        proxy.lose_replies(digest("lease_acquire"), times)

    assert await waiting > lease.token
    assert proxy.cuts == times
    assert (await calm.lease_state("index")).holders == ()


async def test_control_without_operation_ids_a_grant_that_was_lost_stands_in_its_own_way(proxy: ChaosProxy) -> None:
    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(digest("lease_acquire"))
        with pytest.raises(LockHeldError):
            async with hub.store(NAMESPACE, actor="ada").lock("index", wait=0):
                raise AssertionError


async def test_control_without_operation_ids_a_release_that_was_lost_looks_like_a_loss(proxy: ChaosProxy) -> None:
    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        with pytest.raises(LockLostError):
            async with hub.store(NAMESPACE, actor="ada").lock("index"):
                proxy.lose_replies(digest("lease_release"))
