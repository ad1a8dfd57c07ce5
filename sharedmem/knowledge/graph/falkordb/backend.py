"""Knowledge graphs in the FalkorDB module: a graph of its own for each group of a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from sharedmem.clock import new_id
from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.falkordb import queries
from sharedmem.knowledge.graph.falkordb.asking import Asker
from sharedmem.knowledge.graph.falkordb.beginning import Beginning
from sharedmem.knowledge.graph.falkordb.rows import PLACES, claim_of, entity_of, episode_of, fact_of, within
from sharedmem.knowledge.graph.falkordb.searching import asked_of, hits_of
from sharedmem.knowledge.graph.falkordb.walking import Walk, edges_of
from sharedmem.knowledge.graph.falkordb.writing import parameters_of
from sharedmem.knowledge.graph.protocol import GraphProgress
from sharedmem.knowledge.graph.records import (
    Behind,
    Changes,
    Committed,
    Edge,
    Hits,
    Search,
    Seen,
    Stray,
    Walked,
    Wanted,
    When,
)
from sharedmem.knowledge.graph.times import stamp_of
from sharedmem.knowledge.minds import Minds
from sharedmem.models import GraphStats
from sharedmem.wire.graphing import Graphing

_REMEMBERED_MS = 120_000
"""For how long, beyond the time of retries, a commit is known that was sent twice."""
_ATTRIBUTES = "@"
_PLACE_DIGITS = len(str(PLACES))


class FalkorBackend:
    """The graphs of one namespace, kept by the FalkorDB module of the hub's server.

    A group is a graph at `$graph.falkor:<group>` in the slot of its namespace: what is asked of it cannot reach another
    group, its indexes hold it alone, and deleting it is one command. A graph takes about 0.6 MB when there is little in
    it, and its first commit some 60 round trips, which make its indexes (`beginning`).

    By session or time, vectors are searched exactly, among the records that are left; else by HNSW. Words are ranked by
    BM25 among those that the module ranks first, with their average length. A hub with 50,000 facts is looked through
    at each step (about 50 ms), in a thread of the module and not in that of the server.

    What the Redis backend can do and this one cannot: the durable tier does not get its records (the server's own
    persistence keeps them), and the change stream of the namespace does not tell of its commits.

    The module keeps the last queries of a graph, with their parameters, in a stream `telemetry{<key>}`, which goes with
    the graph; `GRAPH.CONFIG SET CMD_INFO no` ends that, and the embedded server does not begin it.

    Args:
        minds: what the hub lends.
        namespace: whose graphs.

    Raises:
        UnsupportedError: the client is not installed.
    """

    name = "falkordb"

    def __init__(self, minds: Minds, namespace: str) -> None:
        self._clock = minds.clock
        self._asker = Asker(minds.line)
        self._dimension = minds.embedder.dimension if minds.embedder is not None else 0
        self._beginning = Beginning(
            self._asker,
            minds.line,
            Graphing(minds.sender),
            keyspace=minds.keyspace,
            namespace=namespace,
            clock=minds.clock,
            dimension=self._dimension,
        )
        self._patience_ms = minds.settings.search_timeout_ms
        self._keep_ms = round(minds.settings.retry_for_s * 1000) + _REMEMBERED_MS

    async def look(self, group: str, wanted: Wanted) -> Seen:
        """See `GraphBackend.look`. One round trip."""
        parameters: dict[str, Any] = {name: list(getattr(wanted, name)) for name in _WANTED}
        seen = Seen(0, claims=dict.fromkeys(wanted.lines, ()))
        for kind, id_, number, row, more in await self._read(group, queries.LOOK, parameters):
            _TAKE[kind](seen, id_, number, row, more)
        return seen

    async def commit(self, group: str, changes: Changes, *, seen: int) -> Committed | Behind:
        """See `GraphBackend.commit`. One round trip; two when it is behind, some 60 when the group is new."""
        key, token = self._key(group), new_id()
        now = stamp_of("now", self._clock.now())
        parameters = {**parameters_of(changes, now=now), "token": token, "keep": self._keep_ms}
        if not seen:
            seen = await self._beginning.begin(group)
        written = await self._asker.write(key, queries.COMMIT, {**parameters, "seen": seen})
        return _committed(*written[0]) if written else await self._verdict(group, token, parameters["turns"])

    async def search(self, group: str, searches: Sequence[Search]) -> list[Hits]:
        """See `GraphBackend.search`. One round trip for all; none where nothing is looked for."""
        asked = asked_of(searches, self._dimension)
        rows = await self._read(group, asked.query, asked.parameters, patient=False) if asked is not None else []
        return hits_of(searches, rows)

    async def walk(
        self, group: str, starts: Sequence[str], *, when: When, depth: int, fan_out: int, limit: int
    ) -> Walked:
        """See `GraphBackend.walk`. One round trip a step. Attributes are not walked along: they lead nowhere."""
        walk = Walk(starts, when, fan_out=fan_out, limit=limit)
        query = queries.WALK_THEN if when.is_past_knowledge else queries.WALK_NOW
        for _ in range(depth):
            if not walk.level:
                break
            parameters = {"at": walk.level, "most": fan_out + 1, **_times(when)}
            walk.step(await self._read(group, query, parameters, patient=False))
        return walk.walked

    async def edges(
        self, group: str, entity: str, *, when: When | None, limit: int, types: Sequence[str] = ()
    ) -> list[Edge]:
        """See `GraphBackend.edges`. One round trip."""
        query = queries.EDGES_EVER
        if when is not None:
            query = queries.EDGES_THEN if when.is_past_knowledge else queries.EDGES_NOW
        parameters = {"entity": entity, "types": list(types), "attributes": _ATTRIBUTES in types, "most": limit}
        rows = await self._read(group, query, {**parameters, **_times(when)}, patient=False)
        return edges_of(rows, when)[:limit]

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """See `GraphBackend.listed`. One round trip; of facts at least two."""
        if kind == "fact":
            return await self._listed_facts(group, after, limit)
        if kind not in queries.LISTED:
            raise InvalidError("kind", kind, f"give one of {', '.join((*queries.LISTED, 'fact'))}")
        parameters = {"within": None if session is None else within(session)}
        return await self._page(group, queries.LISTED[kind], parameters, after, limit)

    async def lines_of(
        self, group: str, said: Sequence[str], *, after: str = "", limit: int = 1000
    ) -> tuple[list[str], str]:
        """See `GraphBackend.lines_of`. One round trip."""
        return await self._page(group, queries.LINES_OF, {"said": list(said)}, after, limit)

    async def names_of(self, group: str, entity: str, *, after: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """See `GraphBackend.names_of`. One round trip."""
        return await self._page(group, queries.NAMES_OF, {"entity": entity}, after, limit)

    async def merges(self, group: str) -> list[bytes]:
        """See `GraphBackend.merges`. One round trip."""
        return [row.encode() for (row,) in await self._read(group, queries.MERGES, {})]

    async def stats(self, group: str) -> GraphStats:
        """See `GraphBackend.stats`. One round trip."""
        count = await self._counted(group)
        return GraphStats(
            group_id=group,
            episodes=count["episodes"],
            summaries=count["summaries"],
            entities=count["entities"] - count["merged"],
            facts=count["facts"] - count["lapsed"],
            past_facts=count["past"] + count["lapsed"],
            merges=count["merges"],
        )

    async def strays(self, group: str) -> AsyncIterator[list[Stray]]:  # noqa: ARG002  # the protocol's
        """Nothing: what lies beside a record here are relations of the graph, which one query writes with it."""
        for page in list[list[Stray]]():
            yield page

    async def mend(self, group: str, strays: Sequence[Stray]) -> None:
        """Nothing, as there are no strays."""

    async def groups(self) -> list[str]:
        """See `GraphBackend.groups`. One round trip, that names all graphs of the server."""
        head = self._key("")
        return sorted(key.removeprefix(head).decode() for key in await self._asker.keys(head) if key.startswith(head))

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`. Two round trips. Who has looked before and commits after it is `Behind`."""
        counts = await self._counted(group)
        count = sum(counts[what] for what in ("episodes", "summaries", "statements", "entities", "facts", "past"))
        await self._asker.delete(self._key(group))
        if progress is not None:
            progress(count, count)
        return count

    async def close(self) -> None:
        """Nothing to give back: the connections are the hub's."""

    def _key(self, group: str) -> bytes:
        return self._beginning.key(group)

    async def _read(
        self, group: str, query: str, parameters: dict[str, Any], *, patient: bool = True
    ) -> list[list[Any]]:
        timeout_ms = None if patient else self._patience_ms
        return await self._asker.read(self._key(group), query, parameters, timeout_ms=timeout_ms)

    async def _counted(self, group: str) -> Counter[str]:
        now = stamp_of("now", self._clock.now())
        rows = await self._read(group, queries.STATS, {"now": now})
        return Counter({what: number or 0 for row in rows for what, number in zip(queries.COUNTS, row, strict=True)})

    async def _listed_facts(self, group: str, after: str, limit: int) -> tuple[list[str], str]:
        """A page of facts by their places, of which no more are looked at than about as many as are wanted."""
        counts = await self._read(group, queries.COUNTED_FACTS, {})
        count = sum(number or 0 for row in counts for number in row)
        low, last = _place_of(after)
        width = PLACES * (limit + 1) // max(1, count)
        found: list[list[Any]] = []
        while count and low < PLACES and len(found) <= limit:
            # One more: the first may be the last of the page before.
            parameters = {"low": low, "high": low + width, "most": limit + 2}
            rows = await self._read(group, queries.LISTED_FACTS, parameters)
            found += [row for row in sorted(rows) if row > [low, last]]
            low, last, width = low + width, "", 2 * width
        place, id_ = found[limit - 1] if len(found) > limit else (0, "")
        return [id_ for _, id_ in found[:limit]], f"{place:0{_PLACE_DIGITS}d}{id_}" if id_ else ""

    async def _verdict(self, group: str, token: str, turns: list[Any]) -> Committed | Behind:
        """Why nothing was written: a repeated commit was written before, or something has changed."""
        rows = await self._read(group, queries.VERDICT, {"token": token, "turns": turns})
        born, version, counted = rows[0] if rows else (None, None, [])
        if version is not None:
            return _committed(version, counted)
        if born is None:
            await self._beginning.clear(group)
        return Behind()

    async def _page(
        self, group: str, query: str, parameters: dict[str, Any], after: str, limit: int
    ) -> tuple[list[str], str]:
        """A page of (id, place), and the place after which the next one begins."""
        rows = await self._read(group, query, {**parameters, "after": after, "most": limit + 1})
        return [id_ for id_, _ in rows[:limit]], rows[limit - 1][1] if len(rows) > limit else ""


def _committed(version: int, turns: list[list[Any]]) -> Committed:
    return Committed(version, tuple((session, count) for session, count in turns))


def _place_of(after: str) -> tuple[int, str]:
    """The place of the last fact of a page, and its id."""
    if not after:
        return 0, ""
    place = after[:_PLACE_DIGITS]
    if not place.isdecimal():
        raise InvalidError("after", after, "give what the page before told")
    return int(place), after[_PLACE_DIGITS:]


def _times(when: When | None) -> dict[str, int]:
    return {} if when is None else {"world": when.world, "known": when.known}


def _take_name(seen: Seen, id_: str, _number: int, row: str, more: list[str]) -> None:
    seen.owners[id_], seen.names[id_] = row, more[0]


def _take_line(seen: Seen, id_: str, _number: int, _row: str, more: list[str]) -> None:
    claims = map(claim_of, more)
    seen.claims[id_] = tuple(sorted(claims, key=lambda claim: (claim.episode, claim.number)))


def _take_version(seen: Seen, _id: str, number: int, _row: str, _more: list[str]) -> None:
    seen.version = number


def _take_into(seen: Seen, id_: str, _number: int, row: str, _more: list[str]) -> None:
    seen.into[id_] = row


def _take_episode(seen: Seen, id_: str, number: int, row: str, more: list[str]) -> None:
    seen.episodes[id_] = episode_of(id_, row, number, more)


def _take_entity(seen: Seen, id_: str, number: int, row: str, _more: list[str]) -> None:
    seen.entities[id_] = entity_of(id_, row, number)


def _take_fact(seen: Seen, id_: str, number: int, row: str, _more: list[str]) -> None:
    seen.facts[id_] = fact_of(id_, row, number)


_WANTED = ("names", "lines", "episodes", "entities", "facts")
_TAKE: dict[str, Callable[[Seen, str, int, str, list[str]], None]] = {
    "version": _take_version,
    "name": _take_name,
    "line": _take_line,
    "into": _take_into,
    "episode": _take_episode,
    "entity": _take_entity,
    "fact": _take_fact,
}
