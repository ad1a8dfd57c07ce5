"""Threads: statistics of a conversation by participant, and its summary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from sharedmem.memory.base import MEMORY
from sharedmem.memory.ranking import RankingFeatures, decode_features
from sharedmem.memory.reader import PAGE, SUMMARY, MemoryReader
from sharedmem.memory.search_types import check_limit
from sharedmem.memory.serialization import PLACEHOLDER
from sharedmem.memory.writer import MemoryWriter
from sharedmem.models import MemoryItem, Participant, ThreadStats
from sharedmem.providers.protocol import ChatMessage
from sharedmem.redis.service_keys import decoding
from sharedmem.search.filters import encode_tag

MOST_TURNS = 1000
_NARROWED = {"user_id": "user", "agent_id": "agent", "thread_id": "thread", "run_id": "run"}
_SUMMARISE = (
    "Sum up this conversation for somebody who goes on with it: what was said, decided and promised, by whom,"
    " and what is still open. Keep names, numbers and dates. Answer with the summary alone."
)


class _ThreadTurn(NamedTuple):
    id: str
    facts: RankingFeatures


@dataclass
class _ThreadCounter:
    """What the turns of a thread add up to."""

    turns: int = 0
    tokens: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    by_author: dict[str, int] = field(default_factory=dict)

    def add(self, facts: RankingFeatures) -> None:
        """Count one turn."""
        self.turns += 1
        self.tokens += facts.tokens
        self.first_ms = facts.at_ms if self.first_ms is None else min(self.first_ms, facts.at_ms)
        self.last_ms = facts.at_ms if self.last_ms is None else max(self.last_ms, facts.at_ms)
        if facts.author is not None:
            self.by_author[facts.author] = self.by_author.get(facts.author, 0) + 1

    def told(self, thread: str) -> ThreadStats:
        """The tally as people read it."""
        most_first = sorted(self.by_author.items(), key=lambda pair: (-pair[1], pair[0]))
        return ThreadStats(
            thread_id=thread,
            turn_count=self.turns,
            total_tokens=self.tokens,
            first_turn_at=_to_datetime(self.first_ms),
            last_turn_at=_to_datetime(self.last_ms),
            participants=tuple(Participant(name=name, turns=turns) for name, turns in most_first),
        )


class MemoryThreads(MemoryReader, MemoryWriter):
    """Looks at threads as a whole."""

    async def thread_stats(self, thread_id: str | None = None) -> ThreadStats:
        """What a thread holds in this scope; its summaries do not count. Two round trips five hundred turns.

        Args:
            thread_id: `main` when not given, or the thread that this scope is narrowed to.

        Returns:
            `total_tokens` counts words; `participants` are who speaks, who speaks most first.

        Raises:
            InvalidError: the thread is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        thread = self._thread(thread_id)
        return await self._retry_after_restore(lambda: self._tallied(thread), lambda stats: not stats.turn_count)

    async def _tallied(self, thread: str) -> ThreadStats:
        tally = _ThreadCounter()
        async for page in self._members(thread):
            for turn in await self._present(page):
                tally.add(turn.facts)
        return tally.told(thread)

    async def summarize_thread(self, thread_id: str | None = None, *, max_turns: int = 50) -> str:
        """What a thread was about, of late; empty for a thread without turns.

        The summary is remembered in the thread, with category `summary`, for as long as these turns are the newest
        and say the same: whoever asks again gets it without asking the model. One summary a thread and scope is kept.

        Args:
            thread_id: `main` when not given, or the thread that this scope is narrowed to.
            max_turns: how many of the newest turns it tells of, 1 to 1,000.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError: this actor may not write here, since the summary is remembered.
            UnavailableError, LimitedError, ConfigError: the server or the language model cannot answer.
        """
        await self._enter("write")
        turns = await self._newest_turns(self._thread(thread_id), check_limit(max_turns, most=MOST_TURNS))
        if not turns:
            return ""
        told = "\n".join(_format_turn(turn) for turn in turns)
        place = self._summary_id(turns[0].thread_id)
        kept = await self.get(place)
        state = sha256(told.encode(errors="replace")).hexdigest()
        if kept is not None and kept.metadata.get("of") == state:
            return kept.memory
        asked = [ChatMessage(role="system", content=_SUMMARISE), ChatMessage(role="user", content=told)]
        summary = await self._context.model.write(asked)
        await self._remember_summary(place, summary, turns, state, known=kept is not None)
        return summary

    async def _newest_turns(self, thread: str, limit: int) -> list[MemoryItem]:
        """Oldest first."""
        newest: list[MemoryItem] = []
        async for page in self._turns(thread):
            newest += [item for item in page if item.category != SUMMARY]
            if len(newest) >= limit:
                break
        return newest[:limit][::-1]

    async def _remember_summary(
        self, place: str, summary: str, turns: Sequence[MemoryItem], state: str, *, known: bool
    ) -> None:
        last = turns[-1]
        metadata = {"of": state, "turns": len(turns), "upto": last.turn_index}
        if known:
            changes = {"memory": summary, "content": summary, "metadata": metadata, "timestamp": last.timestamp}
            # It says again what the turns say, whoever has asked for it first.
            await self._updated(place, changes)
            return
        item = MemoryItem(
            id=place,
            thread_id=last.thread_id,
            memory=summary,
            category=SUMMARY,
            turn_index=last.turn_index,
            timestamp=last.timestamp,
            metadata=metadata,
        )
        await self.add(item, dedup=False)

    def _summary_id(self, thread: str) -> str:
        scope = (thread, *(getattr(self._within, name) for name in ("user_id", "agent_id", "run_id")))
        return f"summary-{sha256(repr(scope).encode(errors='replace')).hexdigest()[:24]}"

    async def _members(self, thread: str) -> AsyncIterator[list[_ThreadTurn]]:
        """Everything in a thread, in its order, page by page; what has expired may be among it."""
        at, key = 0, self._turns_key(thread)
        while True:
            members = await self._members_of("ZRANGE", key, at, at + PAGE - 1)
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

    async def _present(self, turns: Sequence[_ThreadTurn]) -> list[_ThreadTurn]:
        """Those that are still there, in this scope, and no summaries. One round trip."""
        if not turns:
            return []
        within = {
            _NARROWED[name]: getattr(self._within, name) for name in self._within.model_fields_set & _NARROWED.keys()
        }
        record = self._context.keyspace.record
        replies = await self._context.client.read_each(
            [("HMGET", record(MEMORY, self._namespace, turn.id), "version", "category", *within) for turn in turns]
        )
        wanted = [None if value is None else encode_tag(str(value)).encode() for value in within.values()]
        present = []
        for turn, reply in zip(turns, replies, strict=True):
            if not isinstance(reply, list):
                continue
            version, category, *fields = reply
            here = all(want is None or want == held for want, held in zip(wanted, fields, strict=True))
            if version is not None and category != SUMMARY.encode() and here:
                present.append(turn)
        return present


def _format_turn(item: MemoryItem) -> str:
    text = item.content or item.memory
    author = item.author or item.source_actor
    return f"{author}: {text}" if author else text


def _to_datetime(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
