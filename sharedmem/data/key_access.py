"""Access to the keys of a store with the rights of one actor, and the errors for refused commands.

`store.access` shows the rights, and applies them to the server as a Redis ACL user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from sharedmem.config import Kind
from sharedmem.context import HubContext
from sharedmem.errors import DurabilityPendingError, InternalError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.redis import durability
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.durability import DurabilityModes, KindUnknownError, UnsettledError
from sharedmem.redis.keys import Target, absolute_key, check_name
from sharedmem.redis.replies import Argument, Command, Reply, ServerError, public_error, public_key_error
from sharedmem.redis.scope import Grant, Need, PolicyName, Scope, acl_rules
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.runtime.background import ProcessBound

if TYPE_CHECKING:
    from sharedmem.redis.near_cache import NearCache


T = TypeVar("T")
_KNOWLEDGE_MARK = b"k"
_UNSETTLED_STATES = (b"pending", b"deleted")
_LARGEST_INTEGER = (1 << 63) - 1
REPLY_COLD, REPLY_UNKNOWN = b"L", b"U"
"""Reply lines of a change: the key may be in the durable tier alone; its kind is unknown."""
MOST_TRIES = 20
"""How often a key is restored if it is evicted again before it is read."""
# Replies of commands about a key that is absent, and sometimes about one that is present.
_ABSENT_REPLIES: tuple[Reply, ...] = (None, 0, -2, [], [b"0", []])


class KeyAccess:
    """The keys that one actor may use, and the services that every operation on them needs.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: returns keys within the actor's rights.
        near: copies of values in this process; None: values are read from the server.
    """

    def __init__(self, context: HubContext, scope: Scope, near: NearCache | None = None) -> None:
        self.near = near
        self.context = context
        self.scope = scope
        self.actor = scope.signature
        self.client = context.client
        self.lifetimes = context.lifetimes
        self.tier = context.tier
        self.scripts = DataScripts(context.executor)

    async def explained(self, target: Target, wanted: str, call: Awaitable[T]) -> T:
        """Return the call's result; turn a refusal of the server into an error with the key and its type.

        Raises:
            WrongTypeError: the key holds another type than `wanted`.
            InvalidError: the data of the key is not a number.
            DurabilityPendingError: the change is made, but the durable tier does not have it yet.
        """
        try:
            return await call
        except ServerError as error:
            raise await self.key_error(error, target, wanted) from error
        except UnsettledError as error:
            raise durability_pending_error(target, error) from error.cause

    async def key_error(self, error: ServerError, target: Target, wanted: str) -> SharedMemoryError:
        """Return the public error for a refused call on a key. One round trip, to read the type of the key."""
        held = text_of(await self.client.call("TYPE", target.physical))
        return public_key_error(error, self.client.address, key=target.key, held=held, wanted=wanted)

    async def ask(self, target: Target, wanted: str, *command: Argument) -> Reply:
        """Return the reply to a command that reads a key; a durable key that is not in Redis is restored first.

        Raises:
            UnavailableError: the key is not in Redis and the durable tier is unreachable, or Redis evicts the key as
                often as it is restored.
            WrongTypeError: as `explained`.
        """
        if self.tier is None:
            return await self.explained(target, wanted, self.client.call(*command))
        await self.ensure_joined(target)
        reply = await self.explained(target, wanted, self.client.call(*command))
        is_there: Reply = 0
        for _ in range(MOST_TRIES):
            if is_there or reply not in _ABSENT_REPLIES or not await self.restore(target):
                return reply
            # The key may be absent again by now: evicted, or its copy has expired.
            commands = (command, ("EXISTS", target.physical))
            reply, is_there = await self.explained(target, wanted, self.client.read_many(commands))
        raise restored_in_vain_error(target)

    # -- the durable tier

    def mode(self, target: Target, kind: Kind | str | None) -> str:
        """Return the durability mode of a change of a key; empty without a durable tier."""
        return "" if self.tier is None else self.lifetimes.mode(target.key, kind)

    def durability(self, *targets: Target, kind: Kind | str | None = None) -> DurabilityModes | None:
        """Return how a change of these keys is made durable; None without a durable tier."""
        if self.tier is None:
            return None
        return DurabilityModes(targets, "".join(self.lifetimes.mode(target.key, kind) for target in targets))

    async def ensure_joined(self, target: Target) -> None:
        """Wait until Redis is known to be up to date with the durable tier."""
        if self.tier is not None and not self.tier.is_joined(target.space.namespace):
            await self.tier.join(target.space.namespace)

    async def restore(self, target: Target) -> bool:
        """Restore a durable key that is not in Redis; return whether it exists now."""
        return self.tier is not None and await self.tier.recall(target, self.lifetimes.mode(target.key))

    async def prepare_repeat(self, target: Target, mode: str, reply: bytes, *, was_unknown: bool) -> bool:
        """Get from the durable tier what a change needs before it can be made; then the caller repeats the change.

        Args:
            target: the changed key.
            mode: its durability mode.
            reply: `REPLY_COLD` or `REPLY_UNKNOWN`.
            was_unknown: whether the kind of the key was unknown at an earlier attempt.

        Returns:
            Whether the kind of the key was unknown.

        Raises:
            UnavailableError: the durable tier is unreachable.
        """
        assert self.tier is not None
        if reply == REPLY_COLD:
            await self.tier.recall(target, mode)
            return was_unknown
        if was_unknown:
            raise KindUnknownError(target.key)
        await self.tier.join(target.space.namespace, again=True)
        return True

    async def remove_blob(self, target: Target, path: bytes) -> None:
        """Delete the blob of a replaced or deleted value, unless the durable tier may still refer to it."""
        if self.tier is not None:
            state = await self.client.call("GET", self.scope.keyspace.state(target))
            if isinstance(state, bytes) and state.startswith(_UNSETTLED_STATES):
                return  # if Redis were lost now, the old value would be the newest: a sweep deletes the blob later
        await self.context.blobs.remove(target.key, path.decode())

    # -- expiry

    def expiry_commands(self, target: Target) -> list[Command]:
        """Return the commands whose replies `remaining_ms` needs."""
        keyspace, expiry = self.scope.keyspace, ("PTTL", target.physical)
        if self.tier is None:
            return [expiry]
        return [expiry, ("GET", keyspace.state(target)), ("HGET", keyspace.kept(target.space.namespace), target.key)]

    def remaining_ms(self, target: Target, replies: Sequence[Reply]) -> int | None:
        """Return the milliseconds until a key expires; None if it never expires, or only its copy in Redis does."""
        left_ms, *states = replies
        if not isinstance(left_ms, int) or left_ms < 0:
            return None
        if not states:
            return left_ms
        state, kept = states
        if isinstance(state, bytes):
            return None if state == durability.CACHED_STATE else left_ms
        # As in lua/include/kept.lua: Redis may evict the state of a `knowledge` key alone.
        mode = self.lifetimes.mode(target.key)
        is_knowledge = (
            kept == _KNOWLEDGE_MARK
            if mode == durability.UNCHANGED_MODE
            else mode == durability.RULE_MODES[Kind.KNOWLEDGE]
        )
        return None if is_knowledge else left_ms


def restored_in_vain_error(target: Target) -> UnavailableError:
    """Return the error for a key that was absent again after each restore."""
    return UnavailableError(f"key {target.key!r}", "Redis evicts it as often as it is restored; try again")


def durability_pending_error(target: Target, error: UnsettledError) -> DurabilityPendingError:
    """Return the error for a change that is in Redis, but not yet in the durable tier."""
    version = error.reply.partition(b"\n")[0].partition(b" ")[0]
    return DurabilityPendingError(target.key, int(version) if version.isdigit() else 0, str(error))


def check_integer(field: str, value: object) -> int:
    """Return a whole number of 64 bits.

    Raises:
        InvalidError: the value is not a whole number, or needs more bits.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(field, value, "give a whole number")
    if abs(value) > _LARGEST_INTEGER:
        raise InvalidError(field, value, "keep it within 64 bits")
    return value


def check_member(field: str, member: bytes, most: int) -> bytes:
    """Return an encoded member of a list, hash or set that is small enough for Redis.

    Raises:
        InvalidError: it is larger than the blob threshold.
    """
    if len(member) > most:
        advice = f"it takes {len(member)} bytes, members may take {most}; store it as a value and put its key here"
        raise InvalidError(field, "...", advice)
    return member


# -- the rights of a store -----------------------------------------------------------------------


class Access(ProcessBound):
    """The access rights of one store."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._client = context.client
        self._powers = context.powers
        self._scope = scope

    @property
    def policy(self) -> PolicyName:
        """`namespaced`, or `open` if all actors are trusted."""
        return self._scope.identity.policy

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The rights of this store beyond its own scope and namespace."""
        return self._scope.identity.grants

    def may(self, need: Need, key: str) -> bool:
        """Return whether this store may `read` or `write` a key; no round trip.

        Raises:
            InvalidError: the key is invalid.
        """
        return self._scope.identity.may(need, self.absolute(key))

    def allowed(self, need: Need) -> list[str]:
        """Return patterns of all keys that this store may `read` or `write`; no round trip."""
        return self._scope.identity.allowed(need)

    def absolute(self, key: str) -> str:
        """Return the absolute form of a key, `<namespace>:<scope>:<identifier>`; no round trip.

        Raises:
            InvalidError: the key is invalid.
        """
        identity = self._scope.identity
        return absolute_key(key, identity.namespace, identity.scope)

    def acl_rules(self, *, password: str) -> list[str]:
        """Return the rules of a Redis ACL user with these rights: the arguments after `ACL SETUSER <user>`.

        Such a user can open a hub and use this store, but it cannot list keys (`keys`, `usage`, `clear`). Of the
        channel patterns it may use the ones that a grant names literally. If it may write anything in a namespace, it
        may also write the service keys of that namespace, as its scripts do. It can search memories once the namespace
        has an index of its own (`sharedmem index promote`). Needs Redis 7 or later.

        Args:
            password: the password of that user.

        Raises:
            UnsupportedError: the policy is `open`.
            InvalidError: the password is empty, or a name or grant holds blanks, quotes or parentheses.
        """
        identity, keyspace = self._scope.identity, self._scope.keyspace
        powers = self._powers
        return acl_rules(identity, keyspace, password=password, searches=powers.search, documents=powers.json_documents)

    async def apply(self, user: str, *, password: str) -> None:
        """Create or replace a Redis ACL user with these rights; one round trip.

        On a cluster, every server gets the user. Behind sentinels only the master does: replicas store their own
        users, so give them all an ACL file.

        Args:
            user: name of the Redis user.
            password: password of the Redis user.

        Raises:
            AccessDeniedError: this hub's own Redis user may not manage users.
            UnsupportedError, InvalidError: as `acl_rules`.
            UnavailableError: the server cannot be reached.
        """
        rules = self.acl_rules(password=password)
        try:
            await self._client.call("ACL", "SETUSER", check_name("user", user), *rules)
        except ServerError as error:
            # The server's message could quote a rule, and one of the rules is the password.
            hidden = ServerError(error.text.replace(password, "***"))
            raise public_error(hidden, self._client.address) from InternalError("ACL SETUSER was refused")
