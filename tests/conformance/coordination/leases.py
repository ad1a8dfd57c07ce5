"""Locks, semaphores, read/write locks, leaders: who may, who waits, and what the refused are told."""
# ruff: noqa: PT012  # a test's name is its sentence; what a block raises at its end takes the block to show

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

from sharedmem.coordination.locks import LeaseKind
from sharedmem.errors import AccessDeniedError, InvalidError, LockHeldError, LockLostError
from sharedmem.hub import Hub
from sharedmem.models.coordination import LeaseGrant
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually

Block = Callable[[], AbstractAsyncContextManager[Any]]


async def is_waiting(store: SharedMemoryStore, name: str, count: int, kind: LeaseKind = "lock") -> None:
    """Return when so many wait in line."""

    async def they_do() -> bool:
        return (await store.lease_state(name, kind)).waiting == count

    await eventually(they_do)


class _Contenders:
    """Tasks that each hold something in turn, and who was in, in order."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.leave = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, block: AbstractAsyncContextManager[Any], *, stays: bool = False) -> None:
        """One more who takes it, and gives it back at once or when all may leave."""
        self._tasks.append(asyncio.create_task(self._hold(len(self._tasks), block, stays=stays)))

    async def _hold(self, number: int, block: AbstractAsyncContextManager[Any], *, stays: bool) -> None:
        async with block:
            self.came.append(number)
            if stays:
                await self.leave.wait()

    async def end(self) -> None:
        """Wait until all were in and are out."""
        self.leave.set()
        await asyncio.gather(*self._tasks)


class LockTests(StoreFixtures):
    """Locks."""

    async def test_of_many_that_ask_at_the_same_moment_one_gets_it(self, ada: SharedMemoryStore) -> None:
        asked = [ada.lease_acquire("index", wait=0) for _ in range(60)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

        grants = [answer for answer in answers if isinstance(answer, LeaseGrant)]
        assert len(grants) == 1
        assert all(isinstance(answer, LockHeldError) for answer in answers if answer not in grants)
        (holder,) = (await ada.lease_state("index")).holders
        assert holder.token == grants[0].token

    async def test_locks_asked_for_at_the_same_moment_have_tokens_of_their_own(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        names = [f"job-{number}" for number in range(60)]
        grants = await asyncio.gather(*[ada.lease_acquire(name) for name in names])

        assert len({grant.token for grant in grants}) == 60
        for name, grant in zip(names, grants, strict=True):
            (holder,) = (await bob.lease_state(name)).holders
            assert (holder.actor, holder.token) == ("ada", grant.token)

        assert await asyncio.gather(*[ada.lease_release(grant.name, grant.id) for grant in grants]) == [True] * 60
        assert (await bob.lease_acquire(names[7])).token > max(grant.token for grant in grants)

    async def test_a_lock_is_held_by_one_at_a_time(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        inside: list[int] = []

        async def work(store: SharedMemoryStore, number: int) -> None:
            for _ in range(5):
                async with store.lock("index"):
                    inside.append(number)
                    assert len(inside) == 1
                    await asyncio.sleep(0)
                    assert inside.pop() == number

        await asyncio.gather(*(work(store, number) for number, store in enumerate([ada, bob, ada])))

    async def test_every_holder_has_a_higher_token(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        tokens = []
        for store in (ada, bob, ada, bob):
            async with store.lock("index") as lease:
                tokens.append(lease.token)
        async with ada.lock("other") as lease:
            tokens.append(lease.token)

        assert tokens == sorted(set(tokens))
        assert await ada.write("k", 1) > tokens[-1]

    async def test_a_lease_tells_what_it_is(self, ada: SharedMemoryStore) -> None:
        async with ada.lock("index", lease=9) as lease:
            assert (lease.name, lease.is_held()) == ("index", True)
            assert 7 < lease.remaining <= 8.1
            assert f"<Lease 'index' held by ada, token {lease.token}, " in repr(lease)
            lease.check()

        assert (lease.is_held(), lease.remaining) == (False, 0)
        assert repr(lease) == f"<Lease 'index' held by ada, token {lease.token}, ended>"
        with pytest.raises(LockLostError, match=f"lock 'index' is no longer yours .token {lease.token}.") as caught:
            lease.check()
        assert caught.value.token == lease.token

    async def test_who_tries_once_is_told_for_how_long_it_is_held(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        async with ada.lock("index", lease=9):
            for again in (ada, bob):
                with pytest.raises(LockHeldError, match="lock 'index' is held for up to") as caught:
                    async with again.lock("index", wait=0):
                        raise AssertionError

        assert 8 < caught.value.remaining <= 9.1
        async with bob.lock("index", wait=0):
            pass

    async def test_who_waits_in_vain_leaves_the_line(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        async with ada.lock("index"):
            with pytest.raises(LockHeldError):
                async with bob.lock("index", wait=0.05):
                    raise AssertionError
            assert (await ada.lease_state("index")).waiting == 0

    async def test_who_waits_gets_it_in_the_order_of_coming(self, ada: SharedMemoryStore) -> None:
        crowd = _Contenders()
        async with ada.lock("index"):
            for number in range(3):
                crowd.add(ada.lock("index"))
                await is_waiting(ada, "index", number + 1)
            assert crowd.came == []
        await crowd.end()

        assert crowd.came == [0, 1, 2]
        assert await ada.lease_state("index") == await ada.lease_state("nothing")

    async def test_who_comes_later_does_not_overtake(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        crowd = _Contenders()
        async with ada.lock("index"):
            crowd.add(bob.lock("index"), stays=True)
            await is_waiting(ada, "index", 1)
        with pytest.raises(LockHeldError):
            async with ada.lock("index", wait=0):
                raise AssertionError
        await crowd.end()

    async def test_the_state_tells_who_holds_it(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        assert await ada.lease_state("index") == await ada.lease_state("index", "leader")
        async with bob.lock("index", lease=9) as lease:
            state = await ada.lease_state("index")

        (holder,) = state.holders
        assert (holder.token, holder.actor, state.waiting) == (lease.token, "bob", 0)
        assert 8000 < holder.remaining_ms <= 9000

    async def test_kinds_and_names_do_not_meet(self, ada: SharedMemoryStore, namespace: str) -> None:
        async with (
            ada.lock("index"),
            ada.lock("other", wait=0),
            ada.semaphore("index", 1, wait=0),
            ada.rwlock("index").writing(wait=0),
            ada.leader("index") as candidacy,
        ):
            assert await candidacy.elected()
            with pytest.raises(LockHeldError):
                async with ada.lock(f"{namespace}:shared:index", wait=0):
                    raise AssertionError

    async def test_an_error_of_the_block_is_the_users_own(self, ada: SharedMemoryStore) -> None:
        with pytest.raises(KeyError, match="mine"):
            async with ada.lock("index"):
                raise KeyError("mine")

        assert (await ada.lease_state("index")).holders == ()

    async def test_a_lock_that_is_gone_at_the_end_of_the_block_was_lost(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        with pytest.raises(LockLostError, match="take it again before you write") as caught:
            async with ada.lock("index") as lease:
                await team.clear()
        assert caught.value.token == lease.token

        async with ada.lock("index", wait=0) as following:
            assert following.token > lease.token

    async def test_an_error_of_the_block_comes_before_the_loss(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        with pytest.raises(KeyError, match="mine"):
            async with ada.lock("index"):
                await team.clear()
                raise KeyError("mine")

    async def test_it_is_no_key(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        async with ada.lock("index"), ada.semaphore("index", 3):
            found = team.keys()
            assert [key async for key in found] == []
            assert not await team.exists("index")

    async def test_locks_of_other_namespaces_are_closed(self, ada: SharedMemoryStore) -> None:
        for name in ("elsewhere:shared:index", "elsewhere:index"):
            for block in (ada.lock(name), ada.semaphore(name, 2), ada.leader(name)):
                with pytest.raises(AccessDeniedError, match="ada"):
                    async with block:
                        raise AssertionError
        with pytest.raises(AccessDeniedError, match="may not read"):
            await ada.lease_state("elsewhere:shared:index")

    @pytest.mark.parametrize(
        ("field", "bad"),
        [("lease", bad) for bad in (0, 0.01, -1, 86_401, float("nan"), float("inf"), "1", True, None)]
        + [("wait", bad) for bad in (-1, float("nan"), "1", True)],
    )
    async def test_an_impossible_time_is_refused(self, ada: SharedMemoryStore, field: str, bad: Any) -> None:
        named: Any = {field: bad}
        blocks: list[Block] = [lambda: ada.lock("index", **named), lambda: ada.rwlock("index").reading(**named)]
        for block in blocks:
            with pytest.raises(InvalidError, match=field):
                async with block():
                    raise AssertionError

        assert (await ada.lease_state("index")).holders == ()

    @pytest.mark.parametrize("bad", ["", "a\nb", "{a}", ":", "a:", None, 5])
    async def test_an_impossible_name_is_refused(self, ada: SharedMemoryStore, bad: Any) -> None:
        with pytest.raises(InvalidError):
            async with ada.lock(bad):
                raise AssertionError

    async def test_an_unknown_kind_is_refused(self, ada: SharedMemoryStore) -> None:
        kind: Any = "mutex"
        with pytest.raises(InvalidError, match="use one of lock, semaphore, rwlock, leader"):
            await ada.lease_state("index", kind)


class GrantTests(StoreFixtures):
    """Locks that are taken, kept and given back call by call."""

    async def test_a_grant_is_the_lock_of_that_name(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        grant = await ada.lease_acquire("index", lease=60)
        with pytest.raises(LockHeldError):
            await bob.lease_acquire("index")
        with pytest.raises(LockHeldError):
            async with bob.lock("index", wait=0):
                raise AssertionError
        kept = await ada.lease_renew("index", grant.id, lease=90)

        assert (kept.token, kept.remaining) == (grant.token, 90)
        assert [holder.token for holder in (await bob.lease_state("index")).holders] == [grant.token]
        assert await ada.lease_release("index", grant.id)
        async with bob.lock("index", wait=0) as lease:
            assert lease.token > grant.token

    async def test_a_grant_that_is_given_back_calls_the_next_in_line(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        grant = await ada.lease_acquire("index", lease=60)
        waiting = asyncio.create_task(bob.lease_acquire("index", wait=None))
        await is_waiting(ada, "index", 1)
        await ada.lease_release("index", grant.id)

        assert (await waiting).token > grant.token

    async def test_places_of_a_semaphore_are_granted_call_by_call(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        first = await ada.lease_acquire("gpu", kind="semaphore", limit=2)
        async with bob.semaphore("gpu", 2, wait=0):
            with pytest.raises(LockHeldError, match="semaphore 'gpu'"):
                await bob.lease_acquire("gpu", kind="semaphore", limit=2)

        assert (await ada.lease_renew("gpu", first.id, kind="semaphore", lease=90)).token == first.token
        assert not await ada.lease_release("gpu", first.id)  # the lock of that name is another thing
        assert await ada.lease_release("gpu", first.id, kind="semaphore")

    async def test_a_read_write_lock_is_granted_call_by_call(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        reading = await ada.lease_acquire("map", kind="rwlock", shared=True)
        async with bob.rwlock("map").reading(wait=0):
            with pytest.raises(LockHeldError):
                await bob.lease_acquire("map", kind="rwlock")
        await ada.lease_release("map", reading.id, kind="rwlock")

        writing = await bob.lease_acquire("map", kind="rwlock")
        assert writing.token > reading.token
        with pytest.raises(LockHeldError):
            await ada.lease_acquire("map", kind="rwlock", shared=True)

    async def test_a_leader_may_come_and_go_between_calls(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        grant = await ada.lease_acquire("scheduler", kind="leader", lease=60)

        assert [one.actor for one in (await bob.lease_state("scheduler", "leader")).holders] == ["ada"]
        async with bob.leader("scheduler") as candidacy:
            assert candidacy.token is None
            await ada.lease_release("scheduler", grant.id, kind="leader")
            assert await candidacy.elected() > grant.token

    @pytest.mark.parametrize(
        ("bad", "field"),
        [
            ({"kind": "mutex"}, "kind"),
            ({"kind": "semaphore"}, "limit"),
            ({"kind": "semaphore", "limit": 0}, "limit"),
            ({"limit": 2}, "limit"),
            ({"shared": True}, "shared"),
        ],
    )
    async def test_terms_that_a_kind_does_not_have_are_refused(
        self, ada: SharedMemoryStore, bad: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidError, match=field):
            await ada.lease_acquire("index", **bad)

    async def test_a_grant_that_is_gone_is_told(self, ada: SharedMemoryStore) -> None:
        grant = await ada.lease_acquire("index")
        await ada.lease_release("index", grant.id)

        assert not await ada.lease_release("index", grant.id)
        with pytest.raises(LockLostError, match=rf"'index' is no longer yours \(token {grant.token}\)"):
            await ada.lease_renew("index", grant.id)

    async def test_a_grant_does_nothing_for_another_actor(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        grant = await ada.lease_acquire("index")

        assert not await bob.lease_release("index", grant.id)
        with pytest.raises(LockLostError):
            await bob.lease_renew("index", grant.id)
        assert await ada.lease_release("index", grant.id)

    @pytest.mark.parametrize("bad", ["", "x", "====", "ünicode", "MTI", "eCB5"])
    async def test_what_is_no_id_of_a_grant_is_refused(self, ada: SharedMemoryStore, bad: str) -> None:
        with pytest.raises(InvalidError, match="as it was returned"):
            await ada.lease_release("index", bad)


class SemaphoreTests(StoreFixtures):
    """Semaphores."""

    async def test_as_many_hold_it_as_there_are_places(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        async with ada.semaphore("gpu", 2) as one, bob.semaphore("gpu", 2, wait=0) as two:
            state = await ada.lease_state("gpu", "semaphore")
            with pytest.raises(LockHeldError, match="semaphore 'gpu'"):
                async with ada.semaphore("gpu", 2, wait=0):
                    raise AssertionError

        assert {holder.token for holder in state.holders} == {one.token, two.token}
        assert {holder.actor for holder in state.holders} == {"ada", "bob"}

    async def test_a_place_that_comes_free_goes_to_the_first_in_line(self, ada: SharedMemoryStore) -> None:
        crowd = _Contenders()
        async with ada.semaphore("gpu", 2):
            async with ada.semaphore("gpu", 2):
                crowd.add(ada.semaphore("gpu", 2), stays=True)
                await is_waiting(ada, "gpu", 1, "semaphore")
                crowd.add(ada.semaphore("gpu", 2))
                await is_waiting(ada, "gpu", 2, "semaphore")
            await eventually(lambda: crowd.came == [0])
            await is_waiting(ada, "gpu", 1, "semaphore")
        await eventually(lambda: crowd.came == [0, 1])
        await crowd.end()

    async def test_places_that_come_free_together_are_all_taken(self, ada: SharedMemoryStore) -> None:
        crowd = _Contenders()
        async with AsyncExitStack() as holders:
            for _ in range(3):
                await holders.enter_async_context(ada.semaphore("gpu", 3))
            for number in range(3):
                crowd.add(ada.semaphore("gpu", 3), stays=True)
                await is_waiting(ada, "gpu", number + 1, "semaphore")
        # Waiters that are woken at once report in any order.
        await eventually(lambda: sorted(crowd.came) == [0, 1, 2])
        await crowd.end()

    async def test_a_short_lease_does_not_end_a_long_one(self, ada: SharedMemoryStore) -> None:
        async with ada.semaphore("gpu", 2, lease=60):
            async with ada.semaphore("gpu", 2, lease=5):
                pass
            (holder,) = (await ada.lease_state("gpu", "semaphore")).holders
            assert holder.remaining_ms > 50_000

    @pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2", None, 1_000_001])
    async def test_an_impossible_limit_is_refused(self, ada: SharedMemoryStore, limit: Any) -> None:
        with pytest.raises(InvalidError, match="limit"):
            async with ada.semaphore("gpu", limit):
                raise AssertionError


class ReadWriteLockTests(StoreFixtures):
    """Read/write locks."""

    async def test_readers_read_together_and_a_writer_writes_alone(self, ada: SharedMemoryStore) -> None:
        rwlock = ada.rwlock("plan")
        async with rwlock.reading(), rwlock.reading(wait=0):
            await expect_refusal(rwlock.writing(wait=0))
        async with rwlock.writing(wait=0):
            await expect_refusal(rwlock.reading(wait=0))
            await expect_refusal(rwlock.writing(wait=0))
        async with rwlock.reading(wait=0):
            pass

        assert rwlock.name == "plan"
        assert repr(rwlock) == "<ReadWriteLock 'plan'>"

    async def test_a_writer_is_not_starved_by_readers(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        crowd = _Contenders()
        async with ada.rwlock("plan").reading():
            crowd.add(bob.rwlock("plan").writing(), stays=True)
            await is_waiting(ada, "plan", 1, "rwlock")
            await expect_refusal(ada.rwlock("plan").reading(wait=0))
            crowd.add(ada.rwlock("plan").reading())
            await is_waiting(ada, "plan", 2, "rwlock")
        await eventually(lambda: crowd.came == [0])
        await crowd.end()

        assert crowd.came == [0, 1]

    async def test_readers_who_wait_for_a_writer_go_in_together(self, ada: SharedMemoryStore) -> None:
        crowd, rwlock = _Contenders(), ada.rwlock("plan")
        async with rwlock.writing():
            for number in range(3):
                crowd.add(rwlock.reading(), stays=True)
                await is_waiting(ada, "plan", number + 1, "rwlock")
        await eventually(lambda: sorted(crowd.came) == [0, 1, 2])
        await crowd.end()

    async def test_readers_do_not_pass_a_writer_in_line(self, ada: SharedMemoryStore) -> None:
        crowd, rwlock = _Contenders(), ada.rwlock("plan")
        async with rwlock.writing():
            for number, block in enumerate([rwlock.reading(), rwlock.writing(), rwlock.reading()]):
                crowd.add(block, stays=number == 0)
                await is_waiting(ada, "plan", number + 1, "rwlock")
        await eventually(lambda: crowd.came == [0])
        await is_waiting(ada, "plan", 2, "rwlock")
        await crowd.end()

        assert crowd.came == [0, 1, 2]

    async def test_a_read_write_lock_of_another_namespace_is_closed(self, ada: SharedMemoryStore) -> None:
        with pytest.raises(AccessDeniedError, match="ada"):
            ada.rwlock("elsewhere:shared:plan")


async def expect_refusal(block: AbstractAsyncContextManager[Any]) -> None:
    """What is taken with `wait=0` is held by others."""
    with pytest.raises(LockHeldError):
        async with block:
            raise AssertionError


class LeaderTests(StoreFixtures):
    """Leader election."""

    async def test_one_candidate_leads_and_the_next_takes_over(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        async with bob.leader("boss") as second:
            async with ada.leader("boss") as first:
                leader, other = (first, second) if await self._leads(first, second) else (second, first)
                token = await leader.elected()
                assert (leader.token, other.token, other.is_leader) == (token, None, False)
                await is_waiting(ada, "boss", 1, "leader")
                await leader.resign()
                following = await other.elected()
                assert following > token
            await eventually(lambda: second.is_leader)

        assert (first.is_leader, second.is_leader) == (False, False)
        assert (await ada.lease_state("boss", "leader")).holders == ()

    async def _leads(self, first: Any, second: Any) -> bool:
        await eventually(lambda: first.is_leader or second.is_leader)
        return bool(first.is_leader)

    async def test_a_candidate_says_what_it_is(self, ada: SharedMemoryStore) -> None:
        async with ada.leader("boss") as candidacy:
            token = await candidacy.elected()
            assert candidacy.name == "boss"
            assert repr(candidacy) == f"<Candidacy for 'boss', leads, token {token}>"
            (holder,) = (await ada.lease_state("boss", "leader")).holders
            assert (holder.actor, holder.token) == ("ada", token)

        assert repr(candidacy) == "<Candidacy for 'boss', does not lead>"

    async def test_who_resigns_stands_again(self, ada: SharedMemoryStore) -> None:
        async with ada.leader("boss") as candidacy:
            token = await candidacy.elected()
            await candidacy.resign()
            assert await candidacy.elected() > token

    async def test_gain_and_loss_are_told(self, ada: SharedMemoryStore, hub: Hub) -> None:
        told: list[tuple[str, int]] = []

        def gained(token: int) -> None:
            told.append(("gain", token))

        def lost(token: int) -> None:
            told.append(("loss", token))

        async with ada.leader("boss", on_gain=gained, on_loss=lost) as candidacy:
            token = await candidacy.elected()
            await eventually(lambda: told)

        assert told == [("gain", token), ("loss", token)]
        assert hub.counters.read("callback_failures") == 0

    async def test_a_failing_callback_ends_no_campaign(self, ada: SharedMemoryStore, hub: Hub) -> None:
        def fail(_: int) -> None:
            raise ValueError

        async with ada.leader("boss", on_gain=fail, on_loss=fail) as candidacy:
            await candidacy.elected()
            await eventually(lambda: hub.counters.read("callback_failures") == 1)
            assert candidacy.is_leader
            await candidacy.resign()
            await candidacy.elected()

        assert hub.counters.read("callback_failures") >= 3

    async def test_a_gain_is_announced_on_the_change_stream(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        async with ada.leader("boss") as candidacy:
            token = await candidacy.elected()
        await ada.write("end", 1)

        changes = []
        async for change in bob.watch(since=0):
            changes.append(change)
            if change.key.endswith(":end"):
                break
        gains = [change for change in changes if change.operation == "leader.gain"]
        assert [(gain.key, gain.actor, gain.version) for gain in gains] == [(f"{namespace}:shared:boss", "ada", token)]
        assert len(changes) == 2


async def revoked(store: SharedMemoryStore, namespace: str) -> list[tuple[str, str, str]]:
    """The revocations on the change feed: (operation, key, actor)."""
    await store.write("end", 1)
    found = []
    async for change in store.watch(since=0):
        if change.key.endswith(":end"):
            break
        found.append((change.operation, change.key.removeprefix(f"{namespace}:"), change.actor))
    return [one for one in found if one[0].endswith(".revoke")]


class RevocationTests(StoreFixtures):
    """Leases that another client ends."""

    async def test_a_holder_whose_lease_is_revoked_loses_its_block_and_the_next_one_enters(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        with pytest.raises(LockLostError, match="index"):
            async with ada.lock("index", lease=2) as lease:
                contenders = _Contenders()
                contenders.add(bob.lock("index"))
                await is_waiting(ada, "index", 1)

                assert await bob.lease_revoke("index", lease.token)
                await eventually(lambda: contenders.came)
                await eventually(lambda: not lease.is_held())
        await contenders.end()

        assert await revoked(ada, namespace) == [("lock.revoke", "shared:index", "bob")]

    @pytest.mark.parametrize("kind", ["lock", "semaphore", "rwlock", "leader"])
    async def test_only_the_lease_with_the_token_is_revoked(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, kind: LeaseKind
    ) -> None:
        limit = 1 if kind == "semaphore" else None
        first = await ada.lease_acquire("x", kind=kind, limit=limit, lease=60)
        assert await bob.lease_revoke("x", first.token, kind=kind)
        second = await bob.lease_acquire("x", kind=kind, limit=limit, lease=60)

        assert not await ada.lease_revoke("x", first.token, kind=kind)
        assert not await ada.lease_release("x", first.id, kind=kind)
        (holder,) = (await ada.lease_state("x", kind)).holders
        assert (holder.actor, holder.token, holder.shared) == ("bob", second.token, kind == "semaphore")

    async def test_who_may_not_write_a_name_may_not_revoke_its_lease(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        grant = await ada.lease_acquire(f"{namespace}:ada:own", lease=60)

        with pytest.raises(AccessDeniedError):
            await bob.lease_revoke(f"{namespace}:ada:own", grant.token)

        assert len((await bob.lease_state(f"{namespace}:ada:own")).holders) == 1

    @pytest.mark.parametrize(
        ("token", "kind"), [(0, "lock"), (-1, "lock"), (True, "lock"), (2**60, "lock"), (1, "door")]
    )
    async def test_a_revocation_of_what_cannot_be_is_refused(
        self, ada: SharedMemoryStore, token: int, kind: Any
    ) -> None:
        with pytest.raises(InvalidError, match=r"token|kind"):
            await ada.lease_revoke("index", token, kind=kind)


class InspectionTests(StoreFixtures):
    """Which names are in use."""

    async def test_all_that_is_held_is_listed_with_its_holders(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        lock = await ada.lease_acquire("index", lease=60)
        await ada.lease_acquire("boss", kind="leader", lease=60)
        for store in (ada, bob):
            await store.lease_acquire("gpu", kind="semaphore", limit=2, lease=60)
            await store.lease_acquire("book", kind="rwlock", shared=True, lease=60)
        await bob.lease_acquire(f"{namespace}:bob:page", kind="rwlock", lease=60)
        await ada.rate_limit("api", limit=10, per=60).take(3)
        await ada.rate_limit("tokens", limit=1000, per=60, algorithm="token_bucket").take(400)
        waiting = asyncio.create_task(ada.barrier("gate", 3).wait())
        await eventually(ada.barrier("gate", 3).waiting)

        found = {f"{one.kind} {one.name}": one for one in (await bob.coordination_names()).entries}
        waiting.cancel()

        assert list(found) == [
            *("barrier gate", "leader boss", "limit api", "limit tokens", "lock index"),
            *(f"rwlock {namespace}:bob:page", "rwlock book", "semaphore gpu"),
        ]
        assert [(one.actor, one.token) for one in found["lock index"].holders] == [("ada", lock.token)]
        assert [one.shared for one in found["rwlock book"].holders] == [True, True]
        assert [one.shared for one in found[f"rwlock {namespace}:bob:page"].holders] == [False]
        assert {one.actor for one in found["semaphore gpu"].holders} == {"ada", "bob"}
        assert (found["barrier gate"].waiting, found["barrier gate"].parties) == (1, 3)
        assert (found["limit api"].used, found["limit api"].algorithm) == (3, "sliding_window")
        assert 350 < (found["limit tokens"].used or 0) <= 400
        assert 0 < (found["limit tokens"].remaining or 0) <= 25

    async def test_what_is_free_again_is_not_listed(self, ada: SharedMemoryStore) -> None:
        async with ada.lock("index"):
            assert [one.name for one in (await ada.coordination_names("lock")).entries] == ["index"]

        assert (await ada.coordination_names()).entries == []

    async def test_waiters_are_counted(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        contenders = _Contenders()
        async with ada.lock("index"):
            contenders.add(bob.lock("index"))
            await is_waiting(ada, "index", 1)
            (entry,) = (await ada.coordination_names("lock")).entries
            assert entry.waiting == 1
        await contenders.end()

    async def test_names_come_in_pages(self, ada: SharedMemoryStore) -> None:
        for name in "cab":
            await ada.lease_acquire(name, lease=60)
        await ada.lease_acquire("x", kind="leader", lease=60)

        found, cursor = [], None
        while True:
            page = await ada.coordination_names(limit=1, cursor=cursor)
            found += [(one.kind, one.name) for one in page.entries]
            if (cursor := page.cursor) is None:
                break

        assert found == [("leader", "x"), ("lock", "a"), ("lock", "b"), ("lock", "c")]

    @pytest.mark.parametrize(
        "asked",
        [{"kind": "door"}, {"limit": 0}, {"limit": True}, {"limit": 1001}, {"cursor": "door x"}, {"cursor": "lock"}],
    )
    async def test_what_cannot_be_listed_is_refused(self, ada: SharedMemoryStore, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError, match=next(iter(asked))):
            await ada.coordination_names(**asked)


class LeaseSuite(
    LockTests, GrantTests, SemaphoreTests, ReadWriteLockTests, LeaderTests, RevocationTests, InspectionTests
):
    """All of it; a backend's test class inherits it and gives the fixture `hub`, an open `Hub`."""
