"""Protocols of the graph: what a storage backend implements, and what users call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sharedmem.graph.records import (
    BitemporalPoint,
    CommitReceipt,
    CommitRequest,
    Edge,
    IndexDiscrepancy,
    LookupRequest,
    LookupResult,
    RecordHits,
    RecordSearch,
    StaleGroup,
    WalkResult,
)
from sharedmem.models import Entity, Episode, EpisodeResult, Fact, GraphHit, GraphKind, GraphStats, Traversal, Unknown

GraphProgress = Callable[[int, int], None]
"""Called with (records done, records in all)."""


class GraphBackend(Protocol):
    """Keeps the graphs of one namespace's groups. It knows no rule of what follows from what."""

    @property
    def name(self) -> str:
        """`redis` or `falkordb`."""

    async def look(self, group: str, wanted: LookupRequest) -> LookupResult:
        """What is there of what is wanted, consistent enough for `commit` to tell what has changed. One round trip.

        Raises:
            UnavailableError: the server cannot be reached.
        """

    async def commit(self, group: str, changes: CommitRequest, *, seen: int) -> CommitReceipt | StaleGroup:
        """Write everything or nothing, if no guard has changed since version `seen`. One round trip.

        Raises:
            ConflictError: the group is being deleted.
            UnavailableError: the server cannot be reached.
        """

    async def search(self, group: str, searches: Sequence[RecordSearch], *, seen: int = 0) -> list[RecordHits]:
        """Return the hits of each search. One round trip for all.

        Args:
            group: group of the graph.
            searches: words and vectors, and among which records.
            seen: the version of the group that the caller has just read, and which its commit verifies; then a search
                without hits needs no second look at whether the server has lost the group.

        Raises:
            InvalidError: a vector has another dimension.
            UnavailableError: the server cannot be reached, or could not finish in time.
        """

    async def walk(
        self, group: str, starts: Sequence[str], *, when: BitemporalPoint, depth: int, fan_out: int, limit: int
    ) -> WalkResult:
        """Breadth first from some entities along the edges that hold at a time, newest edges first.

        Args:
            group: group of the graph.
            starts: ids of entities, after merges.
            when: versions that held then, as known then.
            depth: steps at most.
            fan_out: edges of one entity that are followed at most.
            limit: edges in all.

        Raises:
            UnavailableError: as `look`.
        """

    async def edges(
        self, group: str, entity: str, *, when: BitemporalPoint | None, limit: int, types: Sequence[str] = ()
    ) -> list[Edge]:
        """Return the edges of an entity that hold at a time, or all versions, superseded ones too, with `when=None`.

        Args:
            group: group of the graph.
            entity: its id, after merges.
            when: versions that held then, as known then; None for every version.
            limit: edges at most, newest first.
            types: only of these; `@` stands for every attribute. Empty: of any.

        Raises:
            UnavailableError: as `look`.
        """

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """Return a page of ids, and where the next one begins (empty at the end).

        Args:
            group: group of the graph.
            kind: `episode` (letter `e`, by `occurred`, oldest first), `summary` (letter `s`) and `statement` (letter
                `m`), likewise; `entity`, `fact` or `merge`.
            after: where the page begins, from the page before.
            limit: ids at most.
            session: of episodes and summaries: only those of this one; empty for those of none, None for all.
        """

    async def lines_of(
        self, group: str, said: Sequence[str], *, after: str = "", limit: int = 1000
    ) -> tuple[list[str], str]:
        """Return a page of the lines in which claims about some entities stand, and where the next page begins.

        A claim is about the entities it was said with, its own `source` and `target`, whatever these were merged into
        since: a backend keeps, for each claim of an `EpisodeRow`, its lines by both. Merging asks for them, with
        page after page being moved: a page begins after the place that the one before told, whatever has gone.

        Args:
            group: group of the graph.
            said: ids of entities, as claims have them.
            after: where the page begins, from the page before.
            limit: lines at most; fewer are no sign that it was the last page.

        Returns:
            Lines (one that is about two of these entities may come twice), and the next `after`; empty at the end.
        """

    async def names_of(self, group: str, entity: str, *, after: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """Return a page of the normalised names that lead to an entity itself, sorted; and where the next page begins.

        Names of entities that were merged into it are not among them; those are still theirs.
        """

    async def merges(self, group: str) -> list[bytes]:
        """Return the JSON of every `EntityMerge` of the group, oldest first."""

    async def stats(self, group: str) -> GraphStats:
        """Return what the group holds."""

    def strays(self, group: str) -> AsyncIterator[list[IndexDiscrepancy]]:
        """Everything beside the records that does not follow from them, or is missing, page by page.

        Only what was so at one moment is reported, whatever others write meanwhile. Entries for names that lead to an
        entity without a record are among it; `mend` leaves these alone.

        Raises:
            ConflictError: the group is being deleted.
            UnavailableError: the server cannot be reached.
        """

    async def mend(self, group: str, strays: Sequence[IndexDiscrepancy]) -> None:
        """Remove and add entries, each unless its record has changed since; lines concerned count as changed."""

    async def groups(self) -> list[str]:
        """Return the groups of the namespace."""

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """Delete everything of a group; how many records. Ingestions of the group wait or begin anew."""

    async def close(self) -> None:
        """Give back connections of its own; may be called again."""


class MemoryStore(Protocol):
    """Temporal graph memory as its users see it. `Graph` (`store.graph`) is one, on any backend.

    Every call names the group it is about; there is no way to ask across groups.
    """

    async def add_episode(  # each is a fact of the episode
        self,
        content: str | Mapping[str, Any] | Episode,
        *,
        group_id: str | None = None,
        id: str = "",  # noqa: A002  # as the specification has it
        occurred_at: datetime | None = None,
        source: str = "message",
        session: str | None = None,
        user: str | None = None,
    ) -> EpisodeResult:
        """Take in an episode: what it mentions and says becomes part of the graph."""

    async def vector_search(
        self, query: str | Sequence[float], *, group_id: str, limit: int = 10, kinds: Sequence[GraphKind] = ("episode",)
    ) -> list[GraphHit]:
        """Return what is near in meaning."""

    async def text_search(
        self, query: str, *, group_id: str, limit: int = 10, kinds: Sequence[GraphKind] = ("episode",)
    ) -> list[GraphHit]:
        """Return what holds the words (BM25)."""

    async def add_entity(
        self,
        name: str,
        *,
        group_id: str,
        type: str = "",  # noqa: A002  # as add_relationship has it
        aliases: Sequence[str] = (),
    ) -> Entity:
        """Return an entity, found by its name or made."""

    async def add_relationship(  # each is a fact of the relationship
        self,
        source: str,
        type: str,  # noqa: A002  # as the specification has it
        target: str,
        *,
        group_id: str,
        valid_from: datetime | Unknown | None = None,
        valid_to: datetime | None = None,
        recorded_at: datetime | None = None,
        episode: str | None = None,
        fact: str | None = None,
    ) -> Fact:
        """Return a dated relationship between two entities, told by name or id."""

    async def traverse_from_entities(
        self,
        entities: Sequence[str],
        *,
        group_id: str,
        depth: int = 2,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> Traversal:
        """Return what lies around some entities."""

    async def get(self, id_: str, *, group_id: str) -> Episode | Entity | Fact:
        """Return a record by its id."""

    async def facts(
        self, entity: str, *, group_id: str, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> list[Fact]:
        """Return what holds of an entity at a time, as known at a time."""

    async def history(self, entity: str, *, group_id: str) -> list[Fact]:
        """Return every version of every fact of an entity, nothing left out."""

    async def invalidate(self, fact_id: str, *, group_id: str, at: datetime | None = None) -> Fact:
        """Close a fact."""

    async def as_of(self, when: datetime, *, group_id: str, known_at: datetime | None = None) -> list[Fact]:
        """Return all that was true at a moment."""

    async def delete_by_group(self, group_id: str) -> int:
        """Delete everything of a group."""
