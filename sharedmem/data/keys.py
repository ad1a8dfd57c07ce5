"""Keys of any type: access with the rights of one actor, existence, expiry and listing, and use of a namespace.

`store.access` shows the rights, and applies them to the server as a Redis ACL user. The usage of a namespace is
measured, and a namespace is cleared and swept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from sharedmem.config import Kind
from sharedmem.context import HubContext
from sharedmem.errors import DurabilityPendingError, InternalError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models import KeyInfo, KeyPage, TypeUsage, Usage
from sharedmem.redis import durability
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.durability import NO_EXPIRY, DurabilityModes, KindUnknownError, UnsettledError, check_ttl_ms
from sharedmem.redis.keys import Target, absolute_key, check_name
from sharedmem.redis.replies import Argument, Command, Reply, ServerError, public_error, public_key_error
from sharedmem.redis.scope import Grant, Need, PolicyName, Scope, acl_rules
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.redis.service_keys import find_damage
from sharedmem.runtime.concurrency import ProcessBound

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


# -- operations on keys of any type --------------------------------------------------------------


_ANY_TYPE = "value"
_PTTL_MISSING = -2
_CLOSED_FOR_MS = 30_000
_MOST_LISTED = 1000
_LOOKED_AT_ONCE = 1000
_MOST_LOOKS = 20
_LONGEST_CURSOR = 20


def _is_cursor(text: str) -> bool:
    """Return whether a text can be a cursor of SCAN, a number of 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_CURSOR and int(text) < 1 << 64


class KeyOperations:
    """Operations on keys of any type, on single keys or on the whole namespace."""

    def __init__(self, keys: KeyAccess) -> None:
        self._any_keys = keys

    async def exists(self, key: str) -> bool:
        """Return whether the key exists. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        target = access.scope.to_read(key)
        return await access.ask(target, _ANY_TYPE, "EXISTS", target.physical) == 1

    async def delete(self, key: str) -> bool:
        """Delete a key of any type; return False if it did not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._delete(self._any_keys.scope.to_write(key))

    async def expire(self, key: str, ttl: float) -> bool:
        """Let a key expire in `ttl` seconds; return False if it does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._any_keys
        target = access.scope.to_write(key)
        call = access.scripts.key_expire(target, access.actor, ttl_ms=check_ttl_ms(ttl), keep=access.durability(target))
        version, _ = await access.explained(target, _ANY_TYPE, call)
        return version > 0

    async def persist(self, key: str) -> bool:
        """Remove the expiry of a key; return False if it has no expiry or does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._any_keys
        target = access.scope.to_write(key)
        call = access.scripts.key_expire(target, access.actor, ttl_ms=NO_EXPIRY, keep=access.durability(target))
        version, _ = await access.explained(target, _ANY_TYPE, call)
        return version > 0

    async def ttl(self, key: str) -> float | None:
        """Return the seconds until the key expires; None if it never expires or does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        target = access.scope.to_read(key)
        asking = access.expiry_commands(target)
        await access.ensure_joined(target)
        for _ in range(MOST_TRIES):
            replies = await access.explained(target, _ANY_TYPE, access.client.read_many(asking))
            if replies[0] != _PTTL_MISSING or not await access.restore(target):
                left_ms = access.remaining_ms(target, replies)
                return None if left_ms is None else left_ms / 1000
        raise restored_in_vain_error(target)

    async def keys(self, pattern: str = "*") -> AsyncIterator[str]:
        """Yield the absolute keys that match, each once, in no order; in pages, from Redis, then from the durable tier.

        Args:
            pattern: with `*` and `?` as wild cards. Without `:` it is matched against the identifier in every
                scope of the store's namespace (`*`: all its keys); with `:` it is absolute and begins with a
                literal namespace.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        namespace, matches = access.scope.matcher(pattern)
        seen: set[str] = set()
        async for page in self._pages(namespace):
            for physical in page:
                key = access.scope.keyspace.logical(physical)
                if matches(key) and key not in seen and access.scope.identity.may("read", key):
                    seen.add(key)
                    yield key
        if access.tier is not None:
            async for absent in access.tier.absent(namespace, seen):
                for key in filter(matches, absent):
                    if access.scope.identity.may("read", key):
                        yield key

    async def scan(self, pattern: str = "*", *, limit: int = 100, cursor: str | None = None) -> KeyPage:
        """Return some of the keys in Redis that match, with type, expiry and size; for lists of any length.

        A key may come twice, and keys that are written meanwhile may be missed, as with SCAN of Redis. Keys in
        the durable tier alone are not listed; `keys` lists them. Looks at 20,000 keys at most, so that a rare key
        among millions takes several calls: a page may be empty, and the last is the one without a cursor.
        Two to 21 round trips.

        Args:
            pattern: as `keys`.
            limit: number of keys after which a page ends, 1 to 1,000; the last look may bring some more.
            cursor: of the page before; None begins.

        Raises:
            InvalidError: the pattern, limit or cursor is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        namespace, matches = access.scope.matcher(pattern)
        if not 1 <= limit <= _MOST_LISTED:
            raise InvalidError("limit", limit, f"give 1 to {_MOST_LISTED}")
        if cursor is not None and not _is_cursor(cursor):
            raise InvalidError("cursor", cursor, "give that of the page before, or none to begin")
        keyspace, following = access.scope.keyspace, cursor or "0"
        glob, near = keyspace.pattern(namespace), keyspace.space(namespace).clock
        found: dict[str, bytes] = {}
        for _ in range(_MOST_LOOKS):
            following, page = await access.client.scan_from(glob, near=near, cursor=following, count=_LOOKED_AT_ONCE)
            for physical in page:
                key = keyspace.logical(physical)
                if not keyspace.is_service(physical) and matches(key) and access.scope.identity.may("read", key):
                    found[key] = physical
            if following == "0" or len(found) >= limit:
                break
        return KeyPage(keys=await self._describe(found), cursor=None if following == "0" else following)

    async def _describe(self, keys: dict[str, bytes]) -> list[KeyInfo]:
        """Return type, expiry and size of keys, by name; without keys that are gone meanwhile. One round trip."""
        questions = [part for key in keys.values() for part in (("TYPE", key), ("PTTL", key), ("MEMORY", "USAGE", key))]
        replies = await self._any_keys.client.read_many(questions, aside=True) if questions else []
        listed = []
        for key, kind, left_ms, size in zip(keys, replies[::3], replies[1::3], replies[2::3], strict=True):
            if isinstance(left_ms, int) and left_ms != _PTTL_MISSING:
                ttl = left_ms / 1000 if left_ms >= 0 else None
                listed.append(KeyInfo(key=key, type=text_of(kind), ttl=ttl, bytes=size if isinstance(size, int) else 0))
        return sorted(listed, key=lambda one: one.key)

    # -- the whole namespace

    async def usage(self, progress: Callable[[int], None] | None = None) -> Usage:
        """Count the keys and bytes of the namespace, by type; paced so that other clients do not wait long.

        Locks, queues, decisions and memories are counted too; search indexes are not.

        Args:
            progress: called with the number of keys counted so far.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        access = self._any_keys
        keys: defaultdict[str, int] = defaultdict(int)
        sizes: defaultdict[str, int] = defaultdict(int)
        keyspace = access.scope.keyspace
        async for belongings in self._owned_key_pages(access.scope.identity.namespace):
            page = [key for key in belongings if not keyspace.is_state(key)]
            commands = [part for key in page for part in (("TYPE", key), ("MEMORY", "USAGE", key))]
            replies = await access.client.read_many(commands, aside=True)
            for kind, size in zip(replies[::2], replies[1::2], strict=True):
                if isinstance(size, int):
                    keys[text_of(kind)] += 1
                    sizes[text_of(kind)] += size
            if progress is not None:
                progress(sum(keys.values()))
        return Usage(
            namespace=access.scope.identity.namespace,
            keys=sum(keys.values()),
            bytes=sum(sizes.values()),
            types={kind: TypeUsage(keys=keys[kind], bytes=sizes[kind]) for kind in sorted(keys)},
        )

    async def clear(self, progress: Callable[[int], None] | None = None) -> int:
        """Delete every key of the namespace that this store may write; return their number.

        A store without an actor deletes all of them, and also locks (their holders lose them), queues with their tasks,
        decisions, memories and the semantic cache. Until it is done, writes are refused; the change feed gets one
        change `clear`. A store with an actor deletes key by key, each with a change of its own, and leaves locks,
        queues, decisions and memories as they are. The work is paced: other clients of the server hardly notice it,
        even with millions of keys.

        Args:
            progress: called with the number of keys deleted so far.

        Raises:
            UnavailableError: the server cannot be reached; call it again to continue.
        """
        access = self._any_keys
        if access.scope.identity.actor is None:
            return await self._clear_all(progress)
        removed = 0
        async for keys in self._list_all_keys():
            for key in keys:
                if access.scope.identity.may("write", key):
                    removed += await self._delete(access.scope.keyspace.target(key))
            if progress is not None:
                progress(removed)
        return removed

    async def sweep(self, *, remove: bool = True) -> int:
        """Find unreferenced data: blobs of expired keys, and what expired memories left behind.

        Args:
            remove: whether to delete the data, or only to count it.

        Returns:
            The number of finds. Blobs younger than an hour do not count: a write may be about to refer to them.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        access = self._any_keys
        namespace = access.scope.identity.namespace
        found = await access.context.blob_gc.sweep(namespace, remove=remove)
        for sweep in access.context.sweep_hooks:
            found += await sweep(namespace, remove)
        return found

    async def damaged_keys(self) -> dict[str, str]:
        """Find the service keys of the namespace that another client has damaged.

        Checks the type of every service key, and up to 1,000 members of each.

        Returns:
            The problem and its remedy by physical key.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        access = self._any_keys
        space, keyspace = access.scope.home, access.scope.keyspace
        found: dict[str, str] = {}
        async for page in access.client.scan(keyspace.namespace_glob(space.namespace), near=space.clock):
            own = [key for key in page if keyspace.is_in_namespace(key, space.namespace)]
            async for damage in find_damage(access.client.read_many, own):
                found[damage.key] = str(damage)
        return found

    async def _delete(self, target: Target) -> bool:
        access = self._any_keys
        call = access.scripts.key_delete(target, access.actor, keep=access.durability(target))
        version, blob = await access.explained(target, _ANY_TYPE, call)
        if blob:
            await access.remove_blob(target, blob)
        return version > 0

    async def _pages(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """Yield the users' physical keys of a namespace, page by page; a key may come twice."""
        access = self._any_keys
        keyspace = access.scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in access.client.scan(keyspace.pattern(namespace), near=near):
            if keys := [key for key in page if not keyspace.is_service(key)]:
                yield keys

    async def _owned_key_pages(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """Yield pages as `_pages` does, with keys of locks, queues, decisions and memories."""
        access = self._any_keys
        keyspace = access.scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in access.client.scan(keyspace.namespace_glob(namespace), near=near):
            own = [key for key in page if keyspace.is_in_namespace(key, namespace)]
            if keys := [key for key in own if not keyspace.is_service(key) or keyspace.is_part(key)]:
                yield keys

    async def _list_all_keys(self) -> AsyncIterator[list[str]]:
        """Yield the absolute keys of the namespace, page by page: those in Redis, then those only in the tier."""
        access = self._any_keys
        namespace = access.scope.identity.namespace
        async for page in self._pages(namespace):
            yield [access.scope.keyspace.logical(physical) for physical in page]
        if access.tier is not None:
            async for keys in access.tier.absent(namespace, ()):
                yield keys

    async def _clear_all(self, progress: Callable[[int], None] | None) -> int:
        access = self._any_keys
        space = access.scope.home
        removed = 0
        stamp = await access.scripts.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
        if access.tier is not None:
            # The tier first: after a failure, what is still in Redis can be cleared again.
            await access.tier.clear(space.namespace, stamp)
        async for page in self._owned_key_pages(space.namespace):
            count = await access.client.call_aside("UNLINK", *page)
            # State keys between Redis and the tier are not counted: no caller wrote them.
            states = sum(map(access.scope.keyspace.is_state, page))
            removed += max(0, count - states) if isinstance(count, int) else 0
            await access.scripts.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
            if progress is not None:
                progress(removed)
        await access.context.blobs.clear(space.namespace)
        for hook in access.context.clear_hooks:
            await hook(space.namespace)
        names = access.scope.keyspace.names(space.namespace)
        await access.scripts.namespace_cleared(space, names, access.actor, logical=space.namespace)
        return removed
