"""Protocols of the graph: a storage backend, an extractor with what it returns, and the public methods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

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
    """Stores the graphs of one namespace's groups. It contains no rules about which facts follow from claims."""

    @property
    def name(self) -> str:
        """`redis` or `falkordb`."""

    async def look(self, group: str, wanted: LookupRequest) -> LookupResult:
        """Read the requested records, consistent enough for `commit` to detect later changes. One round trip.

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
            searches: words and vectors, and conditions on the records.
            seen: the version of the group that the caller has just read, and which its commit verifies; then a search
                without hits need not check whether the server has lost the group.

        Raises:
            InvalidError: a vector has another dimension.
            UnavailableError: the server cannot be reached, or could not finish in time.
        """

    async def walk(
        self, group: str, starts: Sequence[str], *, when: BitemporalPoint, depth: int, fan_out: int, limit: int
    ) -> WalkResult:
        """Walk breadth first from some entities along the edges that hold at a time, newest edges first.

        Args:
            group: group of the graph.
            starts: ids of entities, after merges.
            when: edges of versions that held then, as known then.
            depth: most steps.
            fan_out: most edges of one entity that are followed.
            limit: edges in all.

        Raises:
            UnavailableError: as `look`.
        """

    async def edges(
        self, group: str, entity: str, *, when: BitemporalPoint | None, limit: int, types: Sequence[str] = ()
    ) -> list[Edge]:
        """Return the edges of an entity that hold at a time; without `when` of all versions, superseded ones too.

        Args:
            group: group of the graph.
            entity: its id, after merges.
            when: versions that held then, as known then; None for every version.
            limit: most edges, newest first.
            types: only edges of these types; `@` means every attribute. Empty: of any type.

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
            after: where the page begins, as the page before returned it.
            limit: most ids.
            session: only episodes and summaries of this session; empty for those without one, None for all.
        """

    async def lines_of(
        self, group: str, entities: Sequence[str], *, after: str = "", limit: int = 1000
    ) -> tuple[list[str], str]:
        """Return a page of the lines that contain claims about some entities, and where the next page begins.

        A claim is about the entities it was recorded with, its own `source` and `target`, before any merges: a backend
        stores, for each claim of an `EpisodeRow`, its lines by both. A merge reads them while it moves page after page:
        a page begins after the place that the page before returned, whatever was removed.

        Args:
            group: group of the graph.
            entities: ids of entities, as in claims.
            after: where the page begins, as the page before returned it.
            limit: most lines; a page with fewer may not be the last one.

        Returns:
            Lines (a line about two of these entities may be repeated), and the next `after`; empty at the end.
        """

    async def names_of(self, group: str, entity: str, *, after: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """Return a page of the normalised names that lead to an entity itself, sorted; and where the next page begins.

        Names of entities that were merged into it are not included; they still belong to those.
        """

    async def merges(self, group: str) -> list[bytes]:
        """Return the JSON of every `EntityMerge` of the group, oldest first."""

    async def stats(self, group: str) -> GraphStats:
        """Return the counts of the group's records."""

    def strays(self, group: str) -> AsyncIterator[list[IndexDiscrepancy]]:
        """Yield all index entries that do not follow from the records, and the missing ones, page by page.

        Only what was wrong at one moment is reported, even if others write meanwhile. Entries for names that lead to an
        entity without a record are included; `mend` does not change these.

        Raises:
            ConflictError: the group is being deleted.
            UnavailableError: the server cannot be reached.
        """

    async def mend(self, group: str, strays: Sequence[IndexDiscrepancy]) -> None:
        """Remove and add entries, except those whose record has changed since; their lines count as changed."""

    async def groups(self) -> list[str]:
        """Return the groups of the namespace."""

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """Delete everything of a group; return how many records. Ingestions of the group wait or start again."""

    async def close(self) -> None:
        """Release connections of its own; may be called again."""


class MemoryStore(Protocol):
    """Public methods of a temporal graph memory. `Graph` (`store.graph`) implements it, on any backend.

    Every call names its group; no call reads across groups.
    """

    async def add_episode(  # each is a property of the episode
        self,
        content: str | Mapping[str, Any] | Episode,
        *,
        group_id: str | None = None,
        id: str = "",  # noqa: A002  # as in the specification
        occurred_at: datetime | None = None,
        source: str = "message",
        session: str | None = None,
        user: str | None = None,
    ) -> EpisodeResult:
        """Ingest an episode: its mentions and statements become part of the graph."""

    async def vector_search(
        self, query: str | Sequence[float], *, group_id: str, limit: int = 10, kinds: Sequence[GraphKind] = ("episode",)
    ) -> list[GraphHit]:
        """Return the records nearest in meaning."""

    async def text_search(
        self, query: str, *, group_id: str, limit: int = 10, kinds: Sequence[GraphKind] = ("episode",)
    ) -> list[GraphHit]:
        """Return the records that contain the words (BM25)."""

    async def add_entity(
        self,
        name: str,
        *,
        group_id: str,
        type: str = "",  # noqa: A002  # as in add_relationship
        aliases: Sequence[str] = (),
    ) -> Entity:
        """Return an entity, found by its name or created."""

    async def add_relationship(  # each is a property of the relationship
        self,
        source: str,
        type: str,  # noqa: A002  # as in the specification
        target: str,
        *,
        group_id: str,
        valid_from: datetime | Unknown | None = None,
        valid_to: datetime | None = None,
        recorded_at: datetime | None = None,
        episode: str | None = None,
        fact: str | None = None,
    ) -> Fact:
        """Add a dated relationship between two entities, given by name or id, and return its fact."""

    async def traverse_from_entities(
        self,
        entities: Sequence[str],
        *,
        group_id: str,
        depth: int = 2,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> Traversal:
        """Return the entities and facts around some entities."""

    async def get(self, id_: str, *, group_id: str) -> Episode | Entity | Fact:
        """Return a record by its id."""

    async def facts(
        self, entity: str, *, group_id: str, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> list[Fact]:
        """Return the facts of an entity that hold at a time, as known at a time."""

    async def history(self, entity: str, *, group_id: str) -> list[Fact]:
        """Return every version of every fact of an entity."""

    async def invalidate(self, fact_id: str, *, group_id: str, at: datetime | None = None) -> Fact:
        """Close a fact."""

    async def as_of(self, when: datetime, *, group_id: str, known_at: datetime | None = None) -> list[Fact]:
        """Return all facts that were true at a moment."""

    async def delete_by_group(self, group_id: str) -> int:
        """Delete everything of a group."""


# -- extractors ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that an episode mentions."""

    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    id: str = ""
    """Id of the entity, if it is known; else the name is resolved."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A relation or attribute that an episode states about its mentions."""

    source: str
    """Name of a mention."""
    type: str
    target: str = ""
    """Name of a mention; empty for an attribute (type `@...`), and to end any target."""
    value: Any = None
    """Value of an attribute."""
    says: Literal["holds", "ends"] = "holds"
    valid_from: datetime | Unknown | None = None
    """None: since the episode happened. For an `ends`: when it ended."""
    valid_to: datetime | None = None
    text: str = ""
    """As a sentence; made from the names if empty."""


class Extraction(NamedTuple):
    """The result of an extraction."""

    mentions: tuple[Mention, ...] = ()
    statements: tuple[Statement, ...] = ()
    contradicted: tuple[str, ...] = ()
    """Ids of known facts that end with the episode."""
    warnings: tuple[str, ...] = ()


class Known(NamedTuple):
    """Facts of the graph that may matter to an episode; empty for extractors that do not use them."""

    entities: Sequence[Entity] = ()
    facts: Sequence[Fact] = ()


class Extractor(Protocol):
    """Finds entities and facts in episodes."""

    @property
    def name(self) -> str:
        """Name for display: `rules (heuristic)`, or the model's name."""

    @property
    def wants_known(self) -> bool:
        """Whether it uses facts that the graph has already."""

    async def extract(self, episode: Episode, known: Known) -> Extraction:
        """Return the mentions and statements of an episode. `episode.occurred_at` is set.

        Raises:
            UnavailableError, LimitedError, ConfigError, InvalidError: the model cannot be reached, or its answer is
                unusable; the episode is stored all the same.
        """
