"""Writing what a step changes, all or nothing, unless something that it relies on has changed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from sharedmem.errors import ConflictError, DurabilityPendingError, InternalError, InvalidError, SharedMemoryError
from sharedmem.knowledge.graph.naming import spelled_group
from sharedmem.knowledge.graph.records import Behind, Changes, Committed, FactRow, Row, Wanted, rows_of
from sharedmem.knowledge.graph.redis.deleting import Deleting
from sharedmem.knowledge.graph.redis.looking import Looking
from sharedmem.knowledge.graph.redis.rows import (
    KINDS,
    NOTHING,
    Entries,
    encode,
    entries,
    fields,
    name_body,
    name_id,
    record_id,
    record_named,
    session_head,
)
from sharedmem.knowledge.graph.times import stamp_of
from sharedmem.knowledge.growing import Growth
from sharedmem.wire.replies import Argument, Command, Reply, ServerError
from sharedmem.wire.service_keys import damaged
from sharedmem.wire.tier import UnsettledError

MOST_AT_ONCE = 2_000
"""Records that one call of a script writes: it holds up everybody for that long."""
_SHARED = ("edges", "claims", "names", "merges", "changed", "told")
_CLOSED = "GROUPCLOSED"
_DAMAGED = "DAMAGED"
_ANY_VERSION = -1


class Committing(Looking, Deleting):
    """Writes changes down."""

    async def commit(self, group: str, changes: Changes, *, seen: int) -> Committed | Behind:
        """See `GraphBackend.commit`. One round trip; more when somebody has left the deletion of the group undone.

        Two more where facts lie otherwise than their lines tell, as they do while a merge is under way. One more for
        facts that change where a durable tier takes them.

        Raises:
            InvalidError: over `MOST_AT_ONCE` records.
            ConflictError: the group is being deleted.
            CorruptionError: a record has a version that was never given.
            DurabilityPendingError: it is written, but the durable tier, which is waited for, does not have it.
            UnavailableError: the server cannot be reached.
        """
        step = _Step(group, changes, lasts=self._minds.tier is not None)
        if step.size > MOST_AT_ONCE:
            raise InvalidError("changes", f"{step.size} records", f"commit at most {MOST_AT_ONCE} at once")
        step.vectors = await self._vectors(step)
        reply = await self._written(group, step, self._words(group, step), seen)
        if reply == b"UNFINISHED":
            await self.delete(group)
            return Behind()
        if reply == b"BEHIND":
            return Behind()
        if reply == b"OTHER":
            return await self.commit(group, await self._as_it_lies(group, step), seen=seen)
        version, *turns = map(int, reply.split())
        Growth.of(self._minds, self._minds.graphs, self._namespace).grew(step.size)
        return Committed(version, tuple(zip(step.sessions, turns, strict=True)))

    async def _as_it_lies(self, group: str, step: _Step) -> Changes:
        """The same changes, with the facts that they replace as these are kept. One round trip."""
        facts = (*step.changes.facts, *step.gone)
        lie = (await self.look(group, Wanted(facts=tuple(row.id for row in facts)))).facts
        others = (row for row in step.changes.former if not isinstance(row, FactRow))
        return replace(step.changes, former=(*others, *lie.values()))

    async def _written(self, group: str, step: _Step, words: list[Argument], seen: int) -> bytes:
        log, place = self._common("log"), self._common("place")
        shared = [log, place, self._groups, *self._parts(group, *_SHARED)]
        try:
            return await self._graphing.graph_commit(
                self._space,
                self._actor,
                keys=[*map(self._record, step.named), *shared],
                group=spelled_group(group),
                seen=seen,
                words=words,
                keep=self._keep(step.named),
            )
        except ServerError as error:
            raise await self._refused(error, group, step) from error
        except UnsettledError as error:
            key = self._target(step.named[0]).key
            raise DurabilityPendingError(key, int(error.reply.split()[0]), str(error.cause)) from error.cause

    async def _refused(self, error: ServerError, group: str, step: _Step) -> SharedMemoryError:
        if error.code == _CLOSED:
            return ConflictError(f"group {group!r} is being deleted; try again when that is done")
        if error.code == _DAMAGED:
            keys = [self._record(named) for named in step.named]
            versions = await self._line.read_many([("HGET", key, "version") for key in keys])
            newest = max(zip(map(_number, versions), keys, strict=True))
            return damaged(newest[1], f"its version {newest[0]} was never given")
        return self._explained(error, group)

    def _words(self, group: str, step: _Step) -> list[Argument]:
        now = stamp_of("now", self._minds.clock.now())
        words: list[Argument] = []
        for row in step.rows:
            told = fields(row, self._namespace, group, now=now)
            words += (step.expected(row), self._embedding(step, row), len(told), *told)
        for name, entity in step.spare:
            words += (_ANY_VERSION, "", 2, "body", name_body(name, entity))
        for row in step.gone:
            words += (step.expected(row), "", 0)
        for block in step.blocks():
            words.append(len(block))
            words += block
        spoken = [word for what, id_ in step.changes.told for word in (what, self._record(step.named_of(id_)))]
        heads = [session_head(session, "e") for session in step.sessions]
        return [*words, len(spoken), *spoken, len(heads), *heads]

    def _embedding(self, step: _Step, row: Row) -> bytes:
        """The vector as the durable tier has it: that which lies there when the row brings none."""
        if self._minds.tier is None:
            return b""
        before = step.former.get((KINDS[type(row)], row.id))
        vector = row.vector or (before.vector if before else None) or step.vectors.get(row.id)
        return b64encode(vector) if vector else b""

    async def _vectors(self, step: _Step) -> dict[str, bytes]:
        """Those of facts that change and keep their vectors, which only the durable tier wants. One round trip."""
        if self._minds.tier is None:
            return {}
        rows = [row for row in step.rows if isinstance(row, FactRow) and ("f", row.id) in step.former]
        lacking = [row for row in rows if not row.vector]
        looks: list[Command] = [("HGET", self._record(record_id(step.group, row)), "vector") for row in lacking]
        found = zip(lacking, await self._line.read_many(looks), strict=True) if looks else ()
        return {row.id: vector for row, vector in found if isinstance(vector, bytes)}


class _Step:
    """What a step changes, as it lies in Redis."""

    def __init__(self, group: str, changes: Changes, *, lasts: bool) -> None:
        self.changes = changes
        self.rows = rows_of(changes)
        self.former = {(KINDS[type(row)], row.id): row for row in changes.former}
        stay = {row.id for row in changes.facts}
        self.gone = [row for row in changes.former if isinstance(row, FactRow) and row.id not in stay]
        self.size = len(self.rows) + len(self.gone)
        # Redis has them beside the records: only the durable tier wants one for each.
        self.spare = _spare(changes) if lasts else []
        names = [record_named(group, "x", name_id(name)) for name, _ in self.spare]
        self.named = [
            *(record_id(group, row) for row in self.rows),
            *names,
            *(record_id(group, row) for row in self.gone),
        ]
        new = (row for row in changes.episodes if row.letter == "e" and ("e", row.id) not in self.former)
        self.sessions = tuple(dict.fromkeys(row.session for row in new))
        self.group = group
        self.vectors: dict[str, bytes] = {}
        """Of facts, by id, where their rows bring none."""

    def expected(self, row: Row) -> int | bytes:
        """The version that a record must have for this to be written; of a fact that nobody has looked at its body.

        Raises:
            InternalError: it replaces a row that was not handed in: what lies beside that one would stay.
        """
        before = self.former.get((KINDS[type(row)], row.id))
        if isinstance(row, FactRow) and (before is None or not before.version):
            return b"{}" if before is None else encode(before)
        if before is None and row.version:
            raise InternalError(f"{row.id!r} replaces a record, so that record belongs in Changes.former")
        return before.version if before else 0

    def named_of(self, id_: str) -> str:
        """The record that an announcement is about; an episode where it is none of these."""
        for row in self.rows:
            if row.id == id_:
                return record_id(self.group, row)
        return record_named(self.group, "e", id_)

    def blocks(self) -> list[list[Argument]]:
        """What else is written, in the order in which the script takes it."""
        changes = self.changes
        before = _together(entries(row) for row in self._replaced())
        after = _together(entries(row) for row in self.rows)
        after = after._replace(told=after.told | {f"x{name_id(name)}" for name, _ in self.spare})
        members = zip(before[:3], after[:3], strict=True)
        blocks: list[list[Argument]] = [list(changes.guards), list(changes.steady)]
        for gone, there in members:
            blocks += (sorted(gone - there), [word for member in sorted(there - gone) for word in (0, member)])
        still = dict(after.into)
        unmerged: list[Argument] = [f">{id_}" for id_, _ in sorted(before.into) if id_ not in still]
        merged: list[Argument] = [word for id_, into in sorted(after.into) for word in (f">{id_}", into)]
        return [*blocks, unmerged, merged, list(chain(*changes.names)), list(chain(*changes.merges))]

    def _replaced(self) -> Iterable[Row]:
        kept = {(KINDS[type(row)], row.id) for row in self.rows}
        return (row for key, row in self.former.items() if key in kept or isinstance(row, FactRow))


def _number(version: Reply) -> int:
    return int(version) if isinstance(version, bytes) and version.isdigit() else 0


def _spare(changes: Changes) -> list[tuple[str, str]]:
    """Names of which the row of their entity does not tell: it has no room for more, or is not written."""
    told = {(name, row.id) for row in changes.entities for name in row.names}
    return [one for one in changes.names if one[1] and one not in told]


def _together(parts: Iterable[Entries]) -> Entries:
    every = [NOTHING, *parts]
    return Entries(*(frozenset().union(*column) for column in zip(*every, strict=True)))
