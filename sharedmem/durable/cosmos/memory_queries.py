"""What Cosmos DB's own vector and text search can be asked of the memories: texts and parameters, without I/O.

`sharedmem` itself searches in Redis; these are for what is to be asked of the whole store: reports, other programs, a
tier without its Redis. Each names its tenant. All that a user gives is a parameter; `TOP` is a number in the text, as
the service wants it there. Cosine `VectorDistance` is a similarity: 1 for the same direction, and the nearest come
first by themselves (`ORDER BY` takes neither ASC nor DESC there).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from sharedmem.durable.cosmos.queries import Given, Query
from sharedmem.durable.protocol import Scalar
from sharedmem.errors import InvalidError

CACHE_SIMILARITY, DUPLICATE_SIMILARITY = 0.98, 0.95

_LARGEST_LIMIT = 1_000
_MOST_KEYWORDS = 30
_FIELDS = frozenset(
    {"user_id", "agent_id", "run_id", "category", "importance", "memory_type", "entity_id", "source_actor"}
)
_SHOWN = "c.id, c.thread_id, c.turn_index, c.memory, c.content, c.timestamp, c.metadata"
_DISTANCE = "VectorDistance(c.embedding, @vector)"
_ALIVE = 'c.type = "memory" AND c.deleted = false AND (c.expires = 0 OR c.expires > @now)'


class Where(NamedTuple):
    """Which memories a query is about."""

    tenant_id: str
    now_ms: int
    """Milliseconds since 1970: what has expired by then is left out."""
    thread_id: str | None = None
    """None for all threads of the tenant."""
    equal: Mapping[str, Scalar] = {}
    """Fields of a `MemoryItem` and the values they must have."""


def recent(where: Where, limit: int, *, by: Literal["turn_index", "timestamp"] = "turn_index") -> Query:
    """The newest memories, of a thread by turn index or of a tenant by time.

    Raises:
        InvalidError: the limit is out of bounds, or a field is none of those that can be asked for; as all of these.
    """
    if by not in {"turn_index", "timestamp"}:
        raise InvalidError("by", by, "order by turn_index or timestamp")
    return _query(where, limit, shown=_SHOWN, order=f"c.{by} DESC")


def nearest(where: Where, vector: Sequence[float], limit: int, *, least: float | None = None) -> Query:
    """The memories nearest in meaning, with their `similarity`; only those above `least`, if that is given."""
    given: dict[str, Given] = {"vector": list(vector)}
    further = []
    if least is not None:
        given["least"] = _checked_similarity(least)
        further = [f"{_DISTANCE} > @least"]
    return _query(
        where, limit, shown=f"{_SHOWN}, {_DISTANCE} AS similarity", order=_DISTANCE, more=further, given=given
    )


def hybrid(
    where: Where, vector: Sequence[float], keywords: Sequence[str], limit: int, *, weights: Sequence[float] = ()
) -> Query:
    """The memories that meaning and words together find best: ranks fused as 1 / (60 + rank).

    Args:
        where: which.
        vector: of what is looked for.
        keywords: at most 30; more are left out.
        limit: how many, 1 to 1,000.
        weights: of the vector, the words in `content` and the words in `memory`; equal when empty.
    """
    words, given = _keywords(keywords)
    legs = [_DISTANCE, *(f"FullTextScore(c.{field}, {words})" for field in ("content", "memory"))]
    if weights:
        if len(weights) != len(legs):
            raise InvalidError("weights", list(weights), f"give {len(legs)} numbers")
        legs.append(f"[{', '.join(repr(float(weight)) for weight in weights)}]")
    # A score may stand in no other clause, so that it is not among what is shown.
    return _query(
        where, limit, shown=_SHOWN, order=f"RANK RRF({', '.join(legs)})", given={"vector": list(vector), **given}
    )


def ranked(where: Where, keywords: Sequence[str], limit: int) -> Query:
    """The memories in whose content some words count most (BM25), most first; at most 30 words, more are left out."""
    words, given = _keywords(keywords)
    return _query(where, limit, shown=_SHOWN, order=f"RANK FullTextScore(c.content, {words})", given=given)


def with_phrase(where: Where, phrase: str, limit: int) -> Query:
    """The newest memories in which a phrase stands, of a thread or of a whole tenant."""
    has = "(FullTextContains(c.content, @phrase) OR FullTextContains(c.memory, @phrase))"
    return _query(where, limit, shown=_SHOWN, order="c.timestamp DESC", more=[has], given={"phrase": phrase})


def cached(where: Where, vector: Sequence[float], *, least: float = CACHE_SIMILARITY) -> Query:
    """The cached answer to the nearest prompt, if that is near enough; its thread is the key of the cache."""
    kept = where._replace(equal={**where.equal, "memory_type": "semantic-cache"})
    return nearest(kept, vector, 1, least=least)


def duplicates(
    where: Where, vector: Sequence[float], *, category: str | None = None, least: float = DUPLICATE_SIMILARITY
) -> Query:
    """Up to five memories that say nearly the same, within a tenant and category."""
    alike = where if category is None else where._replace(equal={**where.equal, "category": category})
    return nearest(alike, vector, 5, least=least)


def thread_statistics(where: Where) -> Query:
    """How many turns a thread has, when it began and was last continued, and its tokens: one row.

    Raises:
        InvalidError: no thread is named; several aggregates at once are for one partition only.
    """
    if where.thread_id is None:
        raise InvalidError("thread_id", None, "name the thread")
    tokens = " + ".join(
        f"(IS_NUMBER(c.metrics.{side}) ? c.metrics.{side} : 0)" for side in ("input_tokens", "output_tokens")
    )
    shown = (
        "COUNT(1) AS turn_count, MIN(c.timestamp) AS first_turn_at, MAX(c.timestamp) AS last_turn_at,"
        f" SUM({tokens}) AS total_tokens"
    )
    return _query(where, None, shown=shown)


def count(where: Where) -> Query:
    """How many memories there are: one number."""
    return _query(where, None, shown="VALUE COUNT(1)")


# -- spelling ---------------------------------------------------------------------------------------


def _query(
    where: Where,
    limit: int | None,
    *,
    shown: str,
    order: str = "",
    more: Sequence[str] = (),
    given: Mapping[str, Given] | None = None,
) -> Query:
    conditions, values = _conditions(where)
    clauses = " AND ".join([*conditions, *more])
    top = "" if limit is None else f"TOP {_checked_limit(limit)} "
    # Nothing of a user's is in the text but limits and weights, which are numbers.
    text = f"SELECT {top}{shown} FROM c WHERE {clauses}" + (f" ORDER BY {order}" if order else "")  # noqa: S608  # see above
    partition = None if where.thread_id is None else [where.tenant_id, where.thread_id]
    return Query(text, {**values, **(given or {})}, partition)


def _conditions(where: Where) -> tuple[list[str], dict[str, Given]]:
    conditions, values = ["c.tenant_id = @tenant"], dict[str, Given](tenant=where.tenant_id)
    if where.thread_id is not None:
        conditions.append("c.thread_id = @thread")
        values["thread"] = where.thread_id
    conditions.append(_ALIVE)
    values["now"] = where.now_ms
    for number, (field, value) in enumerate(where.equal.items()):
        if field not in _FIELDS:
            raise InvalidError("field", field, f"there are {', '.join(sorted(_FIELDS))}")
        conditions.append(f"c.{field} = @equal{number}")
        values[f"equal{number}"] = value
    return conditions, values


def _keywords(keywords: Sequence[str]) -> tuple[str, dict[str, Given]]:
    words = list(dict.fromkeys(word for word in keywords if word))[:_MOST_KEYWORDS]
    if not words:
        raise InvalidError("keywords", list(keywords), "give at least one word")
    values: dict[str, Given] = {f"word{number}": word for number, word in enumerate(words)}
    return ", ".join(f"@{name}" for name in values), values


def _checked_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} memories")
    return limit


def _checked_similarity(least: float) -> float:
    if not -1 <= least <= 1:
        raise InvalidError("least", least, "a cosine similarity lies between -1 and 1")
    return float(least)
