"""Operations of the shared store: values, keys, lists, hashes, sets, counters, messages, namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from sharedmem.api.operation import FeedOperation, Operation
from sharedmem.config import Kind
from sharedmem.errors import NotFoundError
from sharedmem.models import Change, Entry, Message, Record, Usage
from sharedmem.store import SharedMemoryStore

_NOTHING: Any = object()

# -- requests: field names are those of the store's arguments, where their meaning and limits stand ------


class KeyRequest(Record):
    """A key."""

    key: str


class KeysRequest(Record):
    """Several keys."""

    keys: tuple[str, ...]


class NamespaceRequest(Record):
    """The whole namespace; `progress` is told how many keys are done, by faces that can show it."""

    progress: SkipJsonSchema[Callable[[int], None] | None] = Field(None, exclude=True)


class NamespaceSweep(Record):
    """What to do with the orphans found."""

    remove: bool = True


class _LifetimeRequest(Record):
    ttl: float | None = None
    kind: Kind | None = None


class ValueWrite(_LifetimeRequest):
    """A value to write."""

    key: str
    value: Any
    if_version: int | None = None


class ValueWriteMany(_LifetimeRequest):
    """Several values to write."""

    values: dict[str, Any]


class KeyExpire(Record):
    """How long a key shall live on."""

    key: str
    ttl: float


class KeyList(Record):
    """Which keys to list."""

    pattern: str = "*"


class ListAppend(_LifetimeRequest):
    """A value for the end of a list."""

    key: str
    value: Any
    max_length: int | None = None


class ListRead(Record):
    """A part of a list."""

    key: str
    start: int = 0
    end: int = -1


class HashSet(_LifetimeRequest):
    """Fields to set."""

    key: str
    values: dict[str, Any]


class HashGet(Record):
    """One field."""

    key: str
    field: str


class HashDelete(Record):
    """Fields to remove."""

    key: str
    fields: tuple[str, ...]


class HashIncrement(_LifetimeRequest):
    """A field to count in."""

    key: str
    field: str
    by: int = 1


class SetAdd(_LifetimeRequest):
    """Members to add."""

    key: str
    values: tuple[Any, ...]


class SetRemove(Record):
    """Members to remove."""

    key: str
    values: tuple[Any, ...]


class SetContains(Record):
    """A member to look for."""

    key: str
    value: Any


class SetMove(Record):
    """A member and where it shall go."""

    source: str
    destination: str
    value: Any


class CounterIncrement(_LifetimeRequest):
    """How much to add; negative to count down."""

    key: str
    by: int = 1


class MessagePublish(Record):
    """A message for those who listen now."""

    channel: str
    message: Any


class MessageSubscribe(Record):
    """Channels to listen to; `*` and `?` make one a pattern."""

    channels: tuple[str, ...]


class ChangeWatch(Record):
    """Which changes to follow, and from where on."""

    pattern: str = "*"
    since: str | int | None = None


# -- what the store does not say in one call ------------------------------------------------------


async def _read(store: SharedMemoryStore, ask: KeyRequest) -> Any:
    value = await store.read(ask.key, _NOTHING)
    if value is _NOTHING:
        raise _absent(store, ask.key)
    return value


async def _entry(store: SharedMemoryStore, ask: KeyRequest) -> Entry:
    entry = await store.entry(ask.key)
    if entry is None:
        raise _absent(store, ask.key)
    return entry


async def _field(store: SharedMemoryStore, ask: HashGet) -> Any:
    value = await store.hget(ask.key, ask.field, _NOTHING)
    if value is _NOTHING:
        full = store.access.absolute(ask.key)
        raise NotFoundError("field", ask.field, f"the hash at key {full!r} does not hold it; read the whole hash")
    return value


async def _pop(store: SharedMemoryStore, ask: KeyRequest) -> Any:
    member = await store.spop(ask.key)
    if member is None:
        full = store.access.absolute(ask.key)
        raise NotFoundError("member of the set", ask.key, f"nothing is left at key {full!r}; add members, or try later")
    return member


def _absent(store: SharedMemoryStore, key: str) -> NotFoundError:
    place = f"it was looked for at {store.access.absolute(key)!r}"
    return NotFoundError("key", key, f"{place}; it may have expired, or lie under another namespace or actor")


async def _keys(store: SharedMemoryStore, ask: KeyList) -> list[str]:
    return sorted([key async for key in store.keys(ask.pattern)])


async def _messages(store: SharedMemoryStore, ask: MessageSubscribe) -> AsyncIterator[Message]:
    async with store.subscription(*ask.channels) as messages:
        async for message in messages:
            yield message


# -- the rows -------------------------------------------------------------------------------------

VALUE_WRITE = Operation(
    "value.write",
    "Write a value under a new version, and tell the version.",
    "write",
    ValueWrite,
    int,
    lambda store, ask: store.write(ask.key, ask.value, ttl=ask.ttl, kind=ask.kind, if_version=ask.if_version),
)
VALUE_READ = Operation("value.read", "The value of a key.", "read", KeyRequest, object, _read)
VALUE_ENTRY = Operation(
    "value.entry", "The value of a key with its version, actor, times and ttl.", "read", KeyRequest, Entry, _entry
)
VALUE_READ_MANY = Operation(
    "value.read_many",
    "The values of those keys that have one.",
    "read",
    KeysRequest,
    dict[str, Any],
    lambda store, ask: store.read_many(ask.keys),
)
VALUE_WRITE_MANY = Operation(
    "value.write_many",
    "Write several values, those of one namespace all or none, and tell their versions.",
    "write",
    ValueWriteMany,
    dict[str, int],
    lambda store, ask: store.write_many(ask.values, ttl=ask.ttl, kind=ask.kind),
)
KEY_EXISTS = Operation(
    "key.exists", "Whether a key holds anything.", "read", KeyRequest, bool, lambda store, ask: store.exists(ask.key)
)
KEY_DELETE = Operation(
    "key.delete",
    "Remove a key with whatever it holds; whether it held anything.",
    "write",
    KeyRequest,
    bool,
    lambda store, ask: store.delete(ask.key),
)
KEY_EXPIRE = Operation(
    "key.expire",
    "Let a key expire; whether there is such a key.",
    "write",
    KeyExpire,
    bool,
    lambda store, ask: store.expire(ask.key, ask.ttl),
)
KEY_PERSIST = Operation(
    "key.persist",
    "Take a key's expiry away; whether it had one.",
    "write",
    KeyRequest,
    bool,
    lambda store, ask: store.persist(ask.key),
)
KEY_TTL = Operation(
    "key.ttl",
    "Seconds until a key expires; nothing when it never does.",
    "read",
    KeyRequest,
    float | None,
    lambda store, ask: store.ttl(ask.key),
)
KEY_LIST = Operation("key.list", "The absolute keys that match a pattern, sorted.", "read", KeyList, list[str], _keys)
LIST_APPEND = Operation(
    "list.append",
    "Put a value at the end of a list, and tell its length.",
    "write",
    ListAppend,
    int,
    lambda store, ask: store.append(ask.key, ask.value, max_length=ask.max_length, ttl=ask.ttl, kind=ask.kind),
)
LIST_READ = Operation(
    "list.read",
    "The values of a list from one position to another.",
    "read",
    ListRead,
    list[Any],
    lambda store, ask: store.read_list(ask.key, ask.start, ask.end),
)
LIST_LENGTH = Operation(
    "list.length",
    "How many values a list holds.",
    "read",
    KeyRequest,
    int,
    lambda store, ask: store.list_length(ask.key),
)
HASH_SET = Operation(
    "hash.set",
    "Set fields in one step, and tell how many are new.",
    "write",
    HashSet,
    int,
    lambda store, ask: store.hset(ask.key, mapping=ask.values, ttl=ask.ttl, kind=ask.kind),
)
HASH_GET = Operation("hash.get", "The value of a field.", "read", HashGet, object, _field)
HASH_ALL = Operation(
    "hash.all", "All fields and values.", "read", KeyRequest, dict[str, Any], lambda store, ask: store.hgetall(ask.key)
)
HASH_DELETE = Operation(
    "hash.delete",
    "Remove fields, and tell how many there were.",
    "write",
    HashDelete,
    int,
    lambda store, ask: store.hdel(ask.key, *ask.fields),
)
HASH_INCREMENT = Operation(
    "hash.increment",
    "Add to the whole number in a field, and tell the new one.",
    "write",
    HashIncrement,
    int,
    lambda store, ask: store.hincrby(ask.key, ask.field, ask.by, ttl=ask.ttl, kind=ask.kind),
)
SET_ADD = Operation(
    "set.add",
    "Add members, and tell how many are new.",
    "write",
    SetAdd,
    int,
    lambda store, ask: store.sadd(ask.key, *ask.values, ttl=ask.ttl, kind=ask.kind),
)
SET_REMOVE = Operation(
    "set.remove",
    "Remove members, and tell how many there were.",
    "write",
    SetRemove,
    int,
    lambda store, ask: store.srem(ask.key, *ask.values),
)
SET_MEMBERS = Operation(
    "set.members", "All members.", "read", KeyRequest, set[Any], lambda store, ask: store.smembers(ask.key)
)
SET_CONTAINS = Operation(
    "set.contains",
    "Whether a value is a member.",
    "read",
    SetContains,
    bool,
    lambda store, ask: store.sismember(ask.key, ask.value),
)
SET_SIZE = Operation("set.size", "How many members.", "read", KeyRequest, int, lambda store, ask: store.scard(ask.key))
SET_POP = Operation(
    "set.pop",
    "Take a random member out.",
    "write",
    KeyRequest,
    object,
    _pop,
)
SET_MOVE = Operation(
    "set.move",
    "Move a member to another set; whether it was there.",
    "write",
    SetMove,
    bool,
    lambda store, ask: store.smove(ask.source, ask.destination, ask.value),
)
COUNTER_INCREMENT = Operation(
    "counter.increment",
    "Add to a counter, and tell the new number.",
    "write",
    CounterIncrement,
    int,
    lambda store, ask: store.incr(ask.key, ask.by, ttl=ask.ttl, kind=ask.kind),
)
MESSAGE_PUBLISH = Operation(
    "message.publish",
    "Send a message, and tell how many subscriptions got it.",
    "write",
    MessagePublish,
    int,
    lambda store, ask: store.publish(ask.channel, ask.message),
)
NAMESPACE_USAGE = Operation(
    "namespace.usage",
    "The keys and bytes of the namespace, by type.",
    "read",
    NamespaceRequest,
    Usage,
    lambda store, ask: store.usage(ask.progress),
)
NAMESPACE_CLEAR = Operation(
    "namespace.clear",
    "Remove every key of the namespace that the actor may write, and tell how many.",
    "write",
    NamespaceRequest,
    int,
    lambda store, ask: store.clear(ask.progress),
)
NAMESPACE_SWEEP = Operation(
    "namespace.sweep",
    "Remove blobs that no key refers to any more, or only count them.",
    "write",
    NamespaceSweep,
    int,
    lambda store, ask: store.sweep(remove=ask.remove),
)

MESSAGE_SUBSCRIBE = FeedOperation(
    "message.subscribe", "The messages of some channels, from now on.", "read", MessageSubscribe, Message, _messages
)
CHANGE_WATCH = FeedOperation(
    "change.watch",
    "The changes of the keys that match, from now or from a cursor on.",
    "read",
    ChangeWatch,
    Change,
    lambda store, ask: store.watch(ask.pattern, since=ask.since),
)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation | FeedOperation))
