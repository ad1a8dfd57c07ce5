"""Edges: what lies around entities at a time, and every version of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from sharedmem.knowledge.graph.records import Edge, Walked, When
from sharedmem.knowledge.graph.redis.ground import RedisGround
from sharedmem.knowledge.graph.redis.rows import BETWEEN, edge_of
from sharedmem.knowledge.graph.times import newest_first, sortable
from sharedmem.wire.graphing import Around
from sharedmem.wire.replies import ServerError
from sharedmem.wire.service_keys import decoding

ATTRIBUTES = "@"
"""As a type: every attribute."""
_PATIENCE = 1000
_PATIENCE_EACH = 20
_PATIENT = 100_000
_PAGE = 1000

Kinds = Literal["r", "a", "ra"]


class Edges(RedisGround):
    """Walks along edges."""

    async def walk(
        self, group: str, starts: Sequence[str], *, when: When, depth: int, fan_out: int, limit: int
    ) -> Walked:
        """See `GraphBackend.walk`. One round trip; the server looks at `limit` times `fan_out` edges at most."""
        around = _around(
            when, "r", (), depth=depth, fan_out=fan_out, limit=limit, patience=_PATIENCE + _PATIENCE_EACH * fan_out
        )
        return await self._walked(group, around, starts)

    async def edges(
        self, group: str, entity: str, *, when: When | None, limit: int, types: Sequence[str] = ()
    ) -> list[Edge]:
        """See `GraphBackend.edges`. One round trip; for all versions one for every 1,000 that are looked at."""
        if when is None:
            return await self._every_version(group, entity, limit, types)
        around = _around(when, _kinds(types), types, depth=1, fan_out=limit, limit=limit, patience=_PATIENT)
        walked = await self._walked(group, around, [entity])
        return [edge for _, edge in sorted(walked.edges, key=lambda told: -told[1].version.start)]

    async def _walked(self, group: str, around: Around, starts: Sequence[str]) -> Walked:
        try:
            truncated, *told = await self._graphing.graph_walk(self._part(group, "edges"), around, starts=starts)
        except ServerError as error:
            raise self._explained(error, group) from error
        steps = zip(cast("list[int]", told[::2]), cast("list[bytes]", told[1::2]), strict=True)
        with decoding(self._part(group, "edges")):
            edges = [(distance, edge_of(member)) for distance, member in steps]
        edges.sort(key=lambda step: step[0])
        return Walked(edges, truncated=truncated == 1)

    async def _every_version(self, group: str, entity: str, limit: int, types: Sequence[str]) -> list[Edge]:
        found: list[Edge] = []
        for kind in _kinds(types):
            low = f"[{entity}{BETWEEN}{kind}"
            while low and len(found) < limit:
                page, low = await self._page(group, low, f"({entity}{BETWEEN}{chr(ord(kind) + 1)}", limit)
                found += [edge for edge in page if not types or _is_of(edge, types)]
        return sorted(found[:limit], key=lambda edge: -edge.version.start)

    async def _page(self, group: str, low: str, high: str, limit: int) -> tuple[list[Edge], str]:
        """(edges between two places, where to go on; nothing at the end)."""
        count = min(limit, _PAGE)
        command = ("ZRANGEBYLEX", self._part(group, "edges"), low, high, "LIMIT", 0, count)
        try:
            members = cast("list[bytes]", await self._line.call_aside(*command))
        except ServerError as error:
            raise self._explained(error, group) from error
        with decoding(command[1]):
            return list(map(edge_of, members)), f"({members[-1].decode()}" if len(members) == count else ""


def _around(
    when: When, kinds: Kinds, types: Sequence[str], *, depth: int, fan_out: int, limit: int, patience: int
) -> Around:
    spelled = f"{BETWEEN}{BETWEEN.join(types)}{BETWEEN}" if types else ""
    times = (sortable(when.world), newest_first(when.world), sortable(when.known), int(when.is_past_knowledge))
    return Around(*times, kinds, spelled, depth, fan_out, limit, patience)


def _kinds(types: Sequence[str]) -> Kinds:
    """Of which kinds edges of these types are."""
    attributes = sum(type_.startswith(ATTRIBUTES) for type_ in types)
    if types and attributes == len(types):
        return "a"
    return "r" if types and not attributes else "ra"


def _is_of(edge: Edge, types: Sequence[str]) -> bool:
    return edge.type in types or (ATTRIBUTES in types and edge.type.startswith(ATTRIBUTES))
