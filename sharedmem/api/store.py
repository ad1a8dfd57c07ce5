"""Operations of the shared store: values, keys, lists, hashes, sets, counters, messages, namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sharedmem.api.operation import Facet
from sharedmem.errors import NotFoundError
from sharedmem.models import Change, Entry, Message, Record
from sharedmem.store import SharedMemoryStore as Store

_ABSENT: Any = object()

# -- requests that differ from the arguments of their methods ---------------------------------------


class KeyRequest(Record):
    """A key."""

    key: str


class FieldRequest(KeyRequest):
    """A field of a hash."""

    field: str


class KeyList(Record):
    """Which keys to list."""

    pattern: str = "*"


class MessageSubscribe(Record):
    """Channels to listen to; `*` and `?` make one a pattern."""

    channels: tuple[str, ...]


class ChangeWatch(Record):
    """Which changes to follow, and from where on."""

    pattern: str = "*"
    since: str | int | None = None


# -- calls that differ from their methods: what is absent is an error ---------------------------------


async def _read(store: Store, ask: KeyRequest) -> Any:
    value = await store.read(ask.key, _ABSENT)
    if value is _ABSENT:
        raise _absent(store, ask.key)
    return value


async def _entry(store: Store, ask: KeyRequest) -> Entry:
    entry = await store.entry(ask.key)
    if entry is None:
        raise _absent(store, ask.key)
    return entry


async def _field(store: Store, ask: FieldRequest) -> Any:
    value = await store.hget(ask.key, ask.field, _ABSENT)
    if value is _ABSENT:
        full = store.access.absolute(ask.key)
        raise NotFoundError("field", ask.field, f"the hash at key {full!r} does not hold it; read the whole hash")
    return value


async def _pop(store: Store, ask: KeyRequest) -> Any:
    member = await store.spop(ask.key)
    if member is None:
        full = store.access.absolute(ask.key)
        raise NotFoundError("member of the set", ask.key, f"nothing is left at key {full!r}; add members, or try later")
    return member


def _absent(store: Store, key: str) -> NotFoundError:
    place = f"it was looked for at {store.access.absolute(key)!r}"
    return NotFoundError("key", key, f"{place}; it may have expired, or be in another namespace or scope")


async def _keys(store: Store, ask: KeyList) -> list[str]:
    return sorted([key async for key in store.keys(ask.pattern)])


async def _messages(store: Store, ask: MessageSubscribe) -> AsyncIterator[Message]:
    async with store.subscription(*ask.channels) as messages:
        async for message in messages:
            yield message


# -- operations -------------------------------------------------------------------------------------

_store = Facet[Store]("store")
_ONE_KEY: dict[str, Any] = {"takes": KeyRequest, "gives": object}

_store.written(
    "value.entry", Store.entry, "GET /store/values/{key}", _entry, takes=KeyRequest, gives=Entry, conditional=True
)
_store.operation("value.write", Store.write, "PUT /store/values/{key}", answer="version", conditional=True)
_store.operation("key.delete", Store.delete, "DELETE /store/values/{key}", answer="deleted")
_store.written("value.read", Store.read, "GET /store/values/{key}/value", _read, answer="value", **_ONE_KEY)
_store.operation("value.read_many", Store.read_many, "GET /store/values", answer="values", without={"as_"})
_store.operation(
    "value.write_many",
    Store.write_many,
    "POST /store/values",
    answer="versions",
    names={"mapping": "values"},
    bulk=True,
)
_store.written("key.list", Store.keys, "GET /store/keys", _keys, takes=KeyList, gives=list[str], paging="names")
_store.operation("key.scan", Store.scan, "GET /store/scan")
_store.operation("key.exists", Store.exists, "GET /store/keys/{key}/exists", answer="exists")
_store.operation("key.ttl", Store.ttl, "GET /store/keys/{key}/ttl", answer="ttl")
_store.operation("key.expire", Store.expire, "PUT /store/keys/{key}/ttl", answer="changed")
_store.operation("key.persist", Store.persist, "DELETE /store/keys/{key}/ttl", answer="changed")
_store.operation("key.damaged", Store.damaged_keys, "GET /store/damaged", answer="damaged", bulk=True)
_store.operation("list.append", Store.append, "POST /store/lists/{key}", answer="length")
_store.operation("list.read", Store.read_list, "GET /store/lists/{key}")
_store.operation("list.length", Store.list_length, "GET /store/lists/{key}/length", answer="length")
_store.operation(
    "hash.set",
    Store.hset,
    "PATCH /store/hashes/{key}",
    answer="added",
    summary="Set fields in one step.",
    without={"field", "value"},
    names={"mapping": "values"},
    fields={"mapping": (dict[str, Any], ...)},
)
_store.operation("hash.get_all", Store.hgetall, "GET /store/hashes/{key}", answer="fields", formerly=["hash.all"])
_store.operation("hash.delete", Store.hdel, "DELETE /store/hashes/{key}/fields", answer="deleted")
_store.written(
    "hash.get",
    Store.hget,
    "GET /store/hashes/{key}/fields/{field}",
    _field,
    answer="value",
    takes=FieldRequest,
    gives=object,
)
_store.operation("hash.increment", Store.hincrby, "POST /store/hashes/{key}/fields/{field}/increment", answer="value")
_store.operation("set.add", Store.sadd, "POST /store/sets/{key}", answer="added")
_store.operation("set.members", Store.smembers, "GET /store/sets/{key}")
_store.operation(
    "set.delete",
    Store.srem,
    "POST /store/sets/{key}/delete",
    answer="deleted",
    formerly=["set.remove", "POST /store/sets/{key}/remove"],
)
_store.operation("set.contains", Store.sismember, "POST /store/sets/{key}/contains", needs="read", answer="contains")
_store.operation("set.size", Store.scard, "GET /store/sets/{key}/size", answer="size")
_store.written("set.pop", Store.spop, "POST /store/sets/{key}/pop", _pop, answer="value", **_ONE_KEY)
_store.operation("set.move", Store.smove, "POST /store/sets/{source}/move", answer="moved")
_store.operation("counter.increment", Store.incr, "POST /store/counters/{key}/increment", answer="value")

_messages_facet = Facet[Store]("messages")

_messages_facet.operation("message.publish", Store.publish, "POST /messages/{channel}", answer="receivers")
_messages_facet.feed("message.subscribe", Store.subscription, _messages, takes=MessageSubscribe, gives=Message)
_messages_facet.feed(
    "change.watch",
    Store.watch,
    lambda store, ask: store.watch(ask.pattern, since=ask.since),
    takes=ChangeWatch,
    gives=Change,
)
_messages_facet.operation("change.cursor", Store.cursor, "GET /changes/cursor", answer="cursor")

_namespace = Facet[Store]("namespace")

_namespace.operation("namespace.usage", Store.usage, "GET /namespace/usage", bulk=True)
_namespace.operation("namespace.clear", Store.clear, "DELETE /namespace", answer="deleted", bulk=True)
_namespace.operation("namespace.sweep", Store.sweep, "POST /namespace/sweep", answer="deleted", bulk=True)

FACETS = (_store, _messages_facet, _namespace)
