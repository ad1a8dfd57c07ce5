"""Items by namespace: one hash for each namespace, and a set of the namespaces that have items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from sharedmem.clock import from_microseconds
from sharedmem.data.keys import KeyAccess, restored_in_vain_error
from sharedmem.errors import InvalidError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_member, encode_set_member
from sharedmem.redis.keys import Target
from sharedmem.redis.scripts.integrations import ItemScripts, ItemWrite
from sharedmem.redis.service_keys import decoding
from sharedmem.store import SharedMemoryStore, StoreParts

Namespace = tuple[str, ...]
_HASH, _SET = "hash", "set"
_IN_PIECES = b'{"pieces":'
_MOST_TRIES = 20
_PAGE = 500
_MOST_NAMESPACES = 1024


class StoredItem:
    """One item as it is stored.

    Args:
        namespace: its namespace.
        key: its key.
        content: as the server has it: times, lifetime, bytes of the value, the value, its vectors.

    Raises:
        ValueError, TypeError: it is no item.
    """

    __slots__ = ("_created", "_updated", "_vectors", "ends_ms", "key", "namespace", "ttl_ms", "value")

    def __init__(self, namespace: Namespace, key: str, content: bytes) -> None:
        header, _, payload = content.partition(b"\n")
        self._created, self._updated, ends, ttl = header.split(b" ")
        self.namespace, self.key = namespace, key
        self.ends_ms, self.ttl_ms = int(ends), int(ttl)  # 0: it never expires
        size, _, rest = payload.partition(b"\n")
        end = int(size)
        self.value: dict[str, Any] = decode_member(rest[:end])
        if not isinstance(self.value, dict):
            raise TypeError("it holds no item")
        self._vectors = rest[end:]

    @property
    def vectors(self) -> dict[str, bytes]:
        """float32 by the path of the text."""
        return decode_member(self._vectors) if self._vectors else {}

    @property
    def created_at(self) -> datetime:
        """The time of its first change, in UTC."""
        return from_microseconds(int(self._created))

    @property
    def updated_at(self) -> datetime:
        """The time of its last change, in UTC."""
        return from_microseconds(int(self._updated))


class Items:
    """The items of a store.

    Args:
        store: whose scope has the items, and whose rights are checked.
        parts: its parts.
        part: the name of this kind of items in keys.
    """

    def __init__(self, store: SharedMemoryStore, parts: StoreParts, part: str) -> None:
        self._store = store
        self._context = parts.context
        self._keys = KeyAccess(parts.context, parts.scope)
        self._scripts = ItemScripts(parts.context.executor)
        self._most = parts.context.settings.blob_threshold_bytes
        self._prefix = f"{store.namespace}:{parts.scope.identity.scope}:langgraph:{part}"
        self._registry_key = f"{self._prefix}.namespaces"

    def check(self, namespace: Namespace) -> None:
        """Check that this actor may write items of a namespace.

        Raises:
            InvalidError: the namespace is too long, or one of its parts is empty.
            AccessDeniedError: this actor may not write there.
        """
        self._target(namespace, writes=True)

    async def put(self, namespace: Namespace, writes: Sequence[ItemWrite]) -> None:
        """Set and delete items of a namespace in one atomic step and one round trip."""
        target, registry = self._target(namespace, writes=True), self._registry(writes=True)
        call = self._scripts.item_put(
            target,
            registry.physical,
            self._keys.actor,
            member=_member(namespace),
            most=self._most,
            items=writes,
            keep=self._keys.durability(target, registry),
        )
        await self._keys.explained(target, _HASH, call)

    async def get(self, namespace: Namespace, keys: Sequence[str], *, renews: bool) -> list[StoredItem | None]:
        """Return items of a namespace, None for each that does not exist. One round trip.

        `renews` begins their lifetimes anew; for a single item that has one, it takes a second round trip.
        """
        target = self._target(namespace)
        if len(keys) == 1:
            field = _field(keys[0])
            content = await self._keys.ask(target, _HASH, "HGET", target.physical, field)
            if not isinstance(content, bytes):
                return [None]
            if not content.startswith(_IN_PIECES):
                with decoding(target.physical):
                    item = StoredItem(namespace, keys[0], content)
                if not item.ttl_ms:
                    return [item]
                if not renews:
                    return [None if self._is_over(item) else item]
        return await self._look(target, namespace, keys, renews=renews)

    async def _look(
        self, target: Target, namespace: Namespace, keys: Sequence[str], *, renews: bool
    ) -> list[StoredItem | None]:
        await self._keys.ensure_joined(target)
        for _ in range(_MOST_TRIES):
            call = self._scripts.item_look(target.physical, renews=renews, fields=[_field(key) for key in keys])
            reply = as_list(await self._keys.explained(target, _HASH, call))
            if reply:
                with decoding(target.physical):
                    return [
                        StoredItem(namespace, key, content) if isinstance(content, bytes) else None
                        for key, content in zip(keys, reply, strict=True)
                    ]
            if not await self._keys.restore(target):
                return [None] * len(keys)
        raise restored_in_vain_error(target)

    def _is_over(self, item: StoredItem) -> bool:
        return 0 < item.ends_ms <= self._context.clock.now().timestamp() * 1000

    async def scan(self, namespace: Namespace) -> AsyncIterator[StoredItem]:
        """Yield the items of a namespace, in no order; one round trip for each 500."""
        target = self._target(namespace)
        cursor: Any = b"0"
        while True:
            reply = await self._keys.ask(target, _HASH, "HSCAN", target.physical, cursor, "COUNT", _PAGE)
            cursor, page = as_list(reply)
            rows = as_list(page)
            for name, content in zip(rows[::2], rows[1::2], strict=True):
                if not isinstance(name, bytes) or not isinstance(content, bytes) or b"\r" in name:
                    continue
                key = name.decode()
                if content.startswith(_IN_PIECES):
                    (found,) = await self._look(target, namespace, [key], renews=False)
                    if found is not None:
                        yield found
                    continue
                with decoding(target.physical):
                    item = StoredItem(namespace, key, content)
                if not item.ends_ms or not self._is_over(item):
                    yield item
            if cursor in {b"0", 0}:
                return

    async def namespaces(self, prefix: Namespace = ()) -> list[Namespace]:
        """Return the namespaces that have items and begin with this prefix, in order. One round trip a thousand."""
        registry = self._registry()
        # Quoting leaves no wild cards.
        pattern = f'"{_joined(prefix)}*' if prefix else "*"
        found: set[Namespace] = set()
        cursor: Any = b"0"
        while True:
            reply = await self._keys.ask(
                registry, _SET, "SSCAN", registry.physical, cursor, "MATCH", pattern, "COUNT", 1000
            )
            cursor, page = as_list(reply)
            found |= {_parse_member(member) for member in as_list(page) if isinstance(member, bytes)}
            if cursor in {b"0", 0}:
                return sorted(each for each in found if each[: len(prefix)] == prefix)

    async def sweep(self, namespace: Namespace) -> int:
        """Delete the items of a namespace that are over; return how many. One round trip."""
        target, registry = self._target(namespace, writes=True), self._registry(writes=True)
        call = self._scripts.item_sweep(
            target,
            registry.physical,
            self._keys.actor,
            member=_member(namespace),
            keep=self._keys.durability(target, registry),
        )
        return await self._keys.explained(target, _HASH, call)

    async def clear(self, namespace: Namespace) -> None:
        """Delete all items of a namespace. Two round trips, and more for thousands."""
        keys = [item.key async for item in self.scan(namespace)]
        for at in range(0, len(keys), _PAGE):
            await self.put(namespace, [ItemWrite(_field(key), None, b"") for key in keys[at : at + _PAGE]])

    def _registry(self, *, writes: bool = False) -> Target:
        scope = self._keys.scope
        return scope.to_write(self._registry_key) if writes else scope.to_read(self._registry_key)

    def _target(self, namespace: Namespace, *, writes: bool = False) -> Target:
        key = f"{self._prefix}:{_joined(namespace)}"
        return self._keys.scope.to_write(key) if writes else self._keys.scope.to_read(key)


def item_write(key: str, value: object, vectors: dict[str, bytes], *, ttl_ms: int) -> ItemWrite:
    """Return what sets an item.

    Raises:
        InvalidError: the key or the value cannot be stored.
    """
    coded = encode_member(value)
    return ItemWrite(_field(key), ttl_ms, b"%d\n%b%b" % (len(coded), coded, encode_member(vectors) if vectors else b""))


def item_deletion(key: str) -> ItemWrite:
    """Return what deletes an item.

    Raises:
        InvalidError: no item can have such a key.
    """
    return ItemWrite(_field(key), None, b"")


def _field(key: str) -> str:
    if not key or "\r" in key:
        raise InvalidError("key", key, "give a non-empty text without carriage returns")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidError("key", key, "it has lone surrogates, which UTF-8 cannot hold") from error
    return key


@lru_cache(maxsize=_MOST_NAMESPACES)
def _joined(namespace: Namespace) -> str:
    if "" in namespace:
        raise InvalidError("namespace", namespace, "no part may be empty")
    # A quoted part has no slash.
    return "/".join(quote(part, safe="") for part in namespace) or "/"


def _member(namespace: Namespace) -> bytes:
    return encode_set_member(_joined(namespace))


def _parse_member(member: bytes) -> Namespace:
    joined = str(decode_member(member))
    return () if joined == "/" else tuple(unquote(part) for part in joined.split("/"))


def grouped(pairs: Iterable[tuple[Namespace, ItemWrite]]) -> dict[Namespace, list[ItemWrite]]:
    """Return writes by namespace, the last one of each key."""
    found: dict[Namespace, dict[str, ItemWrite]] = {}
    for namespace, write in pairs:
        found.setdefault(namespace, {})[write.field] = write
    return {namespace: list(writes.values()) for namespace, writes in found.items()}
