"""Deleting a group: closed first, then emptied page by page, and opened when nothing is left of it."""

from __future__ import annotations

from sharedmem.clock import new_id
from sharedmem.knowledge.graph.family import GRAPH
from sharedmem.knowledge.graph.naming import spelled_group
from sharedmem.knowledge.graph.protocol import GraphProgress
from sharedmem.knowledge.graph.redis.ground import RedisGround
from sharedmem.knowledge.graph.redis.rows import listed_record
from sharedmem.wire.graphing import CloseKeys
from sharedmem.wire.replies import ServerError
from sharedmem.wire.tier import UnsettledError

_LEASE_MS = 30_000
_PAGE = 200
_CLOSED_PARTS = ("edges", "claims", "names", "merges", "changed", "told")


class Deleting(RedisGround):
    """Deletes groups."""

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`. Two round trips for every 200 records; whoever dies on the way is followed.

        Writers are refused meanwhile; when nobody goes on for 30 s, the next writer finishes this first. What was
        looked at before the end can not be built upon any more: an ingestion under way begins anew.
        """
        begun = await self._close(group)
        if begun is None:
            return 0
        token, left = begun
        deleted = 0
        word = "more"
        while word == "more":
            word, count = await self._forget_page(group, token)
            deleted += count
            if progress is not None:
                progress(min(deleted, left), left)
        return deleted

    async def _close(self, group: str) -> tuple[str, int] | None:
        keys = CloseKeys(self._groups, *self._parts(group, *_CLOSED_PARTS))
        try:
            return await self._graphing.graph_close(
                self._space, keys, self._actor, group=spelled_group(group), token=new_id(), lease_ms=_LEASE_MS
            )
        except ServerError as error:
            raise self._explained(error, group) from error

    async def _forget_page(self, group: str, token: str) -> tuple[str, int]:
        told = self._part(group, "told")
        page = await self._line.call("ZRANGE", told, 0, _PAGE - 1)
        assert isinstance(page, list)
        members = [member for member in page if isinstance(member, bytes)]
        named = [name for member in members if (name := listed_record(group, member.decode()))]
        try:
            return await self._graphing.graph_forget(
                self._space,
                self._actor,
                keys=[*map(self._record, named), self._common("log"), self._groups, told],
                group=spelled_group(group),
                token=token,
                lease_ms=_LEASE_MS,
                key=self._record(spelled_group(group)),
                members=members,
                keep=self._keep(named),
            )
        except ServerError as error:
            raise self._explained(error, group) from error
        except UnsettledError as error:
            word, _, count = error.reply.decode().partition(" ")
            return word, int(count or 0)

    def _common(self, part: str) -> bytes:
        return self._keyspace.record_part(GRAPH, self._namespace, part)
