"""Write groups in Redis: atomic commits, deletion page by page, re-embedded vectors."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from sharedmem.clock import new_id
from sharedmem.context import ServerContext
from sharedmem.errors import ConflictError, DurabilityPendingError, InternalError, InvalidError, SharedMemoryError
from sharedmem.graph.backends.redis_layout import (
    KIND_CODES,
    GraphKeys,
    decode_row,
    encode_row,
    hash_fields,
    index_entries,
    join_entries,
    listed_record,
    make_record_id,
    name_body,
    name_record_id,
    row_record_id,
    session_prefix,
)
from sharedmem.graph.names import encode_group
from sharedmem.graph.protocol import GraphProgress
from sharedmem.graph.records import (
    CommitReceipt,
    CommitRequest,
    EntityRow,
    FactRow,
    LookupRequest,
    LookupResult,
    Row,
    StaleGroup,
    to_stamp,
    written_rows,
)
from sharedmem.graph.resolver import entity_text
from sharedmem.index_maintenance import VectorSource
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.durability import UnsettledError
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Argument, Command, Reply, ServerError
from sharedmem.redis.scripts.knowledge import GraphCloseKeys, GraphScripts
from sharedmem.redis.service_keys import corruption_error

Look = Callable[[str, LookupRequest], Awaitable[LookupResult]]

_LEASE_MS = 30_000
_PAGE = 200
_CLOSED_PARTS = ("edges", "claims", "names", "merges", "changed", "told")


class GroupDeletion:
    """Deletes groups page by page.

    Args:
        context: dependencies that the hub shares with its stores.
        keys: keys of the namespace.
        actor: author of the changes.
    """

    def __init__(self, context: KnowledgeContext, keys: GraphKeys, actor: bytes) -> None:
        self._client = context.client
        self._scripts = GraphScripts(context.executor)
        self._has_tier = context.record_tier.is_durable
        self._keys = keys
        self._actor = actor

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`. Two round trips for every 200 records; another process continues if this one dies.

        Writers are refused meanwhile; if no process continues for 30 s, the next writer finishes this first. Reads from
        before the end cannot be committed any more: an ingestion in progress starts again.
        """
        begun = await self.close(group)
        if begun is None:
            return 0
        token, left = begun
        deleted = 0
        word = "more"
        while word == "more":
            word, count = await self.delete_page(group, token)
            deleted += count
            if progress is not None:
                progress(min(deleted, left), left)
        return deleted

    async def close(self, group: str) -> tuple[str, int] | None:
        """Refuse further writes to a group until it is deleted. One round trip.

        Returns:
            The token of the deletion and how many records are left, also of a deletion in progress; None if the group
                does not exist.
        """
        keys = GraphCloseKeys(self._keys.groups, *self._keys.parts(group, *_CLOSED_PARTS))
        try:
            return await self._scripts.graph_close(
                self._keys.space, keys, self._actor, group=encode_group(group), token=new_id(), lease_ms=_LEASE_MS
            )
        except ServerError as error:
            raise self._keys.public_error(error, group, self._client.address) from error

    async def delete_page(self, group: str, token: str) -> tuple[str, int]:
        """Delete up to 200 records of a closed group. Two round trips.

        Returns:
            `more` while records are left, and how many were deleted now.
        """
        register = self._keys.part(group, "told")
        page = await self._client.call("ZRANGE", register, 0, _PAGE - 1)
        assert isinstance(page, list)
        members = [member for member in page if isinstance(member, bytes)]
        named = [name for member in members if (name := listed_record(group, member.decode()))]
        try:
            return await self._scripts.graph_forget(
                self._keys.space,
                self._actor,
                keys=[*map(self._keys.record, named), self._keys.common("log"), self._keys.groups, register],
                group=encode_group(group),
                token=token,
                lease_ms=_LEASE_MS,
                key=self._keys.record(encode_group(group)),
                members=members,
                keep=self._keys.log_modes(named) if self._has_tier else None,
            )
        except ServerError as error:
            raise self._keys.public_error(error, group, self._client.address) from error
        except UnsettledError as error:
            word, _, count = error.reply.decode().partition(" ")
            return word, int(count or 0)


MOST_AT_ONCE = 2_000
"""Records that one call of a script writes: the server serves no other client meanwhile."""
_SHARED = ("edges", "claims", "names", "merges", "changed", "told")
_CLOSED = "GROUPCLOSED"
_DAMAGED = "DAMAGED"
_ANY_VERSION = -1


class CommitWriter:
    """Commits changes, each in one atomic step.

    Args:
        context: dependencies that the hub shares with its stores.
        keys: keys of the namespace.
        actor: author of the changes.
        look: reads records, for a commit whose facts are stored otherwise than it expects.
        deletion: completes the deletion of a group that another process has left unfinished.
    """

    def __init__(
        self, context: KnowledgeContext, keys: GraphKeys, actor: bytes, *, look: Look, deletion: GroupDeletion
    ) -> None:
        self._clock = context.clock
        self._client = context.client
        self._scripts = GraphScripts(context.executor)
        self._has_tier = context.record_tier.is_durable
        self._keys = keys
        self._actor = actor
        self._look = look
        self._deletion = deletion
        self._index = context.graphs

    async def commit(self, group: str, changes: CommitRequest, *, seen: int) -> CommitReceipt | StaleGroup:
        """See `GraphBackend.commit`. One round trip; more if an unfinished deletion of the group must be completed.

        Two more if facts are stored otherwise than their lines define, as they are while a merge is in progress. One
        more for changed facts if there is a durable tier.

        Raises:
            InvalidError: over `MOST_AT_ONCE` records.
            ConflictError: the group is being deleted.
            CorruptionError: a record has a version that was never given.
            DurabilityPendingError: it is written in Redis, but not in the durable tier, which the call waits for.
            UnavailableError: the server cannot be reached.
        """
        step = _CommitArguments(group, changes, lasts=self._has_tier)
        if step.size > MOST_AT_ONCE:
            raise InvalidError("changes", f"{step.size} records", f"commit at most {MOST_AT_ONCE} at once")
        step.vectors = await self._vectors(step)
        reply = await self._written(group, step, self._words(group, step), seen)
        if reply == b"UNFINISHED":
            await self._deletion.delete(group)
            return StaleGroup()
        if reply == b"BEHIND":
            return StaleGroup()
        if reply == b"OTHER":
            return await self.commit(group, await self._stored_form(group, step), seen=seen)
        version, *turns = map(int, reply.split())
        self._index.count_writes(self._keys.namespace, step.size)
        return CommitReceipt(version, tuple(zip(step.sessions, turns, strict=True)))

    async def _stored_form(self, group: str, step: _CommitArguments) -> CommitRequest:
        """Return the same changes, with the replaced facts as they are stored. One round trip."""
        facts = (*step.changes.facts, *step.gone)
        stored = (await self._look(group, LookupRequest(facts=tuple(row.id for row in facts)))).facts
        others = (row for row in step.changes.former if not isinstance(row, FactRow))
        return replace(step.changes, former=(*others, *stored.values()))

    async def _written(self, group: str, step: _CommitArguments, words: list[Argument], seen: int) -> bytes:
        log, place = self._keys.common("log"), self._keys.common("place")
        shared = [log, place, self._keys.groups, *self._keys.parts(group, *_SHARED)]
        try:
            return await self._scripts.graph_commit(
                self._keys.space,
                self._actor,
                keys=[*map(self._keys.record, step.named), *shared],
                group=encode_group(group),
                seen=seen,
                words=words,
                keep=self._keys.log_modes(step.named) if self._has_tier else None,
            )
        except ServerError as error:
            raise await self._refused(error, group, step) from error
        except UnsettledError as error:
            key = self._keys.target(step.named[0]).key
            raise DurabilityPendingError(key, int(error.reply.split()[0]), str(error.cause)) from error.cause

    async def _refused(self, error: ServerError, group: str, step: _CommitArguments) -> SharedMemoryError:
        if error.code == _CLOSED:
            return ConflictError(f"group {group!r} is being deleted; try again when that is done")
        if error.code == _DAMAGED:
            keys = [self._keys.record(named) for named in step.named]
            versions = await self._client.read_many([("HGET", key, "version") for key in keys])
            newest = max(zip(map(_number, versions), keys, strict=True))
            return corruption_error(newest[1], f"its version {newest[0]} was never given")
        return self._keys.public_error(error, group, self._client.address)

    def _words(self, group: str, step: _CommitArguments) -> list[Argument]:
        now = to_stamp("now", self._clock.now())
        words: list[Argument] = []
        for row in step.rows:
            fields = hash_fields(row, self._keys.namespace, group, now=now)
            words += (step.expected(row), self._embedding(step, row), len(fields), *fields)
        for name, entity in step.spare:
            words += (_ANY_VERSION, "", 2, "body", name_body(name, entity))
        for row in step.gone:
            words += (step.expected(row), "", 0)
        for block in step.blocks():
            words.append(len(block))
            words += block
        spoken = [word for what, id_ in step.changes.events for word in (what, self._keys.record(step.named_of(id_)))]
        heads = [session_prefix(session, "e") for session in step.sessions]
        return [*words, len(spoken), *spoken, len(heads), *heads]

    def _embedding(self, step: _CommitArguments, row: Row) -> bytes:
        """Return the vector for the durable tier: the stored one if the row has none."""
        if not self._has_tier:
            return b""
        before = step.former.get((KIND_CODES[type(row)], row.id))
        vector = row.vector or (before.vector if before else None) or step.vectors.get(row.id)
        return b64encode(vector) if vector else b""

    async def _vectors(self, step: _CommitArguments) -> dict[str, bytes]:
        """Return the vectors of changed facts that keep them, which only the durable tier needs. One round trip."""
        if not self._has_tier:
            return {}
        rows = [row for row in step.rows if isinstance(row, FactRow) and ("f", row.id) in step.former]
        lacking = [row for row in rows if not row.vector]
        looks: list[Command] = [
            ("HGET", self._keys.record(row_record_id(step.group, row)), "vector") for row in lacking
        ]
        found = zip(lacking, await self._client.read_many(looks), strict=True) if looks else ()
        return {row.id: vector for row, vector in found if isinstance(vector, bytes)}


class _CommitArguments:
    """The changes of a step, in the form that Redis stores."""

    def __init__(self, group: str, changes: CommitRequest, *, lasts: bool) -> None:
        self.changes = changes
        self.rows = written_rows(changes)
        self.former = {(KIND_CODES[type(row)], row.id): row for row in changes.former}
        stay = {row.id for row in changes.facts}
        self.gone = [row for row in changes.former if isinstance(row, FactRow) and row.id not in stay]
        self.size = len(self.rows) + len(self.gone)
        # Redis stores extra names beside the records: only the durable tier needs a record for each.
        self.spare = _extra_names(changes) if lasts else []
        names = [make_record_id(group, "x", name_record_id(name)) for name, _ in self.spare]
        self.named = [
            *(row_record_id(group, row) for row in self.rows),
            *names,
            *(row_record_id(group, row) for row in self.gone),
        ]
        new = (row for row in changes.episodes if row.letter == "e" and ("e", row.id) not in self.former)
        self.sessions = tuple(dict.fromkeys(row.session for row in new))
        self.group = group
        self.vectors: dict[str, bytes] = {}
        """Vectors of facts, by id, for rows without one."""

    def expected(self, row: Row) -> int | bytes:
        """Return the version that a record must have for this to be written; for a fact that was not read, its body.

        Raises:
            InternalError: it replaces a row that is not in `former`, so that row's index entries would remain.
        """
        before = self.former.get((KIND_CODES[type(row)], row.id))
        if isinstance(row, FactRow) and (before is None or not before.version):
            return b"{}" if before is None else encode_row(before)
        if before is None and row.version:
            raise InternalError(f"{row.id!r} replaces a record that is missing in CommitRequest.former")
        return before.version if before else 0

    def named_of(self, id_: str) -> str:
        """Return the record that a change event is about; an episode by default."""
        for row in self.rows:
            if row.id == id_:
                return row_record_id(self.group, row)
        return make_record_id(self.group, "e", id_)

    def blocks(self) -> list[list[Argument]]:
        """Return the other data to write, in the order in which the script takes it."""
        changes = self.changes
        before = join_entries(index_entries(row) for row in self._replaced())
        after = join_entries(index_entries(row) for row in self.rows)
        after = after._replace(told=after.told | {f"x{name_record_id(name)}" for name, _ in self.spare})
        members = zip(before[:3], after[:3], strict=True)
        blocks: list[list[Argument]] = [list(changes.guards), list(changes.steady)]
        for gone, there in members:
            blocks += (sorted(gone - there), [word for member in sorted(there - gone) for word in (0, member)])
        still = dict(after.into)
        unmerged: list[Argument] = [f">{id_}" for id_, _ in sorted(before.into) if id_ not in still]
        merged: list[Argument] = [word for id_, into in sorted(after.into) for word in (f">{id_}", into)]
        return [*blocks, unmerged, merged, list(chain(*changes.names)), list(chain(*changes.merges))]

    def _replaced(self) -> Iterable[Row]:
        kept = {(KIND_CODES[type(row)], row.id) for row in self.rows}
        return (row for key, row in self.former.items() if key in kept or isinstance(row, FactRow))


def _number(version: Reply) -> int:
    return int(version) if isinstance(version, bytes) and version.isdigit() else 0


def _extra_names(changes: CommitRequest) -> list[tuple[str, str]]:
    """Return names that are not in the row of their entity: it has no room for more, or is not written."""
    owned = {(name, row.id) for row in changes.entities for name in row.names}
    return [one for one in changes.names if one[1] and one not in owned]


def _embedding_text(id_: str, body: bytes) -> str:
    try:
        row: Row = decode_row(id_.split("/", 2)[1], body, version=0)
    except (ValueError, IndexError):
        return ""
    return entity_text(row) if isinstance(row, EntityRow) else row.text


async def _write_vectors(
    context: ServerContext, namespace: str, keys: Sequence[bytes], vectors: Sequence[Argument]
) -> None:
    space = context.keyspace.space(namespace)
    await GraphScripts(context.executor).graph_embed(space, SHARED_SCOPE.encode(), keys=keys, vectors=vectors)


GRAPH_VECTORS = VectorSource(_embedding_text, _write_vectors)
