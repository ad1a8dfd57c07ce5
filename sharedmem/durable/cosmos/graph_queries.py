"""What Cosmos DB can be asked of the knowledge graphs by itself: texts and parameters, without I/O.

`sharedmem` itself asks Redis; these are for what is to be asked of the store: reports, other programs, a tier without
its Redis. Each names one group, which is one logical partition. All that a user gives is a parameter; `TOP` is a number
in the text, as the service wants it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from sharedmem.durable.cosmos.queries import Given, Query
from sharedmem.errors import InvalidError

_LARGEST_LIMIT = 1_000
_ALIVE = "c.type = @type AND c.deleted = false"
_DISTANCE = "VectorDistance(c.embedding, @vector)"
_HELD = (
    "EXISTS(SELECT VALUE v FROM v IN c.versions WHERE (IS_NULL(v.valid_from) OR v.valid_from <= @world)"
    " AND (IS_NULL(v.valid_to) OR v.valid_to > @world)"
    " AND v.recorded_at <= @known AND (IS_NULL(v.superseded_at) OR v.superseded_at > @known))"
)
_SHOWN: Mapping[str, str] = {
    "fact": "c.id, c.fact, c.relation, c.source_id, c.source, c.target_id, c.target, c.attribute, c.valid_from,"
    " c.valid_to, c.recorded_at, c.superseded_at, c.versions, c.episode_ids",
    "entity": "c.id, c.name, c.entity_type, c.aliases, c.summary, c.merged_into",
    "episode": "c.id, c.text, c.session, c.user_id, c.occurred_at, c.recorded_at, c.entity_ids, c.fact_ids",
}

Type = Literal["fact", "entity", "episode"]


class Where(NamedTuple):
    """Which graph a query is about."""

    namespace: str
    group_id: str


def facts_of(where: Where, entity_id: str, limit: int, *, as_of: datetime, known_at: datetime) -> Query:
    """The facts of an entity that held at a time, as known at a time, the newest first.

    Args:
        where: the graph.
        entity_id: its id, after merges.
        limit: how many, 1 to 1,000.
        as_of, known_at: of which time is asked; with a zone.

    Raises:
        InvalidError: the limit is out of bounds, or a time has no zone; as all of these.
    """
    given: dict[str, Given] = {"entity": entity_id, "world": _iso("as_of", as_of), "known": _iso("known_at", known_at)}
    about = "(c.source_id = @entity OR c.target_id = @entity)"
    return _query(where, "fact", limit, more=[about, _HELD], order="c.valid_from DESC", given=given)


def history_of(where: Where, entity_id: str, limit: int) -> Query:
    """Every fact of an entity with all its versions, the newest first."""
    about = "(c.source_id = @entity OR c.target_id = @entity)"
    return _query(where, "fact", limit, more=[about], order="c.recorded_at DESC", given={"entity": entity_id})


def episodes_of(where: Where, session: str, limit: int) -> Query:
    """The episodes of a session, oldest first."""
    more = ["c.session = @session"]
    return _query(where, "episode", limit, more=more, order="c.occurred_at ASC", given={"session": session})


def nearest(where: Where, vector: Sequence[float], limit: int, *, of_type: Type = "fact") -> Query:
    """The records nearest in meaning, with their `similarity`, the nearest first."""
    shown = f", {_DISTANCE} AS similarity"
    return _query(where, of_type, limit, shown=shown, order=_DISTANCE, given={"vector": list(vector)})


def with_phrase(where: Where, phrase: str, limit: int, *, of_type: Type = "episode") -> Query:
    """The newest records in whose text a phrase stands."""
    has = "FullTextContains(c.text, @phrase)"
    return _query(where, of_type, limit, more=[has], order="c.recorded_at DESC", given={"phrase": phrase})


def _query(
    where: Where,
    of_type: str,
    limit: int,
    *,
    order: str,
    given: Mapping[str, Given],
    more: Sequence[str] = (),
    shown: str = "",
) -> Query:
    if of_type not in _SHOWN:
        raise InvalidError("of_type", of_type, f"there are {', '.join(_SHOWN)}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} records")
    conditions = " AND ".join(["c.namespace = @namespace", "c.group_id = @group", _ALIVE, *more])
    # Nothing of a user's is in the text but the limit, which is a number.
    text = f"SELECT TOP {limit} {_SHOWN[of_type]}{shown} FROM c WHERE {conditions} ORDER BY {order}"  # noqa: S608  # see above
    values: dict[str, Given] = {"namespace": where.namespace, "group": where.group_id, "type": of_type}
    return Query(text, {**values, **given}, [where.namespace, where.group_id])


def _iso(field: str, moment: datetime) -> str:
    if moment.utcoffset() is None:
        raise InvalidError(field, moment.isoformat(), "give it a time zone, such as datetime.UTC")
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
