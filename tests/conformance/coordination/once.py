"""What `once` promises on every backend."""

# a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from sharedmem.errors import AccessDeniedError, ClaimLostError, InvalidError, LockHeldError, NotFoundError
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually

Work = Callable[[], Awaitable[object] | object]
_LONG = 600.0


class Job:
    """Work that counts how often it was begun, and ends when the test says so."""

    def __init__(self, *results: object) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self._results = results

    async def __call__(self) -> object:
        """Do it."""
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        result = self._results[min(number, len(self._results)) - 1]
        if isinstance(result, Exception):
            raise result
        return result


class OnceSuite(StoreFixtures):
    """`once`, `once_state`, `once_delete` and `once_token`."""

    def fn(self, job: Work) -> Work:
        """The work, as the face under test takes it; the sync face needs a function that blocks."""
        return job

    async def test_of_ten_callers_one_does_the_work_and_all_get_its_result(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        job = Job({"sum": [1, 2]})
        callers = [asyncio.ensure_future(one.once("report", self.fn(job), ttl=_LONG)) for one in (ada, bob) * 5]
        await eventually(lambda: job.begun)
        job.may_end.set()

        assert await asyncio.gather(*callers) == [{"sum": [1, 2]}] * 10
        assert job.begun == 1

    @pytest.mark.parametrize("value", [None, 0, "text", b"\x00bytes", [1, None], {"deep": {"er": 2.5}}])
    async def test_a_stored_result_is_what_the_work_returned(self, ada: SharedMemoryStore, value: object) -> None:
        first = await ada.once("report", lambda: value, ttl=_LONG)
        second = await ada.once("report", lambda: "never", ttl=_LONG)

        assert (first, second) == (value, value)

    async def test_a_large_result_is_kept_as_well(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        large: object = {"text": "x" * 1_000_000}

        first = await ada.once("report", lambda: large, ttl=_LONG)
        second: object = await bob.once("report", lambda: "never", ttl=_LONG)

        assert (first, second) == (large, large)

    async def test_everybody_gets_the_stored_form_also_who_did_the_work(self, ada: SharedMemoryStore) -> None:
        stored: object = await ada.once("report", lambda: (1, 2), ttl=_LONG)

        assert stored == [1, 2]

    async def test_a_result_is_kept_for_its_ttl_and_no_longer(self, ada: SharedMemoryStore) -> None:
        numbers = iter(range(100))

        async def is_anew() -> bool:
            return bool(await ada.once("report", lambda: next(numbers), ttl=0.05))

        assert await ada.once("report", lambda: next(numbers), ttl=0.05) == 0
        await eventually(is_anew)

    async def test_work_that_fails_is_given_to_the_next_in_line(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        job = Job(ValueError("no luck"), "done")
        first = asyncio.ensure_future(ada.once("report", self.fn(job), ttl=_LONG))
        await eventually(lambda: job.begun)
        second = asyncio.ensure_future(bob.once("report", self.fn(job), ttl=_LONG))
        job.may_end.set()

        with pytest.raises(ValueError, match="no luck"):
            await first
        assert await second == "done"
        state = await ada.once_state("report")
        assert (state.state, state.attempt, state.actor) == ("done", 2, "bob")

    async def test_work_that_failed_without_waiters_is_done_by_the_next_caller(self, ada: SharedMemoryStore) -> None:
        def fails() -> object:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await ada.once("report", fails, ttl=_LONG)

        assert (await ada.once_state("report")).state == "none"
        assert await ada.once("report", lambda: "fine", ttl=_LONG) == "fine"

    @pytest.mark.parametrize("result", [object(), float("nan")], ids=["object", "nan"])
    async def test_a_result_that_cannot_be_coded_is_an_error_of_its_runner_and_blocks_no_other(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, result: object
    ) -> None:
        job = Job(result, "small")
        first = asyncio.ensure_future(ada.once("report", self.fn(job), ttl=_LONG))
        await eventually(lambda: job.begun)
        second = asyncio.ensure_future(bob.once("report", self.fn(job), ttl=_LONG))
        job.may_end.set()

        with pytest.raises(InvalidError):
            await first
        assert await second == "small"

    async def test_who_will_not_wait_is_told_how_long_the_run_may_last(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        job = Job("done")
        first = asyncio.ensure_future(ada.once("report", self.fn(job), ttl=_LONG))
        await eventually(lambda: job.begun)

        with pytest.raises(LockHeldError, match="report") as refused:
            await bob.once("report", self.fn(job), ttl=_LONG, wait=0)
        with pytest.raises(LockHeldError):
            await bob.once("report", self.fn(job), ttl=_LONG, wait=0.02)
        job.may_end.set()

        assert 0 < refused.value.remaining <= 30
        assert await first == "done"
        assert job.begun == 1

    async def test_a_runner_that_was_overtaken_is_told_and_its_result_is_not_stored(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        slow = Job("late")
        first = asyncio.ensure_future(ada.once("report", self.fn(slow), ttl=_LONG))
        await eventually(lambda: slow.begun)
        await team.clear()

        assert await bob.once("report", lambda: "in time", ttl=_LONG) == "in time"
        slow.may_end.set()
        with pytest.raises(ClaimLostError, match="report"):
            await first
        assert await ada.once("report", lambda: "never", ttl=_LONG) == "in time"

    async def test_the_token_rises_with_every_run_and_is_known_inside_of_the_work(self, ada: SharedMemoryStore) -> None:
        tokens = []
        for _ in range(3):
            tokens.append(await ada.once("report", ada.once_token, ttl=_LONG))
            assert (await ada.once_state("report")).token == tokens[-1]
            assert await ada.once_delete("report")

        assert tokens == sorted(set(tokens))
        with pytest.raises(NotFoundError, match="inside"):
            ada.once_token()

    async def test_the_state_tells_who_is_at_it_and_how_it_ended(self, ada: SharedMemoryStore) -> None:
        job = Job("done")
        before = await ada.once_state("report")
        running = asyncio.ensure_future(ada.once("report", self.fn(job), ttl=_LONG, lease=20))
        await eventually(lambda: job.begun)
        meanwhile = await ada.once_state("report")
        job.may_end.set()
        await running
        after = await ada.once_state("report")

        assert (before.state, before.attempt, before.token, before.actor) == ("none", 0, 0, "")
        assert (meanwhile.state, meanwhile.attempt, meanwhile.actor) == ("running", 1, "ada")
        assert 0 < meanwhile.remaining <= 20
        assert (after.state, after.attempt, after.token) == ("done", 1, meanwhile.token)
        assert 20 < after.remaining <= _LONG

    async def test_what_is_deleted_is_done_again(self, ada: SharedMemoryStore) -> None:
        await ada.once("report", lambda: 1, ttl=_LONG)

        assert await ada.once_delete("report")
        assert not await ada.once_delete("report")
        assert await ada.once("report", lambda: 2, ttl=_LONG) == 2

    async def test_work_under_way_is_not_deleted(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        job = Job("done")
        running = asyncio.ensure_future(ada.once("report", self.fn(job), ttl=_LONG))
        await eventually(lambda: job.begun)

        assert not await bob.once_delete("report")
        job.may_end.set()
        assert await running == "done"

    async def test_work_that_is_done_call_by_call_is_that_of_once(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        begun = await ada.once_begin("report", lease=60)
        with pytest.raises(LockHeldError):
            await bob.once_begin("report")
        waiting: asyncio.Future[object] = asyncio.ensure_future(bob.once("report", lambda: "never", ttl=_LONG))
        await ada.once_renew("report", begun.token, lease=90)
        await ada.once_finish("report", begun.token, {"sum": 3}, ttl=_LONG)

        assert (begun.done, begun.result, begun.attempt) == (False, None, 1)
        assert 0 < begun.remaining <= 60
        assert await waiting == {"sum": 3}
        after = await bob.once_begin("report")
        assert (after.done, after.result, after.token) == (True, {"sum": 3}, 0)

    async def test_callers_of_the_same_moment_get_what_each_asked_for(self, ada: SharedMemoryStore) -> None:
        large = "x" * 5_000
        await ada.once("large", lambda: large, ttl=_LONG)
        await ada.once("small", lambda: 1, ttl=_LONG)
        names = ["large", "new", "small", "other", "large", "new"]

        found = await asyncio.gather(*(ada.once(name, partial(str, name), ttl=_LONG) for name in names))

        assert found == [large, "new", 1, "other", large, "new"]

    async def test_work_that_fails_call_by_call_goes_to_the_next_in_line(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        begun = await ada.once_begin("report", lease=60)
        waiting = asyncio.ensure_future(bob.once_begin("report", wait=None))
        assert await ada.once_fail("report", begun.token)
        following = await waiting

        assert not await ada.once_fail("report", begun.token)
        assert (following.done, following.attempt) == (False, 2)
        assert following.token > begun.token

    async def test_a_token_that_was_overtaken_stores_nothing(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        late = await ada.once_begin("report", lease=60)
        await ada.once_fail("report", late.token)
        now = await bob.once_begin("report", lease=60)

        with pytest.raises(ClaimLostError, match=rf"report.*{late.token}"):
            await ada.once_finish("report", late.token, "late")
        with pytest.raises(ClaimLostError):
            await ada.once_renew("report", late.token)
        await bob.once_finish("report", now.token, "in time")
        assert (await ada.once_begin("report")).result == "in time"

    @pytest.mark.parametrize("token", [0, -1, True, "7"])
    async def test_what_is_no_token_is_refused(self, ada: SharedMemoryStore, token: Any) -> None:
        for call in (ada.once_finish, ada.once_renew, ada.once_fail):
            with pytest.raises(InvalidError, match="OnceGrant"):
                await call("report", token)

    async def test_a_plain_key_is_common_to_the_namespace(
        self, ada: SharedMemoryStore, team: SharedMemoryStore, namespace: str
    ) -> None:
        await ada.once("report", lambda: "ada's", ttl=_LONG)

        assert await team.once(f"{namespace}:shared:report", lambda: "never", ttl=_LONG) == "ada's"
        with pytest.raises(AccessDeniedError):
            await ada.once(f"{namespace}:bob:report", lambda: 1, ttl=_LONG)

    @pytest.mark.parametrize(
        "bad",
        [
            {"ttl": 0},
            {"ttl": -1},
            {"ttl": float("nan")},
            {"ttl": True},
            {"ttl": 1, "lease": 0},
            {"ttl": 1, "lease": 90_000},
            {"ttl": 1, "wait": -1},
            {"ttl": 1, "wait": float("nan")},
            {"ttl": 1, "key": ""},
            {"ttl": 1, "key": "a{b"},
        ],
    )
    async def test_bad_arguments_are_refused_before_anything_happens(
        self, ada: SharedMemoryStore, team: SharedMemoryStore, bad: dict[str, float]
    ) -> None:
        job = Job("done")
        key = str(bad.get("key", "report"))

        with pytest.raises(InvalidError):
            await ada.once(key, self.fn(job), **{name: value for name, value in bad.items() if name != "key"})

        assert job.begun == 0
        assert (await team.once_state("report")).attempt == 0
