"""Threads: statistics of a conversation by participant, and its summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from sharedmem.memory.access import MEMORY, MemoryAccess
from sharedmem.memory.group_commit import MemoryAdder
from sharedmem.memory.reader import PAGE, SUMMARY, MemoryReader
from sharedmem.memory.serialization import PLACEHOLDER, RankingFeatures, decode_features, decode_item_if_readable
from sharedmem.memory.validation import TOKEN_METRICS
from sharedmem.memory.writer import MemoryWriter
from sharedmem.models import MemoryItem, Participant, ThreadStats
from sharedmem.providers.protocol import ChatMessage, LanguageModel
from sharedmem.redis.service_keys import decoding
from sharedmem.search.protocol import encode_tag

_NARROWED = {"user_id": "user", "agent_id": "agent", "thread_id": "thread", "run_id": "run"}
_SUMMARISE = (
    "Sum up this conversation for somebody who goes on with it: what was said, decided and promised, by whom,"
    " and what is still open. Keep names, numbers and dates. Answer with the summary alone."
)


class _ThreadTurn(NamedTuple):
    id: str
    facts: RankingFeatures


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

    async def _members(self, thread: str) -> AsyncIterator[list[_ThreadTurn]]:
        """Yield everything in a thread, in its order, page by page; expired memories may be included."""
        at, key = 0, self._reader.turns_key(thread)
        while True:
            members = await self._reader.sorted_set("ZRANGE", key, at, at + PAGE - 1)
            if not members:
                return
            at += len(members)
            split = [member.partition(b" ") for member in members]
            with decoding(key):
                page = [
                    _ThreadTurn(id_.decode(), decode_features(facts))
                    for id_, space, facts in split
                    if not (id_ + space).startswith(PLACEHOLDER)
                ]
            yield page

    async def _present(self, turns: Sequence[_ThreadTurn]) -> list[_PresentTurn]:
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
                ("HMGET", record(MEMORY, self._namespace, turn.id), "version", "category", "body", *within)
                for turn in turns
            ]
        )
        wanted = [None if value is None else encode_tag(str(value)).encode() for value in within.values()]
        present = []
        for turn, reply in zip(turns, replies, strict=True):
            if not isinstance(reply, list):
                continue
            version, category, body, *fields = reply
            here = all(want is None or want == held for want, held in zip(wanted, fields, strict=True))
            is_turn = here and category != SUMMARY.encode()
            if not is_turn or not isinstance(body, bytes) or not isinstance(version, bytes):
                continue
            item = decode_item_if_readable(turn.id, self._namespace, body, version, turn.facts.position)
            if item is not None:
                present.append(_PresentTurn(turn.facts, item))
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
