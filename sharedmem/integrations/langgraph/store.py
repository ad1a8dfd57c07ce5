"""LangGraph's long-term store on a store: items by namespace, found by name, by value and by meaning."""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from sharedmem.errors import ConfigError, InvalidError
from sharedmem.integrations.calls import reach
from sharedmem.integrations.langgraph.items import Items, StoredItem, grouped, item_deletion, item_write
from sharedmem.providers.protocol import Purpose
from sharedmem.redis.durability import check_ttl_ms
from sharedmem.store import SharedMemoryStore, StoreParts
from sharedmem.sync import SharedMemoryStore as BlockingStore

_WHOLE = "$"


Embed = Callable[[Sequence[str], Purpose], Awaitable[Any]]
"""Returns a row of numbers for each text."""


class SharedMemStore(BaseStore):
    """Keeps LangGraph's long-term memory in a store.

    The items of a namespace are one hash, `<namespace>:<scope>:langgraph:items:<parts>`; a set knows which namespaces
    have items. Both change in one step. Rights, durable kinds, archives and the feed of keys hold for them.

    Searches compare every item below the prefix that the filter leaves: vectors are stored beside the items, so
    no search module is needed.

    Args:
        store: an async store (made where its event loop runs), or one of `sharedmem.sync`.
        index: `fields` that are found by meaning (default: the whole value), and `embed`, as LangGraph takes it;
            without `embed` the embedder of the hub. None: items are not found by meaning.
        ttl: LangGraph's settings for lifetimes, in minutes.

    Raises:
        ConfigError: there is no embedder.
        UsageError: an async store is passed outside of its event loop.
    """

    supports_ttl = True

    def __init__(
        self,
        store: SharedMemoryStore | BlockingStore,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        parts, behind, self._calls = reach(store)
        self._items = Items(behind, parts, "items")
        self.ttl_config = ttl
        self.index_config = index
        """As it was given; for programs that read it from any store of LangGraph."""
        embed = (index or {}).get("embed")
        self.embeddings = None if embed is None else ensure_embeddings(embed)
        """What embeds; None: nothing, or the embedder of the hub."""
        self._embed_texts = None if index is None else _embed_of(self.embeddings, parts)
        self._paths = _tokenized((index or {}).get("fields") or [_WHOLE])

    # -- the contract

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """As `abatch`, from a thread without an event loop."""
        return self._calls.blocking(self.abatch(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do some operations; the answers are in their order. Reads come first, then the last change of each item.

        One round trip a namespace that is read or changed by its name; a search takes one for each 500 items below it.

        Raises:
            InvalidError: an operation is invalid. Nothing was written.
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        return await self._calls.awaited(self._do(list(ops)))

    async def _do(self, ops: list[Op]) -> list[Result]:
        if len(ops) == 1 and isinstance(ops[0], GetOp):
            # What graphs do most often.
            return [await self._get(ops[0])]
        results: list[Result] = [None] * len(ops)
        writes = await self._checked_writes(ops)

        async def read(at: int, op: SearchOp | ListNamespacesOp) -> None:
            results[at] = await (self._search(op) if isinstance(op, SearchOp) else self._list(op))

        gets: dict[tuple[tuple[str, ...], bool], list[tuple[int, str]]] = {}
        reads = []
        for at, op in enumerate(ops):
            if isinstance(op, GetOp):
                gets.setdefault((tuple(op.namespace), bool(op.refresh_ttl)), []).append((at, str(op.key)))
            elif isinstance(op, SearchOp | ListNamespacesOp):
                reads.append(read(at, op))

        async def get(namespace: tuple[str, ...], wanted: list[tuple[int, str]], *, renews: bool) -> None:
            found = await self._items.get(namespace, [key for _, key in wanted], renews=renews)
            for (at, _), item in zip(wanted, found, strict=True):
                results[at] = None if item is None else _item(item)

        reads += [get(namespace, wanted, renews=renews) for (namespace, renews), wanted in gets.items()]
        if len(reads) == 1:
            await reads[0]
        else:
            await asyncio.gather(*reads)
        for namespace, changes in writes.items():
            await self._items.put(namespace, changes)
        return results

    async def _get(self, op: GetOp) -> Item | None:
        validate_op_namespace(op)
        (found,) = await self._items.get(tuple(op.namespace), [str(op.key)], renews=bool(op.refresh_ttl))
        return None if found is None else _item(found)

    async def asweep_ttl(self) -> int:
        """Delete all items that are over, and return how many; no call returns them before. One round trip a namespace.

        Raises:
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        return await self._calls.awaited(self._sweep())

    def sweep_ttl(self) -> int:
        """As `asweep_ttl`, from a thread without an event loop."""
        return self._calls.blocking(self._sweep())

    async def _sweep(self) -> int:
        return sum([await self._items.sweep(namespace) for namespace in await self._items.namespaces()])

    # -- changes

    async def _checked_writes(self, ops: list[Op]) -> dict[tuple[str, ...], list[Any]]:
        """Check all operations, embed what is found by meaning, and return the changes by namespace."""
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                puts[tuple(op.namespace), str(op.key)] = op
            elif isinstance(op, SearchOp):
                _check_page(op.limit, op.offset)
                check_filter(op.filter)
            elif isinstance(op, ListNamespacesOp):
                _check_page(op.limit, op.offset)
                check_matches(op.match_conditions or ())
        texts = [text for op in puts.values() for text in self._texts(op).values()]
        vectors = iter(await self._embed(texts, "document") if texts else ())
        changes = []
        for (namespace, key), op in puts.items():
            self._items.check(namespace)
            if op.value is None:
                changes.append((namespace, item_deletion(key)))
                continue
            if not isinstance(op.value, dict):
                raise InvalidError("value", op.value, "give a dict")
            ttl_ms = 0 if op.ttl is None else check_ttl_ms(op.ttl * 60)
            own = {path: next(vectors) for path in self._texts(op)}
            changes.append((namespace, item_write(key, op.value, own, ttl_ms=ttl_ms)))
        return grouped(changes)

    def _texts(self, op: PutOp) -> dict[str, str]:
        """Return the texts of a new value that are found by meaning, by their path."""
        if self._embed_texts is None or op.value is None or op.index is False:
            return {}
        paths = self._paths if op.index is None else _tokenized(op.index)
        found: dict[str, str] = {}
        for path, tokens in paths.items():
            texts = get_text_at_path(op.value, tokens)
            found |= {path if len(texts) == 1 else f"{path}.{at}": text for at, text in enumerate(texts) if text}
        return found

    async def _embed(self, texts: Sequence[str], purpose: Purpose) -> list[bytes]:
        assert self._embed_texts is not None
        unique = list(dict.fromkeys(texts))
        rows = np.asarray(await self._embed_texts(unique, purpose), dtype=np.float32)
        by_text = {text: row.tobytes() for text, row in zip(unique, rows, strict=True)}
        return [by_text[text] for text in texts]

    # -- searches

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        query = None
        if op.query and self._embed_texts is not None:
            (query,) = await self._embed([op.query], "query")
        # Without a ranking, the first that fit will do.
        enough = math.inf if query else op.offset + op.limit
        found: list[StoredItem] = []
        for namespace in await self._items.namespaces(tuple(op.namespace_prefix)):
            async for item in self._items.scan(namespace):
                if fits(item.value, op.filter):
                    found.append(item)
                    if len(found) >= enough:
                        break
            if len(found) >= enough:
                break
        scored = _ranked(found, query) if query else [(None, item) for item in found]
        page = scored[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            await self._renew([item for _, item in page])
        return [_search_item(item, score) for score, item in page]

    async def _renew(self, items: list[StoredItem]) -> None:
        by_namespace: dict[tuple[str, ...], list[str]] = {}
        for item in items:
            if item.ttl_ms:
                by_namespace.setdefault(item.namespace, []).append(item.key)
        for namespace, keys in by_namespace.items():
            await self._items.get(namespace, keys, renews=True)

    async def _list(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        prefixes = [tuple(each.path) for each in conditions if each.match_type == "prefix" and "*" not in each.path]
        found = await self._items.namespaces(prefixes[0] if prefixes else ())
        fitting = [each for each in found if all(matches(each, condition) for condition in conditions)]
        if op.max_depth is not None:
            fitting = sorted({each[: op.max_depth] for each in fitting})
        return fitting[op.offset : op.offset + op.limit]


def _embed_of(embeddings: Embeddings | None, parts: StoreParts) -> Embed:
    if embeddings is not None:

        async def embed_by_langchain(texts: Sequence[str], purpose: Purpose) -> Any:
            if purpose == "query":
                return [await embeddings.aembed_query(text) for text in texts]
            return await embeddings.aembed_documents(list(texts))

        return embed_by_langchain

    embedder = parts.knowledge().embedder_of(parts.scope.identity.namespace)
    if embedder is None:
        raise ConfigError("embedder", "none", "give index={'embed': ...}, or set an embedder for the hub")

    async def embed_by_hub(texts: Sequence[str], purpose: Purpose) -> Any:
        return (await embedder.embed(texts, purpose=purpose)).vectors

    return embed_by_hub


def _tokenized(paths: Iterable[str]) -> dict[str, Any]:
    return {path: path if path == _WHOLE else tokenize_path(path) for path in paths}


def _ranked(items: list[StoredItem], query: bytes) -> list[tuple[float | None, StoredItem]]:
    """Return items by the cosine of their nearest text; those without a vector of this length come last."""
    rows = [
        (at, vector) for at, item in enumerate(items) for vector in item.vectors.values() if len(vector) == len(query)
    ]
    if not rows:
        return [(None, item) for item in items]
    matrix = np.frombuffer(b"".join(vector for _, vector in rows), dtype=np.float32).reshape(len(rows), -1)
    wanted = np.frombuffer(query, dtype=np.float32)
    lengths = np.linalg.norm(matrix, axis=1) * float(np.linalg.norm(wanted))
    cosines = np.divide(matrix @ wanted, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    best: dict[int, float] = {}
    for (at, _), cosine in zip(rows, cosines.tolist(), strict=True):
        best[at] = max(best.get(at, -1.0), cosine)
    scored = sorted(best.items(), key=lambda pair: -pair[1])
    rest = [(None, item) for at, item in enumerate(items) if at not in best]
    return [*[(score, items[at]) for at, score in scored], *rest]


def _check_page(limit: int, offset: int) -> None:
    if limit < 0 or offset < 0:
        raise InvalidError("limit", (limit, offset), "give a limit and an offset of 0 or more")


def _item(item: StoredItem) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _search_item(item: StoredItem, score: float | None) -> SearchItem:
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)


# -- conditions -----------------------------------------------------------------------------------


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_MATCHES = frozenset({"prefix", "suffix"})


def check_filter(conditions: Mapping[str, Any] | None) -> None:
    """Check the conditions of a search.

    Raises:
        InvalidError: there is no such operator.
    """
    for name, condition in (conditions or {}).items():
        if isinstance(condition, dict):
            for each in condition:
                if each.startswith("$") and each not in {"$eq", "$ne", *_ORDERS}:
                    raise InvalidError("filter", {name: condition}, f"choose $eq, $ne, {', '.join(_ORDERS)}")
            check_filter(condition if not any(each.startswith("$") for each in condition) else None)


def fits(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    """Return whether a value meets all conditions: by field a value, a nested condition, or operators."""
    return all(_meets(value.get(name), condition) for name, condition in (conditions or {}).items())


def _meets(value: Any, condition: Any) -> bool:
    if isinstance(condition, dict):
        if any(name.startswith("$") for name in condition):
            return all(_compares(value, name, bound) for name, bound in condition.items())
        return isinstance(value, dict) and fits(value, condition)
    if isinstance(condition, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(condition)
        return alike and all(map(_meets, value, condition))
    return bool(value == condition)


def _compares(value: Any, name: str, bound: Any) -> bool:
    if name == "$eq":
        return bool(value == bound)
    if name == "$ne":
        return bool(value != bound)
    try:
        return _ORDERS[name](float(value), float(bound))
    except (TypeError, ValueError):
        # Texts are in order, too; what cannot be compared does not fit.
        return isinstance(value, str) and isinstance(bound, str) and _ORDERS[name](value, bound)


def check_matches(conditions: Iterable[MatchCondition]) -> None:
    """Check the conditions of a listing.

    Raises:
        InvalidError: there is no such kind of match.
    """
    for condition in conditions:
        if condition.match_type not in _MATCHES:
            raise InvalidError("match_type", condition.match_type, "choose prefix or suffix")


def matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return whether a namespace begins or ends with a path, in which `*` is any part."""
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    parts = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", part) for part, wanted in zip(parts, path, strict=True))
