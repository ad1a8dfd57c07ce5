"""Statistics of memories: counts by kind, sizes, and how often each is used; and of threads.

A thread is a conversation: its statistics are by participant, and a summary is made of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.memory.access import MEMORY, MemoryAccess
from sharedmem.memory.group_commit import MemoryAdder
from sharedmem.memory.reader import PAGE, SUMMARY, MemoryReader, UsageCounter
from sharedmem.memory.serialization import (
    RankingFeatures,
    ThreadTurn,
    decode_features,
    decode_item_if_readable,
    parse_turns,
)
from sharedmem.memory.validation import TOKEN_METRICS
from sharedmem.memory.writer import MemoryWriter
from sharedmem.models import MemoryFilter, MemoryItem, MemoryStats, MemoryUse, Participant, ThreadStats
from sharedmem.providers.protocol import ChatMessage, LanguageModel
from sharedmem.redis.replies import Reply
from sharedmem.redis.service_keys import decoding
from sharedmem.search.protocol import Every
from sharedmem.text.analysis import encode_tag

SAMPLE = 2000
"""Memories that are read one by one for statistics; if there are more, this many of the newest are the sample."""
_SIZED = ("terms", "vector", "facts")


class MemoryStatistics:
    """Counts the memories of one scope, and how often they are used.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader) -> None:
        self._access = access
        self._reader = reader
        self._context = access.context
        self._namespace = access.namespace

    async def uses_of(self, ids: Sequence[str]) -> list[MemoryUse]:
        """Return how often some memories of this scope were returned, in their order."""
        await self._counter.flush()
        found: list[MemoryUse] = []
        for first in range(0, len(ids), PAGE):
            found += await self._page_of_uses(ids[first : first + PAGE])
        return found

    async def most_used(self, limit: int) -> list[MemoryUse]:
        """Return the memories of this scope that were returned most, most used first."""
        await self._counter.flush()
        found: list[MemoryUse] = []
        at, used = 0, self._counter.used
        while len(found) < limit:
            ids = await self._reader.sorted_set("ZRANGE", used, at, at + PAGE - 1, "REV")
            with decoding(used):
                named = [id_.decode() for id_ in ids]
            found += await self._page_of_uses(named)
            if len(ids) < PAGE:
                break
            at += PAGE
        return found[:limit]

    @property
    def _counter(self) -> UsageCounter:
        return UsageCounter.of(self._context, self._namespace)

    async def _page_of_uses(self, ids: Sequence[str]) -> list[MemoryUse]:
        """Return the uses of the memories that exist in this scope. One round trip; none without ids."""
        if not ids:
            return []
        counter = self._counter
        replies = await self._context.client.read_each(
            [*self._reader.commands(ids), ("ZMSCORE", counter.used, *ids), ("ZMSCORE", counter.touched, *ids)]
        )
        times, last = (_parse_scores(reply, len(ids)) for reply in replies[-2:])
        there = {fetched.item.id for fetched in self._reader.parse(ids, replies[:-2])}
        return [
            MemoryUse(id=id_, times=often or 0, last=None if at is None else from_microseconds(at * 1000))
            for id_, often, at in zip(ids, times, last, strict=True)
            if id_ in there
        ]

    async def stats(self, filters: MemoryFilter) -> MemoryStats:
        """Count the memories of this scope that match a filter. Two round trips, and some for each sample."""
        index, matching = self._context.memories, self._access.index_filter(filters)
        await index.ensure(self._namespace)
        by_type, by_category = await asyncio.gather(
            index.counts(self._namespace, matching, "type"), index.counts(self._namespace, matching, "category")
        )
        count = sum(by_type.values())
        looked_at, size, merged = await self._sampled(matching)
        share = count / looked_at if looked_at else 0.0
        return MemoryStats(
            count=count,
            bytes=round(size * share),
            by_type=dict(sorted(by_type.items())),
            by_tenant={self._namespace: count} if count else {},
            by_category=dict(sorted(by_category.items())),
            duplicates_merged=round(merged * share),
        )

    async def _sampled(self, matching: Every) -> tuple[int, int, int]:
        """Return (memories in the sample, their bytes, how often others were merged into them)."""
        looked_at = size = merged = 0
        while looked_at < SAMPLE:
            page = await self._context.memories.matching(
                self._namespace, matching, newest="at", offset=looked_at, limit=PAGE
            )
            for own_size, own_merged in await self._sizes(page.ids):
                size, merged = size + own_size, merged + own_merged
            looked_at += len(page.ids)
            if len(page.ids) < PAGE:
                break
        return looked_at, size, merged

    async def _sizes(self, ids: list[str]) -> list[tuple[int, int]]:
        """Return for each memory that still exists its bytes, and how often another was merged into it."""
        if not ids:
            return []
        keys = [self._context.keyspace.record(MEMORY, self._namespace, id_) for id_ in ids]
        looks = [("HGET", key, "body") for key in keys]
        lengths = [("HSTRLEN", key, field) for key in keys for field in _SIZED]
        replies = await self._context.client.read_each([*looks, *lengths])
        bodies, counted = replies[: len(keys)], replies[len(keys) :]
        sizes = []
        for number, body in enumerate(bodies):
            if isinstance(body, bytes):
                own = counted[number * len(_SIZED) : (number + 1) * len(_SIZED)]
                size = len(body) + sum(length for length in own if isinstance(length, int))
                sizes.append((size, _merge_count(body)))
        return sizes


def _parse_scores(reply: Reply, count: int) -> list[int | None]:
    """Return scores as whole numbers; None where another client has written something else."""
    scores = reply if isinstance(reply, list) else [None] * count
    return [int(float(score)) if isinstance(score, bytes) else None for score in scores]


def _merge_count(body: bytes) -> int:
    """Return how often another was merged into a memory; 0 for a body that cannot be read."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return 0
    occurrences = fields.get("occurrences", 1) if isinstance(fields, dict) else 1
    return occurrences - 1 if isinstance(occurrences, int) else 0


# -- threads -------------------------------------------------------------------------------------


_NARROWED = {"user_id": "user", "agent_id": "agent", "thread_id": "thread", "run_id": "run"}
_SUMMARISE = (
    "Sum up this conversation for somebody who goes on with it: what was said, decided and promised, by whom,"
    " and what is still open. Keep names, numbers and dates. Answer with the summary alone."
)


class _PresentTurn(NamedTuple):
    facts: RankingFeatures
    item: MemoryItem


@dataclass
class _ThreadCounter:
    """Sums over the turns of a thread."""

    turns: int = 0
    words: int = 0
    tokens: float | None = None
    """Tokens by the metrics of the turns; None if no turn has them."""
    first_ms: int | None = None
    last_ms: int | None = None
    by_name: Counter[str] = field(default_factory=Counter)

    def add(self, turn: _PresentTurn) -> None:
        """Count one turn."""
        facts, metrics = turn.facts, turn.item.metrics
        self.turns += 1
        self.words += facts.tokens
        counted = [metrics[name] for name in TOKEN_METRICS if name in metrics]
        if counted:
            self.tokens = (self.tokens or 0) + sum(counted)
        self.first_ms = facts.at_ms if self.first_ms is None else min(self.first_ms, facts.at_ms)
        self.last_ms = facts.at_ms if self.last_ms is None else max(self.last_ms, facts.at_ms)
        self.by_name.update(_participants(turn.item))

    def result(self, thread: str) -> ThreadStats:
        """Return the statistics."""
        most_first = sorted(self.by_name.items(), key=lambda pair: (-pair[1], pair[0]))
        return ThreadStats(
            thread_id=thread,
            turn_count=self.turns,
            total_tokens=self.words if self.tokens is None else round(self.tokens),
            tokens_from="words" if self.tokens is None else "metrics",
            first_turn_at=_to_datetime(self.first_ms),
            last_turn_at=_to_datetime(self.last_ms),
            participants=tuple(Participant(name=name, turns=turns) for name, turns in most_first),
        )


class MemoryThreads:
    """Statistics and summaries of the threads of one scope.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
        adder, writer: store the summaries.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader, adder: MemoryAdder, writer: MemoryWriter) -> None:
        self._access = access
        self._reader = reader
        self._adder = adder
        self._writer = writer
        self._context = access.context
        self._namespace = access.namespace

    async def stats(self, thread: str) -> ThreadStats:
        """Count the turns of a thread by participant. Two round trips for every 500 turns."""
        counter = _ThreadCounter()
        async for page in self._members(thread):
            for turn in await self._present(page):
                counter.add(turn)
        return counter.result(thread)

    async def summarize(self, thread: str, max_turns: int, model: LanguageModel | None = None) -> str:
        """Return a summary of the newest turns, the stored one if they are the same; empty without turns."""
        turns = await self._access.retry_after_restore(lambda: self._newest_turns(thread, max_turns))
        if not turns:
            return ""
        text = "\n".join(_format_turn(turn) for turn in turns)
        id_ = self._summary_id(turns[0].thread_id)
        stored = await self._reader.get(id_)
        # Another model than that of the hub writes a summary of its own.
        by = "" if model is None else f"\0{model.name}"
        state = sha256(f"{text}{by}".encode(errors="replace")).hexdigest()
        if stored is not None and stored.metadata.get("of") == state:
            return stored.memory
        prompt = [ChatMessage(role="system", content=_SUMMARISE), ChatMessage(role="user", content=text)]
        summary = await (model or self._context.model).write(prompt)
        await self._store_summary(id_, summary, turns, state, exists=stored is not None)
        return summary

    async def _newest_turns(self, thread: str, limit: int) -> list[MemoryItem]:
        """Return the newest turns, oldest first."""
        newest: list[MemoryItem] = []
        async for page in self._reader.turns(thread):
            newest += [item for item in page if item.category != SUMMARY]
            if len(newest) >= limit:
                break
        return newest[:limit][::-1]

    async def _store_summary(
        self, id_: str, summary: str, turns: Sequence[MemoryItem], state: str, *, exists: bool
    ) -> None:
        last = turns[-1]
        metadata = {"of": state, "turns": len(turns), "upto": last.turn_index}
        if exists:
            changes = {"memory": summary, "content": summary, "metadata": metadata, "timestamp": last.timestamp}
            # A summary repeats the turns, so its first author does not matter.
            await self._writer.update(id_, changes)
            return
        item = MemoryItem(
            id=id_,
            thread_id=last.thread_id,
            memory=summary,
            category=SUMMARY,
            turn_index=last.turn_index,
            timestamp=last.timestamp,
            metadata=metadata,
        )
        await self._adder.add(item, {}, dedup=False)

    def _summary_id(self, thread: str) -> str:
        scope = (thread, *(getattr(self._access.within, name) for name in ("user_id", "agent_id", "run_id")))
        return f"summary-{sha256(repr(scope).encode(errors='replace')).hexdigest()[:24]}"

    async def _members(self, thread: str) -> AsyncIterator[list[ThreadTurn]]:
        """Yield everything in a thread, in its order, page by page; expired memories may be included."""
        at, key = 0, self._reader.turns_key(thread)
        while True:
            members = await self._reader.sorted_set("ZRANGE", key, at, at + PAGE - 1, "WITHSCORES")
            if not members:
                return
            at += PAGE
            with decoding(key):
                page = parse_turns(members)
            yield page

    async def _present(self, turns: Sequence[ThreadTurn]) -> list[_PresentTurn]:
        """Return the turns that still exist in this scope and are not summaries. One round trip."""
        if not turns:
            return []
        within = {
            _NARROWED[name]: getattr(self._access.within, name)
            for name in self._access.within.model_fields_set & _NARROWED.keys()
        }
        record = self._context.keyspace.record
        replies = await self._context.client.read_each(
            [
                ("HMGET", record(MEMORY, self._namespace, turn.id), "version", "category", "body", "facts", *within)
                for turn in turns
            ]
        )
        wanted = [None if value is None else encode_tag(str(value)).encode() for value in within.values()]
        present = []
        for turn, reply in zip(turns, replies, strict=True):
            if not isinstance(reply, list):
                continue
            version, category, body, facts, *fields = reply
            here = all(want is None or want == held for want, held in zip(wanted, fields, strict=True))
            is_turn = here and category != SUMMARY.encode()
            if not is_turn or not isinstance(body, bytes) or not isinstance(version, bytes):
                continue
            item = decode_item_if_readable(turn.id, self._namespace, body, version, turn.turn)
            if item is not None:
                present.append(_PresentTurn(decode_features(facts if isinstance(facts, bytes) else b""), item))
        return present


def _participants(item: MemoryItem) -> set[str]:
    """Return who takes part in a turn: its speakers, its entity, and the actor that recorded it."""
    names = {message.name or message.entity_id or message.role for message in item.messages}
    # A speaker with a name is counted by the name, not by the id too.
    speaking = {message.entity_id for message in item.messages}
    return names | {name for name in (item.entity_id, item.source_actor) if name and name not in speaking}


def _format_turn(item: MemoryItem) -> str:
    text = item.content or item.memory
    author = item.author or item.source_actor
    return f"{author}: {text}" if author else text


def _to_datetime(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
