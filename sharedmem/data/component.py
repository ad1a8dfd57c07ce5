"""Base class of the data operations of a store, and the dependencies that a hub shares with them."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from sharedmem.config import Kind
from sharedmem.context import HubContext
from sharedmem.errors import DurabilityPendingError, InvalidError, SharedMemoryError
from sharedmem.redis import durability
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.durability import DurabilityModes, UnsettledError
from sharedmem.redis.errors import public_key_error
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Command, Reply, ServerError
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.runtime.process_bound import ProcessBound

T = TypeVar("T")
_KNOWLEDGE_MARK = b"k"
_UNSETTLED_STATES = (b"pending", b"deleted")
_LARGEST_INTEGER = (1 << 63) - 1
# What commands answer about a key that is not there, and now and then about one that is.
_ABSENT_REPLIES: tuple[Reply, ...] = (None, 0, -2, [], [b"0", []])


class StoreComponent(ProcessBound):
    """One kind of shared data, seen with the rights of one actor.

    Args:
        context: what the hub shares with its stores.
        scope: hands out keys within the actor's rights.
    """

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._context = context
        self._client = context.client
        self._mutations = DataScripts(context.executor)
        self._lifetimes = context.lifetimes
        self._scope = scope
        self._actor = scope.signature
        self._tier = context.tier

    async def _explained(self, target: Target, wanted: str, call: Awaitable[T]) -> T:
        """The call's result; what the server refuses is explained with the key and the type it holds.

        Raises:
            WrongTypeError: the key holds something else than `wanted`.
            InvalidError: what it holds cannot be counted.
        """
        try:
            return await call
        except ServerError as error:
            raise await self._explain_error(error, target, wanted) from error
        except UnsettledError as error:
            raise durability_pending_error(target, error) from error.cause

    def _keep(self, *targets: Target, kind: Kind | str | None = None) -> DurabilityModes | None:
        """How a change of these keys is kept; None where no durable tier stands behind."""
        if self._tier is None:
            return None
        return DurabilityModes(targets, "".join(self._lifetimes.mode(target.key, kind) for target in targets))

    async def _asked(self, target: Target, wanted: str, *command: Argument) -> Reply:
        """The reply to a command that reads a key; a key that is not in Redis is brought back first, if it lasts.

        Raises:
            UnavailableError: it is not in Redis, and the durable tier cannot be asked.
            WrongTypeError: as `_explained`.
        """
        if self._tier is None:
            return await self._explained(target, wanted, self._client.call(*command))
        await self._joined(target)
        reply = await self._explained(target, wanted, self._client.call(*command))
        if reply in _ABSENT_REPLIES and await self._recalled(target):
            reply = await self._explained(target, wanted, self._client.call(*command))
        return reply

    def _expiry_commands(self, target: Target) -> list[Command]:
        """Commands whose replies `_left_ms` understands."""
        keyspace, expiry = self._scope.keyspace, ("PTTL", target.physical)
        if self._tier is None:
            return [expiry]
        return [expiry, ("GET", keyspace.state(target)), ("HGET", keyspace.kept(target.space.namespace), target.key)]

    def _remaining_ms(self, target: Target, replies: Sequence[Reply]) -> int | None:
        """Milliseconds until a key expires by itself; None when it never does, or only its copy in Redis."""
        left_ms, *told = replies
        if not isinstance(left_ms, int) or left_ms < 0:
            return None
        if not told:
            return left_ms
        state, kept = told
        if isinstance(state, bytes):
            return None if state == durability.CACHED_STATE else left_ms
        # As in lua/include/kept.lua: the state of knowledge may be evicted alone.
        mode = self._lifetimes.mode(target.key)
        is_knowledge = (
            kept == _KNOWLEDGE_MARK
            if mode == durability.UNCHANGED_MODE
            else mode == durability.RULE_MODES[Kind.KNOWLEDGE]
        )
        return None if is_knowledge else left_ms

    async def _joined(self, target: Target) -> None:
        """Return when Redis is known not to be behind the durable tier."""
        if self._tier is not None and not self._tier.is_joined(target.space.namespace):
            await self._tier.join(target.space.namespace)

    async def _recalled(self, target: Target) -> bool:
        """Bring a key back that is not in Redis but lasts; whether it is there now."""
        return self._tier is not None and await self._tier.recall(target, self._lifetimes.mode(target.key))

    async def _let_go(self, target: Target, path: bytes) -> None:
        """Remove the blob of a value that was replaced or deleted, unless the durable tier may still refer to it."""
        if self._tier is not None:
            state = await self._client.call("GET", self._scope.keyspace.state(target))
            if isinstance(state, bytes) and state.startswith(_UNSETTLED_STATES):
                return  # were Redis lost now, the value before would be the newest: a sweep takes the blob later
        await self._context.blobs.remove(target.key, path.decode())

    async def _explain_error(self, error: ServerError, target: Target, wanted: str) -> SharedMemoryError:
        held = text_of(await self._client.call("TYPE", target.physical))
        return public_key_error(error, self._client.address, key=target.key, held=held, wanted=wanted)


def durability_pending_error(target: Target, error: UnsettledError) -> DurabilityPendingError:
    """What is told of a change that is made, but that the durable tier does not have yet."""
    version = error.reply.partition(b"\n")[0].partition(b" ")[0]
    return DurabilityPendingError(target.key, int(version) if version.isdigit() else 0, str(error))


def check_integer(field: str, value: object) -> int:
    """A whole number of 64 bits.

    Raises:
        InvalidError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(field, value, "give a whole number")
    if abs(value) > _LARGEST_INTEGER:
        raise InvalidError(field, value, "keep it within 64 bits")
    return value


def check_member(field: str, member: bytes, most: int) -> bytes:
    """A coded member of a list, hash or set, small enough to lie in Redis.

    Raises:
        InvalidError: it is larger than the blob threshold.
    """
    if len(member) > most:
        advice = f"it takes {len(member)} bytes, members may take {most}; store it as a value and put its key here"
        raise InvalidError(field, "...", advice)
    return member
