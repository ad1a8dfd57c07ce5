"""Once: work that runs a single time for any number of callers."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

from pydantic import ValidationError

from sharedmem.blobs.blobs import BlobReference
from sharedmem.clock import Clock
from sharedmem.coordination.lease_session import lease_renewer
from sharedmem.coordination.names import NameAccess, check_lease_ms, check_seconds, check_wait, safe_deadline
from sharedmem.errors import (
    ClaimLostError,
    InvalidError,
    LockHeldError,
    NotFoundError,
    ResultNotKeptError,
    SharedMemoryError,
    UnavailableError,
    UsageError,
)
from sharedmem.models.coordination import OnceGrant, OnceState
from sharedmem.redis.codec import decode_member, encode_member, split_trace, with_trace
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.pubsub import Waiter
from sharedmem.redis.scripts.coordination import OnceEnd, OnceKeys, OnceRequest, OnceScripts
from sharedmem.redis.scripts.data import WriteBatcher, split_replies
from sharedmem.redis.service_keys import decoding
from sharedmem.runtime import get_logger, span
from sharedmem.runtime.telemetry import current_traceparent, link_current

T = TypeVar("T")
SHORTEST_TTL_S = 0.001
LONGEST_TTL_S = 100 * 365 * 86_400.0
DEFAULT_TTL_S = 86_400.0
# Waiters behind the first one poll after so many seconds.
_POLL_S = (10.0, 20.0)
# Prefixes of a result that is stored elsewhere, or not at all; no encoded value begins with them.
_IN_BLOB_STORE, _NOT_KEPT = b"\x02", b"\x03"
_ASK_ALONE = b"again"
_runner_numbers = count(1)
_current_token: ContextVar[int] = ContextVar("fencing token of the once() run in this task")
_logger = get_logger("once")


class _OnceWork(NamedTuple):
    """A piece of work with the terms of one caller."""

    target: Target
    keys: OnceKeys
    lease_ms: int
    ttl_ms: int


class _RunningElsewhere(NamedTuple):
    """Another caller runs the work."""

    remaining: float
    is_first: bool

    def pause(self) -> float:
        """Return the seconds after which to poll without a notification."""
        safety = random.uniform(*_POLL_S)  # noqa: S311  # spreads the waiters; no secret depends on it
        return min(self.remaining, safety) if self.is_first else safety


class _OnceClaim(NamedTuple):
    """The claim of this caller, which must run the work."""

    token: int
    attempt: int
    asked_at: float
    """Time of the request by the hub's monotonic clock: the lease ends at least its length after this."""


class _OnceResult(NamedTuple):
    """The work is done."""

    value: Any


class Once:
    """Once: work that runs a single time for any number of callers."""

    def __init__(self, names: NameAccess) -> None:
        self._once_names = names

    @overload
    async def once(
        self, key: str, fn: Callable[[], Awaitable[T]], *, ttl: float, lease: float = 30.0, wait: float | None = None
    ) -> T: ...
    @overload
    async def once(
        self, key: str, fn: Callable[[], T], *, ttl: float, lease: float = 30.0, wait: float | None = None
    ) -> T: ...
    async def once(
        self,
        key: str,
        fn: Callable[[], Awaitable[T] | T],
        *,
        ttl: float,
        lease: float = 30.0,
        wait: float | None = None,
    ) -> T:
        """Run a function once for all callers with the same key, and return its stored result to all of them.

        The other callers wait for the stored result. If `fn` raises, the next waiter runs it; if its process dies,
        another caller runs it after the lease has expired. So one result is stored, but `fn` itself may run again
        after a crash: pass `once_token()` to resources that must reject a runner whose lease has expired.

        Args:
            key: names the work; plain (`<namespace>:shared:<key>`) or absolute.
            fn: function or coroutine function without arguments. Its result is encoded as a value; one
                over `blob_threshold_bytes` is in the blob store.
            ttl: seconds for which the result is stored; the value of the caller that runs `fn` counts.
            lease: seconds after which another caller may run `fn` if this one dies; renewed while `fn` runs.
            wait: longest wait in seconds for the run of another caller; 0: do not wait; None: no limit.

        Returns:
            The result as it is stored (a tuple becomes a list), the same for all callers. One round trip if it is
            stored already, two for the runner, three for waiters.

        Raises:
            LockHeldError: another caller still ran the work after `wait` seconds.
            ClaimLostError: the lease was lost while `fn` ran; its result is not stored.
            ResultNotKeptError: the work is done, but its large result could not be stored, or is lost. The caller
                that ran `fn` gets the result nevertheless.
            InvalidError: an argument is invalid, or the result cannot be encoded (then the next waiter runs its `fn`).
            AccessDeniedError, UnavailableError: as `write`.
            Exception: what `fn` raises.
        """
        work = self._once_work(key, ttl=ttl, lease=lease)
        patience = check_wait(wait)
        if not callable(fn):
            raise InvalidError("fn", fn, "give a function or coroutine function without arguments")
        with span("once") as active:
            found = await self._once_runner.begin(work)
            if isinstance(found, _RunningElsewhere):
                found = await self._once_runner.follow(work, found, patience)
            if active is not None:
                active.set({"sharedmem.once.ran": isinstance(found, _OnceClaim)})
            value = found.value if isinstance(found, _OnceResult) else await self._once_runner.run(work, found, fn)
            return cast("T", value)

    def once_token(self) -> int:
        """Return the fencing token of the run that this code is part of; no round trip.

        It is higher than that of every earlier run of the key. Call it inside `fn`, and pass it to resources that must
        reject a runner whose lease has expired.

        Raises:
            NotFoundError: the caller is not inside the `fn` of `once`.
        """
        found = _current_token.get(None)
        if found is None:
            raise NotFoundError("work", "once", "call once_token() inside the function that once() runs")
        return found

    # -- call by call

    async def once_begin(
        self, key: str, *, ttl: float = DEFAULT_TTL_S, lease: float = 30.0, wait: float | None = 0.0
    ) -> OnceGrant:
        """Claim a piece of work; the caller reports its end with `once_finish` or `once_fail`.

        In Python, prefer `once`: it runs a function, renews the lease and stores the result. Both share their keys: one
        caller at a time has the claim. One round trip.

        Args:
            key: as `once`.
            ttl: seconds for which the number of attempts is stored after the lease.
            lease: seconds after which another caller may begin, unless `once_renew` renews it.
            wait: longest wait in seconds for the run of another caller; 0: do not wait; None: no limit.

        Raises:
            LockHeldError: another caller still ran the work after `wait` seconds.
            ResultNotKeptError, AccessDeniedError, InvalidError, UnavailableError: as `once`.
        """
        work = self._once_work(key, ttl=ttl, lease=lease)
        patience = check_wait(wait)
        found = await self._once_runner.begin(work)
        if isinstance(found, _RunningElsewhere):
            found = await self._once_runner.follow(work, found, patience)
        if isinstance(found, _OnceResult):
            return OnceGrant(key=work.target.key, done=True, result=found.value)
        left_s = found.asked_at + lease - self._once_names.context.clock.monotonic()
        return OnceGrant(
            key=work.target.key, done=False, token=found.token, attempt=found.attempt, remaining=max(0.0, left_s)
        )

    async def once_renew(self, key: str, token: int, *, lease: float = 30.0, ttl: float = DEFAULT_TTL_S) -> None:
        """Renew the lease of work from `once_begin`. One round trip.

        Args:
            key: the key as given to `once_begin`.
            token: token of the `OnceGrant`.
            lease: seconds from now.
            ttl: as `once_begin`.

        Raises:
            ClaimLostError: the lease has ended, or the work is done.
            AccessDeniedError, InvalidError, UnavailableError: as `write`.
        """
        work = self._once_work(key, ttl=ttl, lease=lease)
        renewing = self._once_runner.renew_lease(work, _check_token(token))
        if not await self._once_names.explained(work.target, renewing):
            raise ClaimLostError("once", work.target.key, token)

    async def once_finish(self, key: str, token: int, result: object = None, *, ttl: float = DEFAULT_TTL_S) -> None:
        """Store the result of work from `once_begin`; all waiters get it. One round trip.

        Args:
            key: the key as given to `once_begin`.
            token: token of the `OnceGrant`.
            result: any value that `write` accepts.
            ttl: seconds for which the result is stored.

        Raises:
            ClaimLostError: the lease has ended, or the work is done; the result is not stored.
            AccessDeniedError, InvalidError, UnavailableError: as `write`.
        """
        work = self._once_work(key, ttl=ttl)
        await self._once_runner.finish(work, _check_token(token), encode_member(result))

    async def once_fail(self, key: str, token: int, *, ttl: float = DEFAULT_TTL_S) -> bool:
        """Release failed work from `once_begin`: the next waiter may run it. One round trip.

        Args:
            key: the key as given to `once_begin`.
            token: token of the `OnceGrant`.
            ttl: seconds for which the number of attempts is stored.

        Returns:
            Whether the caller still had the claim.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `write`.
        """
        work = self._once_work(key, ttl=ttl)
        return await self._once_names.explained(work.target, self._once_runner.release(work, _check_token(token)))

    async def once_state(self, key: str) -> OnceState:
        """Return the state of a piece of work. One round trip.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `read`.
        """
        names = self._once_names
        target = names.scope.common(key, "read")
        reply = await names.explained(target, self._once_runner.scripts.once_look(names.part(target, "once")))
        with decoding(names.part(target, "once")):
            state, token, attempt, left_ms, actor = reply.split(b" ", 4) if reply else (b"none", b"0", b"0", b"0", b"")
            return OnceState(
                key=target.key,
                state=cast("Literal['none', 'running', 'done']", state.decode()),
                token=int(token),
                attempt=int(attempt),
                actor=actor.decode(),
                remaining=int(left_ms) / 1000,
            )

    async def once_delete(self, key: str) -> bool:
        """Delete a stored result, so that the work can run again; return whether it existed. One round trip.

        Running work is not changed.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `write`.
        """
        names = self._once_names
        target = names.scope.common(key, "write")
        call = self._once_runner.scripts.once_forget(target.space, names.part(target, "once"), names.actor)
        return await names.explained(target, call)

    def _once_work(self, key: str, *, ttl: float, lease: float = 30.0) -> _OnceWork:
        ttl_ms = check_seconds("ttl", ttl, least=SHORTEST_TTL_S, most=LONGEST_TTL_S)
        return self._once_runner.work(key, ttl_ms=ttl_ms, lease_ms=check_lease_ms(lease))

    @cached_property
    def _once_runner(self) -> _OnceRunner:
        return _OnceRunner(self._once_names)


class _OnceRunner:
    """Claims, waits for and runs the work of one actor."""

    def __init__(self, names: NameAccess) -> None:
        self._names = names
        self.scripts = OnceScripts(names.context.executor)
        background = names.context.background
        self._requests = WriteBatcher[Space, OnceRequest](self._begin_together, background, split_replies)
        self._ends = WriteBatcher[Space, OnceEnd](self._finish_together, background)

    def work(self, key: str, *, ttl_ms: int, lease_ms: int) -> _OnceWork:
        """Return a piece of work.

        Raises:
            AccessDeniedError, InvalidError: this actor may not use the key, or the key is invalid.
        """
        names = self._names
        target = names.scope.common(key, "write")
        keys = OnceKeys(names.part(target, "once"), names.part(target, "once.waiters"))
        return _OnceWork(target, keys, lease_ms, ttl_ms)

    # -- claiming

    async def begin(self, work: _OnceWork) -> _RunningElsewhere | _OnceClaim | _OnceResult:
        """Claim the work if it is free, without waiting."""
        # Below 0, so that it is not the name of a waiter.
        return await self._begin(work, self._names.scope.keyspace.waiter(-next(_runner_numbers)), waits=False)

    async def _begin(self, work: _OnceWork, name: str, *, waits: bool) -> _RunningElsewhere | _OnceClaim | _OnceResult:
        asked_at = self._names.context.clock.monotonic()
        request = OnceRequest(work.keys, name, int(waits), work.lease_ms, work.ttl_ms)
        try:
            reply = await self._names.own_reply(work.target, work.keys, self._requests.put(work.target.space, request))
            if reply == _ASK_ALONE:
                reply = await self._names.own_reply(
                    work.target, work.keys, self._begin_together(work.target.space, [request])
                )
        except BaseException:
            # The server may have granted the claim just now.
            self._leave_in_background(work, name)
            raise
        word, _, rest = reply.partition(b" ")
        if word == b"done":
            return _OnceResult(await self._value(work.target, rest))
        first, _, second = rest.partition(b" ")
        return (
            _OnceClaim(int(first), int(second), asked_at)
            if word == b"yours"
            else _RunningElsewhere(int(first) / 1000, second == b"1")
        )

    async def follow(
        self, work: _OnceWork, found: _RunningElsewhere, patience: float | None
    ) -> _OnceClaim | _OnceResult:
        """Wait until the work is done, or until this caller must run it."""
        deadline = float("inf") if patience is None else self._names.context.clock.monotonic() + patience
        if patience == 0:
            raise LockHeldError("once", work.target.key, remaining=found.remaining)
        async with self._names.context.wait_notifier.waiter(work.target.space) as waiter:
            while isinstance(answer := await self._begin(work, waiter.name, waits=True), _RunningElsewhere):
                await self._pause(work, waiter, answer, deadline)
            return answer

    async def _pause(self, work: _OnceWork, waiter: Waiter, found: _RunningElsewhere, deadline: float) -> None:
        """Wait for a notification, or until the next poll."""
        left = deadline - self._names.context.clock.monotonic()
        try:
            if left > 0:
                await waiter.wait(min(left, found.pause()))
                return
        except BaseException:
            self._leave_in_background(work, waiter.name)
            raise
        await self._leave(work, waiter.name)
        raise LockHeldError("once", work.target.key, remaining=found.remaining)

    def _leave_in_background(self, work: _OnceWork, name: str) -> None:
        """Remove this name as waiter and runner at the server, in the background."""
        self._names.context.background.start_last_call(f"leave once {work.target.key}", lambda: self._leave(work, name))

    async def _leave(self, work: _OnceWork, name: str) -> None:
        with suppress(UnavailableError, UsageError):
            await self.scripts.once_leave(work.target.space, work.keys, self._names.actor, name=name)

    # -- running

    async def run(self, work: _OnceWork, claim: _OnceClaim, fn: Callable[[], Awaitable[object] | object]) -> Any:
        """Run the work, renew its lease until it ends, and store the result."""
        names = self._names
        held = _OnceLease(self, work, claim, names.context.clock)
        lease_renewer(names.context).keep(held)
        try:
            coded = await self._result(work, claim.token, fn)
            await self._finish_surely(work, claim.token, coded)
        finally:
            lease_renewer(names.context).stop_renewing(held)
        return decode_member(coded)

    async def finish(self, work: _OnceWork, token: int, coded: bytes) -> None:
        """Store the encoded result of a run. One round trip, shared with concurrent ones.

        Raises:
            ClaimLostError: this run has lost the claim.
        """
        stored = with_trace(await self._stored(work.target, coded), current_traceparent())
        end = OnceEnd(work.keys, token, work.ttl_ms, stored)
        if await self._names.own_reply(work.target, work.keys, self._ends.put(work.target.space, end)) != b"1":
            raise ClaimLostError("once", work.target.key, token)

    def _begin_together(self, space: Space, requests: Sequence[OnceRequest]) -> Awaitable[bytes]:
        return self.scripts.once_begin(space, self._names.actor, requests)

    def _finish_together(self, space: Space, ends: Sequence[OnceEnd]) -> Awaitable[bytes]:
        return self.scripts.once_finish(space, self._names.actor, ends)

    async def _finish_surely(self, work: _OnceWork, token: int, coded: bytes) -> None:
        try:
            await self.finish(work, token, coded)
        except asyncio.CancelledError:
            # The work is done: its result is stored even if its caller is cancelled in this moment.
            self._names.context.background.start_last_call(
                f"finish once {work.target.key}", lambda: self.finish(work, token, coded)
            )
            raise

    async def release(self, work: _OnceWork, token: int) -> bool:
        """Release failed work; return whether this run still had the claim."""
        return await self.scripts.once_release(
            work.target.space, work.keys, self._names.actor, token=token, ttl_ms=work.ttl_ms
        )

    async def _result(self, work: _OnceWork, token: int, fn: Callable[[], Awaitable[object] | object]) -> bytes:
        """Return the encoded result of `fn`; on any failure release the work."""
        try:
            with _set_current_token(token):
                value = fn()
                if inspect.isawaitable(value):
                    value = await value
            return encode_member(value)
        except Exception:
            await self._release_quietly(work, token)
            raise
        except BaseException:
            self._names.context.background.start_last_call(
                f"return once {work.target.key}", lambda: self._release_quietly(work, token)
            )
            raise

    async def _release_quietly(self, work: _OnceWork, token: int) -> None:
        with suppress(UnavailableError, UsageError):  # the lease ends by itself
            await self.release(work, token)

    async def renew_lease(self, work: _OnceWork, token: int) -> bool:
        """Renew the lease; return whether this run still has it."""
        return await self.scripts.once_renew(
            work.target.space,
            work.keys.once,
            self._names.actor,
            token=token,
            lease_ms=work.lease_ms,
            ttl_ms=work.ttl_ms,
        )

    # -- results

    async def _stored(self, target: Target, coded: bytes) -> bytes:
        """Return the stored form of a result. If it cannot be stored, the work is still done: it never reruns."""
        names = self._names
        if len(coded) <= names.context.settings.blob_threshold_bytes:
            return coded
        try:
            reference = await names.context.blobs.put(target.key, b"member", coded)
            names.context.blob_gc.watch(target.space.namespace)
        except SharedMemoryError as error:
            _logger.warning("once %s: its result of %d bytes is not stored: %s", target.key, len(coded), error)
            return _NOT_KEPT
        return _IN_BLOB_STORE + reference.model_dump_json().encode()

    async def _value(self, target: Target, stored: bytes) -> Any:
        """Return a result from its stored form or its blob, and link the current span to the one that stored it.

        Raises:
            ResultNotKeptError: the result was not stored, or is lost.
            UnavailableError: the result cannot be read now.
        """
        stored, traceparent = split_trace(stored)
        link_current(traceparent)
        if stored[:1] == _NOT_KEPT:
            raise ResultNotKeptError("once", target.key, "the blob store could not store it")
        if stored[:1] != _IN_BLOB_STORE:
            return decode_member(stored)
        try:
            return decode_member(
                await self._names.context.blobs.get(target.key, _blob_reference(target.key, stored[1:]))
            )
        except NotFoundError as error:
            raise ResultNotKeptError("once", target.key, str(error)) from error


class _OnceLease:
    """The lease of running work, for the hub's renewer.

    The server checks the claim when the result arrives: this object only renews the lease.
    """

    def __init__(self, runs: _OnceRunner, work: _OnceWork, claim: _OnceClaim, clock: Clock) -> None:
        self._runner, self._work, self._claim, self._clock = runs, work, claim, clock
        self._lease_s = work.lease_ms / 1000
        self.deadline = safe_deadline(claim.asked_at, self._lease_s)
        self.renew_at = claim.asked_at + self._lease_s / 3

    async def renew(self) -> bool:
        """Renew the lease; an unreachable server may be back before the lease expires."""
        asked_at = self._clock.monotonic()
        self.renew_at = asked_at + self._lease_s / 3
        with suppress(UnavailableError):
            if not await self._runner.renew_lease(self._work, self._claim.token):
                return False
            self.deadline = safe_deadline(asked_at, self._lease_s)
        return True

    def lose(self) -> None:
        """Log that the lease is lost. The function keeps running; its caller gets the error when it returns."""
        lost = (self._work.target.key, self._claim.token)
        _logger.warning("once %s: the lease (token %d) was lost while its function ran", *lost)


def _check_token(token: int) -> int:
    if isinstance(token, bool) or not isinstance(token, int) or token < 1:
        raise InvalidError("token", token, "give the token of the OnceGrant")
    return token


@contextmanager
def _set_current_token(token: int) -> Iterator[None]:
    """Set the token for the function that runs inside the block."""
    before = _current_token.set(token)
    try:
        yield
    finally:
        _current_token.reset(before)


def _blob_reference(key: str, stored: bytes) -> BlobReference:
    try:
        return BlobReference.model_validate_json(stored)
    except ValidationError:
        raise NotFoundError("blob of key", key, "its reference was damaged by another client") from None
