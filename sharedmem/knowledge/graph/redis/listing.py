"""Listing what a group holds, page by page, and counting it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

import orjson

from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.redis.ground import RedisGround
from sharedmem.knowledge.graph.redis.rows import BETWEEN, session_head, unspelled_group
from sharedmem.knowledge.graph.times import sortable, stamp_of
from sharedmem.models import GraphStats
from sharedmem.wire.replies import Command, Reply, ServerError
from sharedmem.wire.service_keys import decoding

_OCCURRED_DIGITS = 18
_SECTIONS = {"entity": "n", "fact": "f"}
_LETTERS = {"episode": "e", "summary": "s", "statement": "m"}


class Listing(RedisGround):
    """Lists ids, lines, names and merges."""

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """See `GraphBackend.listed`. Merges are listed by the entity that was merged. One round trip."""
        if kind == "merge":
            return await self._listed_merges(group, after, limit)
        found = await self._section(group, "told", _section(kind, session), after, limit)
        ids = [one[_OCCURRED_DIGITS:] for one in found] if kind in _LETTERS else found
        return ids[:limit], found[limit - 1] if len(found) > limit else ""

    async def lines_of(
        self, group: str, said: Sequence[str], *, after: str = "", limit: int = 1000
    ) -> tuple[list[str], str]:
        """See `GraphBackend.lines_of`. One round trip."""
        began = after.partition(BETWEEN)[0]
        left = [entity for entity in sorted(set(said)) if entity >= began]
        commands = [
            _by_prefix(self._part(group, "claims"), f"b{entity}{BETWEEN}", f"b{after}", limit + 1) for entity in left
        ]
        replies = await self._asked(group, commands)
        members = [_text(member)[1:] for reply in replies for member in cast("list[bytes]", reply)]
        lines = dict.fromkeys(member.split(BETWEEN)[1] for member in members[:limit])
        return list(lines), members[limit - 1] if len(members) > limit else ""

    async def names_of(self, group: str, entity: str, *, after: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """See `GraphBackend.names_of`. One round trip."""
        found = await self._section(group, "told", f"a{entity}{BETWEEN}", after, limit)
        return found[:limit], found[limit - 1] if len(found) > limit else ""

    async def merges(self, group: str) -> list[bytes]:
        """See `GraphBackend.merges`. One round trip."""
        (reply,) = await self._asked(group, [("HVALS", self._part(group, "merges"))])
        return sorted(cast("list[bytes]", reply), key=_merged_at)

    async def stats(self, group: str) -> GraphStats:
        """See `GraphBackend.stats`. One round trip."""
        told = self._part(group, "told")
        counts: list[Command] = [("ZLEXCOUNT", told, f"[{at}", _behind(at)) for at in ("ee", "es", "n", "o", "f")]
        now = stamp_of("now", self._minds.clock.now())
        past: Command = ("ZLEXCOUNT", told, "[p", f"(p{sortable(now + 1)}")
        replies = await self._asked(group, [*counts, past, ("HLEN", self._part(group, "merges"))])
        episodes, summaries, entities, merged, facts, past_facts, merges = cast("list[int]", replies)
        return GraphStats(
            group_id=group,
            episodes=episodes,
            summaries=summaries,
            entities=entities - merged,
            facts=facts - past_facts,
            past_facts=past_facts,
            merges=merges,
        )

    async def groups(self) -> list[str]:
        """See `GraphBackend.groups`. One round trip."""
        (reply,) = await self._asked("", [("HKEYS", self._groups)])
        with decoding(self._groups):
            return sorted(unspelled_group(_text(name)) for name in cast("list[bytes]", reply) if name)

    async def _listed_merges(self, group: str, after: str, limit: int) -> tuple[list[str], str]:
        (reply,) = await self._asked(group, [("HKEYS", self._part(group, "merges"))])
        with decoding(self._part(group, "merges")):
            ids = sorted(id_ for id_ in map(_text, cast("list[bytes]", reply)) if id_ > after)
        return ids[:limit], ids[limit - 1] if len(ids) > limit else ""

    async def _section(self, group: str, part: str, head: str, after: str, limit: int) -> list[str]:
        """What is behind the head of the members that begin with it, one more than the limit."""
        command = _by_prefix(self._part(group, part), head, head + after if after else "", limit + 1)
        (reply,) = await self._asked(group, [command])
        with decoding(self._part(group, part)):
            return [_text(member)[len(head) :] for member in cast("list[bytes]", reply)]

    async def _asked(self, group: str, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        try:
            return await self._line.read_many(commands)
        except ServerError as error:
            raise self._explained(error, group) from error


def _by_prefix(key: bytes, head: str, after: str, limit: int) -> Command:
    """Members that begin with a head, after one of them if it is named."""
    low = f"({after}" if after.startswith(head) else f"[{head}"
    return ("ZRANGEBYLEX", key, low, _behind(head), "LIMIT", 0, limit)


def _behind(head: str) -> str:
    """Where the members end that begin with a head."""
    return f"({head[:-1]}{chr(ord(head[-1]) + 1)}"


def _section(kind: str, session: str | None) -> str:
    """What the members of the register begin with that are of a kind.

    Raises:
        InvalidError: there is no such kind.
    """
    if kind in _SECTIONS:
        return _SECTIONS[kind]
    if kind not in _LETTERS:
        raise InvalidError("kind", kind, f"there are {', '.join((*_LETTERS, *_SECTIONS, 'merge'))}")
    return f"e{_LETTERS[kind]}" if session is None else session_head(session, _LETTERS[kind])


def _merged_at(merge: bytes) -> datetime:
    return datetime.fromisoformat(orjson.loads(merge)["at"])


def _text(reply: Reply) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()
