"""The protocol of an index, with its tags, filters and queries; `testing.IndexSuite` tests each implementation.

An index finds records of one family. A record is a Redis hash at `KeySpace.record(family, namespace, id)`. Writers
change it and the family's log (`KeySpace.record_log`) in one atomic step, and the index follows: no caller adds records
to an index. Fields of the hash:

`terms`   words to be found, as `text.analysis` spells them, separated by blanks
`vector`  half-precision vector, missing if none exists
`facts`   features for the ranking, opaque here
`pool`    `1` while the namespace shares an index with others (see `KeySpace.record_place`)
and the family's tags, as `text.analysis` encodes them, and numbers, each in a field of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from sharedmem.errors import InvalidError
from sharedmem.models import IndexStatus
from sharedmem.record_family import RecordFamily
from sharedmem.redis.vectors import Vector

# -- filters ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tagged:
    """The tag field contains one of these values, exactly."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The number is in a closed interval; None for an open end."""

    field: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Worded:
    """The record contains all of these words."""

    terms: tuple[str, ...]
    """As records hold them (`text.analysis.indexed_terms`). A condition without words matches no record."""
    field: str = "terms"


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of the conditions matches; `Either()` matches no record."""

    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Inverse:
    """The condition does not match."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Every:
    """All conditions match; `Every()` matches every record."""

    conditions: tuple[Condition, ...] = ()

    def also(self, *conditions: Condition) -> Every:
        """Return the filter with further conditions."""
        return Every((*self.conditions, *conditions))

    def of_tags(self) -> Every:
        """Return the conditions on tags alone, which match at least the same records."""
        kept = (one.of_tags() if isinstance(one, Every) else one for one in self.conditions)
        return Every(tuple(one for one in kept if isinstance(one, Tagged | Every)))

    @property
    def is_plain(self) -> bool:
        """Whether it consists of tags, intervals and words alone, as a search by words takes them."""
        return all(
            one.is_plain if isinstance(one, Every) else isinstance(one, Tagged | Between | Worded)
            for one in self.conditions
        )


Condition: TypeAlias = "Tagged | Between | Worded | Either | Inverse | Every"
ALL = Every()

# -- queries and their results ----------------------------------------------------------------------


@dataclass(frozen=True)
class IndexQuery:
    """The query of one search."""

    terms: tuple[str, ...] = ()
    """Distinct words as `text.analysis` spells them; any of them may match. Empty: no search by words."""
    vector: Vector | None = field(default=None, repr=False)
    """A unit vector. None: no search by meaning."""
    filters: Every = ALL
    """A search by words takes tags, intervals and required words alone (`Every.is_plain`)."""
    candidates: int = 100
    """Most hits of each search."""
    commonest: int | None = None
    """Words that more records of the namespace contain are not searched for if rarer ones have hits, see
    `without_frequent_terms`; counts may be a minute old, and a word that is new to this process is searched for. None:
    every word."""
    with_facts: bool = True
    """Whether hits need their field `facts`: without it, the server need not open the record of each hit."""


def without_frequent_terms(holders: Mapping[str, int], commonest: int | None) -> list[str]:
    """Return the words of a query that are worth a search, in their order.

    Args:
        holders: how many records of the namespace contain each word.
        commonest: words that more records contain are left out if rarer ones have hits; None keeps all.

    Returns:
        The words that few enough records contain, and the words that no record contains; if that would find nothing,
            the rarest of the words with hits.
    """
    if commonest is None:
        return list(holders)
    kept = [word for word, count in holders.items() if count <= commonest]
    if any(holders[word] for word in kept):
        return kept
    common = [word for word, count in holders.items() if count]
    return [*kept, min(common, key=holders.__getitem__)] if common else kept


class IndexHit(NamedTuple):
    """A hit of one search."""

    id: str
    score: float
    """BM25 of the words, or cosine similarity of the vectors."""
    facts: bytes


class IndexResult(NamedTuple):
    """The best hits of each search, best first; ties by id, so that all indexes return the same."""

    text: list[IndexHit]
    vector: list[IndexHit]
    version: int
    """Version of the namespace's newest change of such a record that the result surely includes."""
    round_trips: int


class RecordPage(NamedTuple):
    """Records in an order, with their total number."""

    ids: list[str]
    total: int


def check_page(family: RecordFamily, *, newest: str | None, oldest: str | None, offset: int, limit: int) -> None:
    """Check which records of an order are wanted.

    Raises:
        InvalidError: the order is not by one number of the family, or the page begins before the first record.
    """
    for name, number in (("newest", newest), ("oldest", oldest)):
        if number is not None and (number not in family.numbers or (newest is not None and oldest is not None)):
            advice = f"give one of both; the numbers of {family.name} are {', '.join(family.numbers) or 'none'}"
            raise InvalidError(name, number, advice)
    if offset < 0 or limit < 0:
        raise InvalidError("offset" if offset < 0 else "limit", min(offset, limit), "give 0 or more")


# -- the index --------------------------------------------------------------------------------------

IndexProgress = Callable[[int, int], None]
"""Called with (documents done, documents in all)."""


class Index(Protocol):
    """Finds the records of one family."""

    @property
    def family(self) -> RecordFamily:
        """The record family that it indexes."""

    @property
    def algorithm(self) -> Literal["redisearch", "exact"]:
        """Where the search runs: on the server, or in this process."""

    async def ensure(self, namespace: str) -> None:
        """Make sure that the namespace can be searched; fast once that is known.

        Raises:
            ConfigError: the index exists with another dimension, metric or layout; nothing is dropped.
            UnavailableError: the server cannot be reached.
        """

    async def search(self, namespace: str, query: IndexQuery) -> IndexResult:
        """Return the hits by words and by meaning, in one round trip (two after the namespace has moved).

        Only records of the namespace that match the filters are returned. Expired records may still be among them; a
        caller that fetches them finds that they do not exist.

        Raises:
            InvalidError: the vector has another dimension than the family, or a filter names no field of it.
            UnavailableError: the server cannot be reached, or could not finish in time; never part of the hits.
        """

    async def search_each(self, namespace: str, queries: Sequence[IndexQuery]) -> list[IndexResult]:
        """Run `search` for each query, in one round trip for all; the same version for all.

        Raises:
            InvalidError, UnavailableError: as `search`.
        """

    async def nearest(self, namespace: str, vector: Vector, *, filters: Every = ALL, k: int = 10) -> IndexResult:
        """Return the `k` nearest records by meaning alone, in `IndexResult.vector`. One round trip.

        Raises:
            InvalidError, UnavailableError: as `search`.
        """

    async def nearest_each(
        self, namespace: str, vectors: Sequence[Vector], *, filters: Every = ALL, k: int = 10
    ) -> list[IndexResult]:
        """Run `nearest` for each vector, in one round trip for all; the same version for all.

        Raises:
            InvalidError, UnavailableError: as `search`.
        """

    async def matching(
        self,
        namespace: str,
        filters: Every,
        *,
        newest: str | None = None,
        oldest: str | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> RecordPage:
        """Return the records that match filters.

        Args:
            namespace: the namespace to search.
            filters: the conditions.
            newest: a number field to sort by, highest first; None for any order.
            oldest: a number field to sort by, lowest first. Records without the number come last in both orders.
            offset, limit: the part to return; the total counts them all.

        Raises:
            InvalidError, UnavailableError: as `search`.
        """

    async def counts(self, namespace: str, filters: Every, tag: str) -> dict[str, int]:
        """Return how many records there are by value of a tag (`""` for records without one).

        Raises:
            InvalidError, UnavailableError: as `search`.
        """

    def count_writes(self, namespace: str, count: int) -> None:
        """Count written records: an index that should be promoted when the namespace has grown does so by itself."""

    async def promote(self, namespace: str, *, progress: IndexProgress | None = None) -> None:
        """Give the namespace an index of its own, while it is in use; do nothing if each namespace has its own.

        Raises:
            UnavailableError: the server cannot be reached; call it again to continue.
        """

    async def rebuild(self, namespace: str | None = None, *, progress: IndexProgress | None = None) -> None:
        """Build the index of a namespace, or the shared one, again beside the old one, then switch over.

        Raises:
            UnavailableError: the server cannot be reached; call it again to continue.
        """

    async def status(self) -> list[IndexStatus]:
        """Return the status of every index of the family.

        Raises:
            UnavailableError: the server cannot be reached.
        """

    async def forget(self, namespace: str) -> None:
        """Drop the namespace's own index, after the namespace has been cleared.

        Raises:
            UnavailableError: the server cannot be reached.
        """
