"""Run scripts: mutations with an operation id and, with a durable tier, with their outbox entries.

Every mutation carries an operation id (`OperationLedger`), so that a repeat after a lost reply gets the first reply and
is not executed again. Each mutation is one round trip and one atomic step at the server.

Each hub has one ledger hash per namespace at the server. A running call occupies a slot of it, and its number rises
with every call of this hub. So the server can distinguish a repeat (return the stored reply) from a late call of a
closed connection (reject it). The size of the ledger is the highest number of concurrent calls, not the number of all
calls. The idea is the client session of Raft (Ongaro, "Consensus: Bridging Theory and Practice", 6.3).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sharedmem.clock import Clock
from sharedmem.errors import InternalError, SharedMemoryError, UnavailableError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import ChangeLostError, DurabilityModes, KindUnknownError, Tier, UnsettledError
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument, Command, LostError, Reply
from sharedmem.redis.scripts import DURABLE_SUFFIX, scripts

# A ledger outlives every running call: it is renewed often, and its expiry is much longer than a call may last.
_SHORTEST_LIFE_S = 180.0
_LIFE_BEYOND_RETRIES_S = 120.0
_PROLONG_EVERY_S = 30.0
# Clients that lost their server call again soon; each such call takes a key of its own for so long.
_REPEATED_WITHIN_MS = 3_600_000


@dataclass(slots=True)
class _LedgerSlots:
    free: list[int] = field(default_factory=list)
    used: int = 0
    prolonged_at: float = float("-inf")


class OperationLedger:
    """Assigns a slot and a number to each mutation of one hub.

    Args:
        clock: shows when to renew a ledger's expiry.
        retry_for_s: seconds for which a call may be repeated; its entry must live longer.
    """

    def __init__(self, clock: Clock, *, retry_for_s: float) -> None:
        self._clock = clock
        self._keep_ms = round(max(_SHORTEST_LIFE_S, retry_for_s + _LIFE_BEYOND_RETRIES_S) * 1000)
        self._number = 0
        self._slots: defaultdict[bytes, _LedgerSlots] = defaultdict(_LedgerSlots)

    def take(self, operations: bytes) -> tuple[int, int, int]:
        """Occupy a slot of a ledger key.

        Returns:
            (slot, number of the operation, new expiry of the ledger in milliseconds or 0).
        """
        slots = self._slots[operations]
        self._number += 1
        if slots.free:
            slot = slots.free.pop()
            keep_ms = 0
        else:
            slot, slots.used = slots.used, slots.used + 1
            keep_ms = self._keep_ms
        now = self._clock.monotonic()
        if now - slots.prolonged_at > _PROLONG_EVERY_S:
            slots.prolonged_at, keep_ms = now, self._keep_ms
        return slot, self._number, keep_ms

    def free(self, operations: bytes, slot: int) -> None:
        """Free a slot: its call has a reply, or is no longer repeated."""
        self._slots[operations].free.append(slot)


@dataclass
class _RepeatableCall:
    """A call whose operations have ids that follow from a key, so that another process can repeat it."""

    task: asyncio.Task[Any] | None
    """Work that it starts in other tasks may be that of other callers."""
    name: str
    done: Counter[str] = field(default_factory=Counter)

    def id(self, script: str, space: Space) -> tuple[bytes, str, int, int]:
        """Return (key of the ledger, slot, number, expiry of the ledger in milliseconds)."""
        ledgers = space.operations.rpartition(b":")[0]
        # By script: a repeat that took another way never gets the reply of another script.
        return b"%b:%b" % (ledgers, self.name.encode()), f"{script}.{self.done[script]}", 1, _REPEATED_WITHIN_MS


_repeatable: ContextVar[_RepeatableCall | None] = ContextVar("sharedmem_repeatable_call", default=None)


@contextmanager
def repeatable_as(name: str) -> Iterator[None]:
    """Let a later call under the same name have no second effect, from whichever process it comes.

    Mutations that this task makes inside of the block get operation ids that follow from the name. A call that repeats
    them in the same order, since the process died before it could keep the result, gets their replies.

    Args:
        name: of the call, for one namespace; long and unguessable. Repeats are recognised for an hour.
    """
    token = _repeatable.set(_RepeatableCall(asyncio.current_task(), name))
    try:
        yield
    finally:
        _repeatable.reset(token)


def is_repeatable() -> bool:
    """Return whether this task is in a block of `repeatable_as`."""
    return _repeatable.get() is not None and _repeatable_call() is not None


def _repeatable_call() -> _RepeatableCall | None:
    call = _repeatable.get()
    return call if call is not None and call.task is asyncio.current_task() else None


POOLED_ABOVE_BYTES = 65_536
_FIXED_KEYS = 3


class ScriptExecutor:
    """Runs scripts for the typed callers of one hub.

    Args:
        line: the client of the server.
        ledger: assigns an operation id to each mutation.
        change_log_length: approximate length of change streams.
    """

    def __init__(self, line: RedisClient, ledger: OperationLedger, *, change_log_length: int) -> None:
        self._client = line
        self._ledger = ledger
        self._cap = change_log_length
        self._when_changed: Callable[[Sequence[bytes]], None] | None = None
        # Bytes are sent as they are; text would be encoded at every call.
        self._digests = {name: script.digest.encode() for name, script in scripts().items()}

    def when_changed(self, hook: Callable[[Sequence[bytes]], None]) -> None:
        """Call `hook` with the own keys of each mutation when it has ended, in whatever way."""
        self._when_changed = hook

    async def mutate(
        self,
        script: str,
        space: Space,
        keys: Sequence[bytes],
        actor: bytes,
        args: Sequence[Argument],
        *,
        large: int = 0,
        keep: DurabilityModes | None = None,  # noqa: ARG002  # see DurableScriptExecutor
    ) -> bytes:
        """Run a script that begins with `lua/include/mutation.lua`.

        Args:
            script: name of the script.
            space: the service keys, which precede its own keys.
            keys: its own keys.
            actor: the actor that makes the change.
            args: its own arguments.
            large: bytes of the arguments, if there may be many: large calls use another connection.
            keep: durability modes of its first own keys, with a durable tier.
        """
        command, slot = self._command(script, space, keys, actor, args)
        call = self._client.call_aside if large > POOLED_ABOVE_BYTES else self._client.call
        try:
            reply = await call(*command)
        finally:
            if isinstance(slot, int):
                self._ledger.free(space.operations, slot)
            if self._when_changed is not None:
                self._when_changed(keys)
        if not isinstance(slot, int):
            self._note_done(script)
        return _check_bytes(reply)

    async def _mutate_noting(
        self,
        losses: list[LostError],
        script: str,
        space: Space,
        keys: Sequence[bytes],
        actor: bytes,
        args: Sequence[Argument],
        *,
        large: int,
    ) -> bytes:
        """As `mutate`; add each lost attempt that the server may have executed to `losses`."""
        command, slot = self._command(script, space, keys, actor, args)
        try:
            reply = await self._client.call_noting(losses, command, aside=large > POOLED_ABOVE_BYTES)
        finally:
            if isinstance(slot, int):
                self._ledger.free(space.operations, slot)
            if self._when_changed is not None:
                self._when_changed(keys)
        return _check_bytes(reply)

    def _command(
        self, script: str, space: Space, keys: Sequence[bytes], actor: bytes, args: Sequence[Argument]
    ) -> tuple[Command, int | str]:
        """Return (command, slot of its operation: a number, or text if repeats are recognised by a name)."""
        repeatable = _repeatable_call()
        if repeatable is None:
            operations: bytes = space.operations
            slot: int | str
            slot, number, keep_ms = self._ledger.take(operations)
        else:
            operations, slot, number, keep_ms = repeatable.id(script, space)
        return (
            b"EVALSHA",
            self._digests[script],
            _FIXED_KEYS + len(keys),
            space.clock,
            space.changes,
            operations,
            *keys,
            slot,
            number,
            keep_ms,
            actor,
            self._cap,
            *args,
        ), slot

    def _note_done(self, script: str) -> None:
        """Let the next operation with a script be another one, where repeats are recognised by a name."""
        repeatable = _repeatable_call()
        if repeatable is not None:
            repeatable.done[script] += 1

    async def run_once(self, script: str, operations: bytes, args: Sequence[Argument], *, large: int = 0) -> bytes:
        """Run a script that changes only the ledger; it is executed once even if it is repeated."""
        slot, number, keep_ms = self._ledger.take(operations)
        call = self._client.call_aside if large > POOLED_ABOVE_BYTES else self._client.call
        try:
            reply = await call(b"EVALSHA", self._digests[script], 1, operations, slot, number, keep_ms, *args)
        finally:
            self._ledger.free(operations, slot)
        return _check_bytes(reply)

    async def run(self, script: str, keys: Sequence[bytes], args: Sequence[Argument], *, aside: bool = False) -> Reply:
        """Run a script that may be repeated: it only reads, or is idempotent.

        Args:
            script: name of the script.
            keys: its keys.
            args: its arguments.
            aside: its reply may be large, so another connection reads it.
        """
        call = self._client.call_aside if aside else self._client.call
        return await call(b"EVALSHA", self._digests[script], len(keys), *keys, *args)


def split_version(reply: bytes) -> tuple[int, bytes]:
    """Return (version, result) of a reply `<version> <result>`."""
    version, _, result = reply.partition(b" ")
    return int(version), result


def _check_bytes(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return reply
    raise InternalError(f"a script returned {reply!r} instead of text")


_MOST_TRIES = 20
_COLD = b"COLD"
_LOST = b"LOST"
_UNKNOWN = b"UNKNOWN"
_MARK = b"@"
_URGENT = b"!"


class DurableScriptExecutor(ScriptExecutor):
    """Runs scripts with a durable tier.

    Args:
        line, ledger, change_log_length: as `ScriptExecutor`.
        tier: the durable tier.
    """

    def __init__(self, line: RedisClient, ledger: OperationLedger, tier: Tier, *, change_log_length: int) -> None:
        super().__init__(line, ledger, change_log_length=change_log_length)
        self._tier = tier

    async def mutate(
        self,
        script: str,
        space: Space,
        keys: Sequence[bytes],
        actor: bytes,
        args: Sequence[Argument],
        *,
        large: int = 0,
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """As `ScriptExecutor.mutate`; a key that may be only in the tier is restored first.

        Raises:
            ChangeLostError: the change may be lost, or may have been made: Redis lost data while the call ran.
            UnsettledError: the change is made, but the tier, for which this kind of change waits, does not have it.
            UnavailableError: the tier is needed for the value or the kind of a key and is unreachable; or too many
                changes wait for it; or lost data is not restored in time; or Redis loses data again.
        """
        if keep is None:
            return await super().mutate(script, space, keys, actor, args, large=large)
        if not self._tier.is_ready(space.namespace):
            await self._tier.join(space.namespace)
        more_keys, more_args = self._tier.extras(keep)
        was_unknown = is_doubtful = False
        for _ in range(_MOST_TRIES):
            losses: list[LostError] = []
            all_keys, all_args = [*keys, *more_keys], [*args, *more_args]
            reply = await self._mutate_noting(
                losses, script + DURABLE_SUFFIX, space, all_keys, actor, all_args, large=large
            )
            if reply == _LOST:
                if is_doubtful:
                    raise ChangeLostError(keep.targets[0].key, perhaps=True)
                await self._tier.join(space.namespace, again=True)
                # The change may have been made in data that is lost by now, and may have reached the tier. In other
                # data than expected, the script allows changes of keys only that are not durable.
                is_doubtful = bool(losses) and not keep.is_repeatable
                if not is_doubtful:
                    more_keys, more_args = self._tier.extras(keep)
            elif reply == _UNKNOWN:
                if was_unknown:
                    raise KindUnknownError(keep.targets[0].key)
                was_unknown = True
                await self._tier.join(space.namespace, again=True)
            elif reply == _COLD:
                await self._tier.recall_all(keep)
            else:
                self._note_done(script + DURABLE_SUFFIX)
                return await self._settled(keep, reply)
        raise UnavailableError(f"key {keep.targets[0].key!r}", "Redis evicts it as often as it is restored; try again")

    async def _settled(self, keep: DurabilityModes, reply: bytes) -> bytes:
        """Return the script's own reply, after the tier has the entries for which the call waits."""
        if reply[:1] != _MARK:
            return reply
        mark, _, plain = reply[1:].partition(b" ")
        ids, urgent, stamps = mark.partition(_URGENT)
        namespace = keep.targets[0].space.namespace
        if not urgent:
            if ids:
                self._tier.note(namespace)
            return plain
        changed = {target.key: int(stamp) for target, stamp in zip(keep.targets, stamps.split(b","), strict=True)}
        try:
            await self._tier.settle(namespace, ids.split(b","), changed)
        except ChangeLostError:
            raise
        except SharedMemoryError as error:
            raise UnsettledError(plain, error) from error
        return plain
