"""The graph backend in Redis: reads of records, pages, edges and search hits; writes by its parts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, TypeVar, cast, get_args

import orjson

from sharedmem.errors import InvalidError
from sharedmem.graph.backends.redis_index_check import IndexCheck
from sharedmem.graph.backends.redis_layout import (
    SEPARATOR,
    GraphKeys,
    decode_group,
    decode_row,
    make_record_id,
    parse_claim,
    parse_edge,
    search_scope,
    session_prefix,
    stamp_ms,
)
from sharedmem.graph.backends.redis_writer import CommitWriter, GroupDeletion
from sharedmem.graph.names import encode_group
from sharedmem.graph.protocol import GraphProgress
from sharedmem.graph.records import (
    BitemporalPoint,
    CommitReceipt,
    CommitRequest,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    IndexDiscrepancy,
    KindCode,
    LookupRequest,
    LookupResult,
    RecordHits,
    RecordSearch,
    ScoredRecord,
    StaleGroup,
    WalkResult,
    ascending_text,
    descending_text,
    to_stamp,
)
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import GraphStats
from sharedmem.redis.replies import Command, Reply, ServerError
from sharedmem.redis.scripts.knowledge import GraphLookKeys, GraphScripts, WalkOptions
from sharedmem.redis.service_keys import corruption_error, decoding
from sharedmem.search.protocol import Between, Condition, Every, IndexHit, IndexQuery, Tagged

_VERSION = re.compile(rb"\d{16}")
R = TypeVar("R", EpisodeRow, EntityRow, FactRow)
_OCCURRED_DIGITS = 18
_SECTIONS = {"entity": "n", "fact": "f"}
_EPISODE_CODES = {"episode": "e", "summary": "s", "statement": "m"}
ATTRIBUTES = "@"
"""As a type: every attribute."""
_SCAN_LIMIT = 1000
_SCAN_LIMIT_EACH = 20
_LARGEST_SCAN = 100_000
_PAGE = 1000
EdgeKinds = Literal["r", "a", "ra"]
_CODES_BY_TAG: dict[bytes, KindCode] = {letter.encode(): letter for letter in get_args(KindCode)}
_new_scored = partial(tuple.__new__, ScoredRecord)
"""Builds a named tuple in a third of the time: there are hundreds in a search."""
FREQUENT_TERM_LIMIT = 2000
"""Records that may contain a word that is still searched for if rarer ones have hits: each costs the server a
microsecond or two for every search, and a word in so many records says little."""


class RedisBackend:
    """A `GraphBackend` over the records, sorted sets and scripts of `lua/graph_*.lua`, for one namespace.

    With a durable tier, a read that finds nothing checks whether Redis was emptied, restores the records if it
    was, and reads again.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the groups.
        actor: author of the changes.
    """

    def __init__(self, context: KnowledgeContext, namespace: str, actor: bytes) -> None:
        self.client = context.client
        """The client of the server that stores the groups."""
        self.keys = GraphKeys(context.keyspace, namespace)
        """The keys of the groups on that server."""
        self.deletion = GroupDeletion(context, self.keys, actor)
        """The single steps of `delete`."""
        self._context = context
        self._scripts = GraphScripts(context.executor)
        self._writer = CommitWriter(context, self.keys, actor, look=self.look, deletion=self.deletion)
        self._index_check = IndexCheck(context, self.keys, actor)

    @property
    def name(self) -> Literal["redis"]:
        """`redis`."""
        return "redis"

    async def look(self, group: str, wanted: LookupRequest) -> LookupResult:
        """See `GraphBackend.look`. One round trip; two if the group is unknown."""
        seen = await self._look_once(group, wanted)
        if seen.version or not await self._context.record_tier.gather(self.keys.namespace, again=True):
            return seen
        return await self._look_once(group, wanted)

    async def commit(self, group: str, changes: CommitRequest, *, seen: int) -> CommitReceipt | StaleGroup:
        """See `GraphBackend.commit` and `CommitWriter.commit`."""
        return await self._writer.commit(group, changes, seen=seen)

    async def search(self, group: str, searches: Sequence[RecordSearch], *, seen: int = 0) -> list[RecordHits]:
        """See `GraphBackend.search`. One round trip, more as in `Index.search`; one more if nothing is found."""
        hits = await self._search_once(group, searches)
        if seen or any(map(any, hits)) or not await self._context.record_tier.gather(self.keys.namespace, again=True):
            return hits
        return await self._search_once(group, searches)

    async def walk(
        self, group: str, starts: Sequence[str], *, when: BitemporalPoint, depth: int, fan_out: int, limit: int
    ) -> WalkResult:
        """See `GraphBackend.walk`. One round trip; the server reads at most `limit` times `fan_out` edges."""
        around = _walk_arguments(
            when, "r", (), depth=depth, fan_out=fan_out, limit=limit, patience=_SCAN_LIMIT + _SCAN_LIMIT_EACH * fan_out
        )
        return await self._walked(group, around, starts)

    async def edges(
        self, group: str, entity: str, *, when: BitemporalPoint | None, limit: int, types: Sequence[str] = ()
    ) -> list[Edge]:
        """See `GraphBackend.edges`. One round trip; for all versions one for every 1,000 that are read."""
        if when is None:
            return await self._every_version(group, entity, limit, types)
        around = _walk_arguments(
            when, _edge_kinds(types), types, depth=1, fan_out=limit, limit=limit, patience=_LARGEST_SCAN
        )
        walked = await self._walked(group, around, [entity])
        return [edge for _, edge in sorted(walked.edges, key=lambda found: -found[1].version.start)]

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """See `GraphBackend.listed`. Merges are listed by the merged entity. One round trip; two if none exist."""
        look = partial(self._listed_once, group, kind, after, limit, session)
        return await self._context.record_tier.retry_after_restore(self.keys.namespace, look, lambda page: not page[0])

    async def lines_of(
        self, group: str, entities: Sequence[str], *, after: str = "", limit: int = 1000
    ) -> tuple[list[str], str]:
        """See `GraphBackend.lines_of`. One round trip."""
        began = after.partition(SEPARATOR)[0]
        left = [entity for entity in sorted(set(entities)) if entity >= began]
        commands = [
            _by_prefix(self.keys.part(group, "claims"), f"b{entity}{SEPARATOR}", f"b{after}", limit + 1)
            for entity in left
        ]
        replies = await self._asked(group, commands)
        members = [_text(member)[1:] for reply in replies for member in cast("list[bytes]", reply)]
        lines = dict.fromkeys(member.split(SEPARATOR)[1] for member in members[:limit])
        return list(lines), members[limit - 1] if len(members) > limit else ""

    async def names_of(self, group: str, entity: str, *, after: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """See `GraphBackend.names_of`. One round trip."""
        found = await self._section(group, "told", f"a{entity}{SEPARATOR}", after, limit)
        return found[:limit], found[limit - 1] if len(found) > limit else ""

    async def merges(self, group: str) -> list[bytes]:
        """See `GraphBackend.merges`. One round trip."""
        (reply,) = await self._asked(group, [("HVALS", self.keys.part(group, "merges"))])
        return sorted(cast("list[bytes]", reply), key=_merged_at)

    async def stats(self, group: str) -> GraphStats:
        """See `GraphBackend.stats`. One round trip; two if the group is unknown."""
        look = partial(self._stats_once, group)
        return await self._context.record_tier.retry_after_restore(
            self.keys.namespace, look, lambda stats: not stats.entities + stats.episodes
        )

    async def groups(self) -> list[str]:
        """See `GraphBackend.groups`. One round trip; two if none exist."""
        return await self._context.record_tier.retry_after_restore(
            self.keys.namespace, self._groups_once, lambda groups: not groups
        )

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`."""
        await self._context.record_tier.gather(self.keys.namespace, again=True)
        return await self.deletion.delete(group, progress=progress)

    def strays(self, group: str) -> AsyncIterator[list[IndexDiscrepancy]]:
        """See `GraphBackend.strays`. Up to five round trips for every 500 entries."""
        return self._index_check.strays(group)

    async def mend(self, group: str, strays: Sequence[IndexDiscrepancy]) -> None:
        """See `GraphBackend.mend`. One round trip for every 50 records."""
        await self._index_check.mend(group, strays)

    async def close(self) -> None:
        """Do nothing: the connection is the hub's."""

    async def _look_once(self, group: str, wanted: LookupRequest) -> LookupResult:
        asked = (("e", wanted.episodes), ("n", wanted.entities), ("f", wanted.facts))
        named = [make_record_id(group, kind, id_) for kind, ids in asked for id_ in ids]
        keys = GraphLookKeys(self.keys.groups, *self.keys.parts(group, "changed", "names", "claims", "told"))
        try:
            found = await self._scripts.graph_look(
                keys,
                records=[self.keys.record(name) for name in named],
                names_count=len(wanted.names),
                lines_count=len(wanted.lines),
                # The durable tier takes whole records, so only with it the vectors must be read too.
                has_vector=int(self._context.record_tier.is_durable),
                asked=[*wanted.names, *wanted.lines, *wanted.entities],
            )
        except ServerError as error:
            raise self.keys.public_error(error, group, self.client.address) from error
        return _lookup_result(
            wanted, found, keys, zip(map(self.keys.record, named), cast("list[Reply]", found[4]), strict=False)
        )

    async def _search_once(self, group: str, searches: Sequence[RecordSearch]) -> list[RecordHits]:
        queries = [_query(group, search) for search in searches]
        start = len(encode_group(group)) + len("/e/")
        found = await self._context.graphs.search_each(self.keys.namespace, queries)
        return [
            RecordHits(*(self._candidates(hits, start) for hits in (each.text, each.vector)))
            if search.with_letters
            else RecordHits(_candidates_by_kind(each.text, start), _candidates_by_kind(each.vector, start))
            for search, each in zip(searches, found, strict=True)
        ]

    def _candidates(self, found: Iterable[IndexHit], start: int) -> list[ScoredRecord]:
        candidates = []
        for hit in found:
            letter = _CODES_BY_TAG.get(hit.facts)
            if letter is None:
                raise corruption_error(self.keys.record(hit.id), f"its field 'facts' is {hit.facts[:40]!r}")
            candidates.append(ScoredRecord(hit.id[start:], letter, hit.score))
        return candidates

    async def _listed_once(
        self, group: str, kind: str, after: str, limit: int, session: str | None
    ) -> tuple[list[str], str]:
        if kind == "merge":
            return await self._listed_merges(group, after, limit)
        found = await self._section(group, "told", _section(kind, session), after, limit)
        ids = [one[_OCCURRED_DIGITS:] for one in found] if kind in _EPISODE_CODES else found
        return ids[:limit], found[limit - 1] if len(found) > limit else ""

    async def _listed_merges(self, group: str, after: str, limit: int) -> tuple[list[str], str]:
        (reply,) = await self._asked(group, [("HKEYS", self.keys.part(group, "merges"))])
        with decoding(self.keys.part(group, "merges")):
            ids = sorted(id_ for id_ in map(_text, cast("list[bytes]", reply)) if id_ > after)
        return ids[:limit], ids[limit - 1] if len(ids) > limit else ""

    async def _section(self, group: str, part: str, head: str, after: str, limit: int) -> list[str]:
        """Return the rest of each member after the prefix `head`, one more than the limit."""
        command = _by_prefix(self.keys.part(group, part), head, head + after if after else "", limit + 1)
        (reply,) = await self._asked(group, [command])
        with decoding(self.keys.part(group, part)):
            return [_text(member)[len(head) :] for member in cast("list[bytes]", reply)]

    async def _stats_once(self, group: str) -> GraphStats:
        register = self.keys.part(group, "told")
        counts: list[Command] = [
            ("ZLEXCOUNT", register, f"[{at}", _end_of_prefix(at)) for at in ("ee", "es", "n", "o", "f")
        ]
        now = to_stamp("now", self._context.clock.now())
        past: Command = ("ZLEXCOUNT", register, "[p", f"(p{ascending_text(now + 1)}")
        replies = await self._asked(group, [*counts, past, ("HLEN", self.keys.part(group, "merges"))])
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

    async def _groups_once(self) -> list[str]:
        (reply,) = await self._asked("", [("HKEYS", self.keys.groups)])
        with decoding(self.keys.groups):
            return sorted(decode_group(_text(name)) for name in cast("list[bytes]", reply) if name)

    async def _walked(self, group: str, around: WalkOptions, starts: Sequence[str]) -> WalkResult:
        try:
            truncated, *replies = await self._scripts.graph_walk(self.keys.part(group, "edges"), around, starts=starts)
        except ServerError as error:
            raise self.keys.public_error(error, group, self.client.address) from error
        steps = zip(cast("list[int]", replies[::2]), cast("list[bytes]", replies[1::2]), strict=True)
        with decoding(self.keys.part(group, "edges")):
            edges = [(distance, parse_edge(member)) for distance, member in steps]
        edges.sort(key=lambda step: step[0])
        return WalkResult(edges, truncated=truncated == 1)

    async def _every_version(self, group: str, entity: str, limit: int, types: Sequence[str]) -> list[Edge]:
        found: list[Edge] = []
        for kind in _edge_kinds(types):
            low = f"[{entity}{SEPARATOR}{kind}"
            while low and len(found) < limit:
                page, low = await self._page(group, low, f"({entity}{SEPARATOR}{chr(ord(kind) + 1)}", limit)
                found += [edge for edge in page if not types or _is_of(edge, types)]
        return sorted(found[:limit], key=lambda edge: -edge.version.start)

    async def _page(self, group: str, low: str, high: str, limit: int) -> tuple[list[Edge], str]:
        """Return (edges between two places, where the next page begins; empty at the end)."""
        count = min(limit, _PAGE)
        command = ("ZRANGEBYLEX", self.keys.part(group, "edges"), low, high, "LIMIT", 0, count)
        try:
            members = cast("list[bytes]", await self.client.call_aside(*command))
        except ServerError as error:
            raise self.keys.public_error(error, group, self.client.address) from error
        with decoding(command[1]):
            return list(map(parse_edge, members)), f"({members[-1].decode()}" if len(members) == count else ""

    async def _asked(self, group: str, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        try:
            return await self.client.read_many(commands)
        except ServerError as error:
            raise self.keys.public_error(error, group, self.client.address) from error


def _lookup_result(
    wanted: LookupRequest, found: Sequence[Reply], keys: GraphLookKeys, records: Iterator[tuple[bytes, Reply]]
) -> LookupResult:
    version, owners, lines, into = (cast("list[Reply]", part) for part in found[:4])
    with decoding(keys.changed):
        seen = LookupResult(int(_text(cast("Reply", version))))
    with decoding(keys.names):
        for name, (own, end) in zip(wanted.names, _pairs(owners), strict=True):
            if own:
                seen.owners[name], seen.names[name] = own, end
        seen.into = dict(_pairs(into))
    with decoding(keys.claims):
        for line, members in zip(wanted.lines, lines, strict=True):
            seen.claims[line] = tuple(parse_claim(cast("bytes", member)) for member in cast("list[Reply]", members))
    replies = iter(records)
    seen.episodes = _rows("e", wanted.episodes, replies, EpisodeRow, with_claims=wanted.with_claims)
    seen.entities = _rows("n", wanted.entities, replies, EntityRow)
    seen.facts = _rows("f", wanted.facts, replies, FactRow)
    return seen


def _rows(
    kind: str,
    ids: Sequence[str],
    replies: Iterator[tuple[bytes, Reply]],
    type_: type[R],
    *,
    with_claims: bool = True,
) -> dict[str, R]:
    found: dict[str, R] = {}
    for id_, (key, reply) in zip(ids, replies, strict=False):
        with decoding(key):
            body, version, vector = cast("list[bytes]", reply)
            if body:
                row = decode_row(kind, body, version=_version(version), vector=vector, with_claims=with_claims)
                assert isinstance(row, type_)
                found[id_] = row
    return found


def _version(spelled: bytes) -> int:
    """Return the number of a version; one in another format could never equal the version that a step expects."""
    if not _VERSION.fullmatch(spelled):
        raise ValueError(f"version {spelled!r}")
    return int(spelled)


def _pairs(reply: Sequence[Reply]) -> Iterator[tuple[str, str]]:
    return ((_text(one), _text(other)) for one, other in zip(reply[::2], reply[1::2], strict=True))


def _text(reply: Reply) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()


def _by_prefix(key: bytes, head: str, after: str, limit: int) -> Command:
    """Return the command for the members with a prefix, after one of them if it is named."""
    low = f"({after}" if after.startswith(head) else f"[{head}"
    return ("ZRANGEBYLEX", key, low, _end_of_prefix(head), "LIMIT", 0, limit)


def _end_of_prefix(head: str) -> str:
    """Return the upper bound of the members with a prefix."""
    return f"({head[:-1]}{chr(ord(head[-1]) + 1)}"


def _section(kind: str, session: str | None) -> str:
    """Return the prefix of the register's members of a kind.

    Raises:
        InvalidError: the kind is invalid.
    """
    if kind in _SECTIONS:
        return _SECTIONS[kind]
    if kind not in _EPISODE_CODES:
        raise InvalidError("kind", kind, f"give one of {', '.join((*_EPISODE_CODES, *_SECTIONS, 'merge'))}")
    return f"e{_EPISODE_CODES[kind]}" if session is None else session_prefix(session, _EPISODE_CODES[kind])


def _merged_at(merge: bytes) -> datetime:
    return datetime.fromisoformat(orjson.loads(merge)["at"])


def _walk_arguments(
    when: BitemporalPoint,
    kinds: EdgeKinds,
    types: Sequence[str],
    *,
    depth: int,
    fan_out: int,
    limit: int,
    patience: int,
) -> WalkOptions:
    spelled = f"{SEPARATOR}{SEPARATOR.join(types)}{SEPARATOR}" if types else ""
    times = (
        ascending_text(when.world),
        descending_text(when.world),
        ascending_text(when.known),
        int(when.is_past_knowledge),
    )
    return WalkOptions(*times, kinds, spelled, depth, fan_out, limit, patience)


def _edge_kinds(types: Sequence[str]) -> EdgeKinds:
    """Return the kinds of edges of these types."""
    attributes = sum(type_.startswith(ATTRIBUTES) for type_ in types)
    if types and attributes == len(types):
        return "a"
    return "r" if types and not attributes else "ra"


def _is_of(edge: Edge, types: Sequence[str]) -> bool:
    return edge.type in types or (ATTRIBUTES in types and edge.type.startswith(ATTRIBUTES))


def _candidates_by_kind(found: Iterable[IndexHit], start: int) -> list[ScoredRecord]:
    """Return hits with the letter of their kind, which is in their ids: `<group>/<kind>/<id>`."""
    return [_new_scored((id_[start:], id_[start - 2], score)) for id_, score, _ in found]


def _query(group: str, search: RecordSearch) -> IndexQuery:
    conditions: list[Condition] = [Tagged("shelf", tuple(search_scope(group, letter) for letter in search.letters))]
    if search.session is not None:
        conditions.append(Tagged("session", (search.session,)))
    if search.since is not None or search.until is not None:
        low, high = (None if stamp is None else stamp_ms(stamp) for stamp in (search.since, search.until))
        conditions.append(Between("at", low, high))
    return IndexQuery(
        search.terms,
        search.vector,
        Every(tuple(conditions)),
        search.candidates,
        FREQUENT_TERM_LIMIT,
        with_facts=search.with_letters,
    )
