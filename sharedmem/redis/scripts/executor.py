"""Runs scripts: mutations with an operation id and, where a durable tier is behind, with their outbox entries.

Every mutation carries an operation id (`OperationLedger`), so that a repeat after a lost reply is answered
like the first and not done again. Each is one round trip and one atomic step at the server.

Each hub keeps one ledger hash per namespace at the server. A call under way occupies a slot of it,
and its number rises with every call of this hub, so that the server can tell a repeat (answer again
what was answered) from a straggler of a connection long given up (refuse). The ledger is as large as
the most calls that were ever under way at once, not as the number of calls. The idea is the client
session of Raft (Ongaro, "Consensus: Bridging Theory and Practice", 6.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sharedmem.clock import Clock
from sharedmem.errors import InternalError, SharedMemoryError, UnavailableError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import ChangeLostError, DurabilityModes, KindUnknownError, Tier, UnsettledError
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument, Command, LostError, Reply
from sharedmem.redis.scripts.loader import DURABLE_SUFFIX, scripts

# A ledger outlives every call under way: it is prolonged often, and lives much longer than a call may last.
_SHORTEST_LIFE_S = 180.0
_LIFE_BEYOND_RETRIES_S = 120.0
_PROLONG_EVERY_S = 30.0


@dataclass(slots=True)
class _LedgerSlots:
    free: list[int] = field(default_factory=list)
    used: int = 0
    prolonged_at: float = float("-inf")


class OperationLedger:
    """Gives each mutation of one hub its slot and number.

    Args:
        clock: tells when a ledger's expiry is to be prolonged.
        retry_for_s: how long a call may be repeated, which its entry has to outlive.
    """

    def __init__(self, clock: Clock, *, retry_for_s: float) -> None:
        self._clock = clock
        self._keep_ms = round(max(_SHORTEST_LIFE_S, retry_for_s + _LIFE_BEYOND_RETRIES_S) * 1000)
        self._number = 0
        self._slots: defaultdict[bytes, _LedgerSlots] = defaultdict(_LedgerSlots)

    def take(self, operations: bytes) -> tuple[int, int, int]:
        """Occupy a slot of a ledger key.

        Returns:
            (slot, number of the operation, milliseconds by which to prolong the ledger or 0).
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

    def give_back(self, operations: bytes, slot: int) -> None:
        """Free a slot: its call has been answered, or given up."""
        self._slots[operations].free.append(slot)


POOLED_ABOVE_BYTES = 65_536
_FIXED_KEYS = 3


class ScriptExecutor:
    """How the typed callers of one hub reach their scripts.

    Args:
        line: the way to the server.
        ledger: gives each mutation its operation id.
        change_log_length: approximate length to which change streams are kept.
    """

    def __init__(self, line: RedisClient, ledger: OperationLedger, *, change_log_length: int) -> None:
        self._client = line
        self._ledger = ledger
        self._cap = change_log_length
        # Bytes go out as they are; text would be encoded at every call.
        self._digests = {name: script.digest.encode() for name, script in scripts().items()}

    async def mutate(
        self,
        script: str,
        space: Space,
        keys: Sequence[bytes],
        actor: bytes,
        args: Sequence[Argument],
        *,
        large: int = 0,
        keep: DurabilityModes | None = None,  # noqa: ARG002  # no durable tier is behind this executor (see DurableScriptExecutor)
    ) -> bytes:
        """Run a script that begins with `lua/include/mutation.lua`.

        Args:
            script: its name.
            space: the service keys that come before its own.
            keys: its own keys.
            actor: who does it.
            args: its own arguments.
            large: bytes of the arguments, if they may be many: what is large takes another connection.
            keep: how the first of its own keys are kept, where a durable tier stands behind.
        """
        command, slot = self._command(script, space, keys, actor, args)
        call = self._client.call_aside if large > POOLED_ABOVE_BYTES else self._client.call
        try:
            reply = await call(*command)
        finally:
            self._ledger.give_back(space.operations, slot)
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
        """As `mutate`; a try that the server may have carried out without an answer adds to `losses`."""
        command, slot = self._command(script, space, keys, actor, args)
        try:
            reply = await self._client.call_noting(losses, command, aside=large > POOLED_ABOVE_BYTES)
        finally:
            self._ledger.give_back(space.operations, slot)
        return _check_bytes(reply)

    def _command(
        self, script: str, space: Space, keys: Sequence[bytes], actor: bytes, args: Sequence[Argument]
    ) -> tuple[Command, int]:
        """Return (what is sent, which slot of the ledger it occupies)."""
        operations = space.operations
        slot, number, keep_ms = self._ledger.take(operations)
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

    async def tell(self, script: str, operations: bytes, args: Sequence[Argument], *, large: int = 0) -> bytes:
        """Run a script that changes nothing but the ledger, once however often it is repeated."""
        slot, number, keep_ms = self._ledger.take(operations)
        call = self._client.call_aside if large > POOLED_ABOVE_BYTES else self._client.call
        try:
            reply = await call(b"EVALSHA", self._digests[script], 1, operations, slot, number, keep_ms, *args)
        finally:
            self._ledger.give_back(operations, slot)
        return _check_bytes(reply)

    async def run(self, script: str, keys: Sequence[bytes], args: Sequence[Argument]) -> Reply:
        """Run a script that may be repeated: it only looks, or does the same again."""
        return await self._client.call(b"EVALSHA", self._digests[script], len(keys), *keys, *args)


def split_version(reply: bytes) -> tuple[int, bytes]:
    """Return (version, result) of a reply `<version> <result>`."""
    version, _, result = reply.partition(b" ")
    return int(version), result


def _check_bytes(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return reply
    raise InternalError(f"a script answered {reply!r} where it promises text")


_MOST_TRIES = 20
_COLD = b"COLD"
_LOST = b"LOST"
_UNKNOWN = b"UNKNOWN"
_MARK = b"@"
_URGENT = b"!"


class DurableScriptExecutor(ScriptExecutor):
    """How callers reach their scripts where a durable tier stands behind.

    Args:
        line, ledger, change_log_length: as `ScriptExecutor`.
        tier: what stands behind.
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
        """As `ScriptExecutor.mutate`; a key that may lie in the tier alone is brought back first.

        Raises:
            ChangeLostError: the change may be lost, or may have been made: Redis was lost while it was under way.
            UnsettledError: the change is made, but the tier, which this kind of change waits for, does not have it.
            UnavailableError: the tier is needed to know what a key holds, or whether it lasts, and cannot be asked; or
                too much waits for it; or what Redis has lost is not restored in time; or Redis loses data again.
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
                # It may have been made in data that is lost by now, and have reached the tier. In other data than it
                # was made for, the script lets only keys that do not last be changed.
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
                return await self._settled(keep, reply)
        raise UnavailableError(f"key {keep.targets[0].key!r}", "it goes as often as it is brought back; try again")

    async def _settled(self, keep: DurabilityModes, reply: bytes) -> bytes:
        """Return the script's own reply, once the tier has those of its entries that are waited for."""
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
