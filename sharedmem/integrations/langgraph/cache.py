"""LangGraph's cache of nodes on a store: what one process computed, all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT
from langgraph.checkpoint.serde.base import SerializerProtocol

from sharedmem.integrations.calls import reach
from sharedmem.integrations.langgraph.items import Items, grouped, item_write
from sharedmem.redis.durability import check_ttl_ms
from sharedmem.store import SharedMemoryStore
from sharedmem.sync import SharedMemoryStore as BlockingStore

_CODING, _BODY = "coding", "body"


class SharedMemCache(BaseCache[ValueT]):
    """Keeps the results of cached nodes in a store.

    Args:
        store: an async store (made where its event loop runs), or one of `sharedmem.sync`.
        serde: how values are coded; None: LangGraph's own way.

    Raises:
        UsageError: an async store is passed outside of its event loop.
    """

    def __init__(self, store: SharedMemoryStore | BlockingStore, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        parts, behind, self._calls = reach(store)
        self._items = Items(behind, parts, "cache")

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the values that are there, by namespace and key. One round trip a namespace.

        Raises:
            CorruptionError: another client has damaged an entry.
            AccessDeniedError, UnavailableError: as `store.read`.
        """
        return await self._calls.awaited(self._get(keys))

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Set values, each with its lifetime in seconds (None: for ever). One round trip a namespace.

        Raises:
            InvalidError: a lifetime, a namespace or a key is invalid. Nothing was written.
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        await self._calls.awaited(self._set(pairs))

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the values of some namespaces, or all.

        Raises:
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        await self._calls.awaited(self._clear(namespaces))

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """As `aget`, from a thread without an event loop."""
        return self._calls.blocking(self._get(keys))

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """As `aset`, from a thread without an event loop."""
        self._calls.blocking(self._set(pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """As `aclear`, from a thread without an event loop."""
        self._calls.blocking(self._clear(namespaces))

    async def _get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        by_namespace: dict[Namespace, list[str]] = {}
        for namespace, key in keys:
            by_namespace.setdefault(namespace, []).append(key)
        found: dict[FullKey, ValueT] = {}
        for namespace, wanted in by_namespace.items():
            for item in await self._items.get(namespace, wanted, renews=False):
                if item is not None:
                    coded = (item.value[_CODING], item.value[_BODY])
                    found[namespace, item.key] = self.serde.loads_typed(coded)
        return found

    async def _set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        changes: list[Any] = []
        for (namespace, key), (value, ttl) in pairs.items():
            coding, body = self.serde.dumps_typed(value)
            ttl_ms = 0 if ttl is None else check_ttl_ms(ttl)
            changes.append((namespace, item_write(key, {_CODING: coding, _BODY: body}, {}, ttl_ms=ttl_ms)))
        for namespace, writes in grouped(changes).items():
            await self._items.put(namespace, writes)

    async def _clear(self, namespaces: Sequence[Namespace] | None) -> None:
        for namespace in await self._items.namespaces() if namespaces is None else namespaces:
            await self._items.clear(namespace)
