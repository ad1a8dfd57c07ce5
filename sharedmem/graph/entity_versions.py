"""Versions of entities: what was true of one at a time, as known at a time, from the changes in its row. Pure.

A row has the present state of its entity, and each change with the moment since when it is true and the moment when it
was recorded. The versions follow from them, so that no version is stored. Of two summaries, the later one is true from
its beginning on; of two that begin at the same moment, the one that was recorded later. Attributes are facts, and have
versions of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from sharedmem.graph.records import (
    LATEST,
    OPEN,
    UNKNOWN_START,
    BitemporalPoint,
    EntityChange,
    EntityRow,
    Version,
    from_stamp,
)
from sharedmem.models import Entity

MOST_CHANGES = 200
"""Changes that an entity keeps; beyond, the oldest are dropped, since each write of a record writes all of them."""
MOST_NAMES = 100
"""Names and aliases in an entity's own record."""


class EntityState(NamedTuple):
    """What is true of an entity in one of its versions."""

    type: str = ""
    summary: str = ""
    aliases: tuple[str, ...] = ()
    alias_count: int = 0
    merged_into: str = ""


NOTHING = EntityState()


class EntityVersion(NamedTuple):
    """A state of an entity, and when it was true and known."""

    state: EntityState
    times: Version


class _Piece(NamedTuple):
    """A state, and when it is true, as known at one moment."""

    state: EntityState
    start: int
    end: int


# -- changes ----------------------------------------------------------------------------------------


def with_type(row: EntityRow, type_: str, *, start: int, recorded: int) -> EntityRow:
    """Return an entity that was said to be of a type; the type that was recorded first stays."""
    if not type_ or row.type not in {"", type_} or _state_at(row, start).type == type_:
        return row
    return replace(_with_change(row, EntityChange("type", type_, start, recorded)), type=type_)


def with_summary(row: EntityRow, summary: str, *, start: int, recorded: int) -> EntityRow:
    """Return an entity with a summary that is true from a moment until the next summary begins."""
    if not summary or _state_at(row, start).summary == summary:
        return row
    changed = _with_change(row, EntityChange("summary", summary, start, recorded))
    # Without changes it was told with the first record, which has the last of several summaries.
    return replace(changed, summary=_pieces(changed, LATEST)[-1].state.summary if changed.changes else summary)


def with_alias(row: EntityRow, normal: str, spelled: str, *, start: int, recorded: int) -> EntityRow:
    """Return an entity with one more name; its own record has the first hundred."""
    count = row.alias_count + 1
    return replace(
        _with_change(row, EntityChange("aliases", count, start, recorded)),
        names=row.names if normal in row.names else (*row.names, normal)[:MOST_NAMES],
        aliases=row.aliases if spelled in (row.name, *row.aliases) else (*row.aliases, spelled)[:MOST_NAMES],
        alias_count=count,
    )


def with_merge(row: EntityRow, into: str, *, recorded: int) -> EntityRow:
    """Return an entity that leads to another one; with an empty `into`, to itself again."""
    change = EntityChange("merge", into, UNKNOWN_START, max(recorded, newest_recorded(row)))
    return replace(_with_change(row, change), merged_into=into)


def newest_recorded(row: EntityRow) -> int:
    """Return when the newest change of an entity was recorded."""
    return max((row.recorded, *(change.recorded for change in row.changes)))


def _with_change(row: EntityRow, change: EntityChange) -> EntityRow:
    """Return a row with one more change; the caller sets the field that it changes."""
    told = list(_changes(row))
    if told and told[-1]._replace(value=change.value) == change:
        told.pop()  # several names of one step are one change
    told.append(change)
    is_first_record = all(each.recorded == row.recorded and each.start in {row.start, UNKNOWN_START} for each in told)
    return replace(row, changes=() if is_first_record else tuple(told[-MOST_CHANGES:]))


def _changes(row: EntityRow) -> Sequence[EntityChange]:
    """Return all changes of an entity. If it has not changed since the first record, its fields say what was told."""
    if row.changes:
        return row.changes
    first = (
        EntityChange("type", row.type, row.start, row.recorded),
        EntityChange("summary", row.summary, row.start, row.recorded),
        EntityChange("aliases", row.alias_count, row.start, row.recorded),
        EntityChange("merge", row.merged_into, UNKNOWN_START, row.recorded),
    )
    return [change for change in first if change.value]


# -- versions ---------------------------------------------------------------------------------------


def entity_versions(row: EntityRow) -> list[EntityVersion]:
    """Return every version of an entity, by `recorded`, then `start`; at each point of both times at most one holds."""
    current: dict[_Piece, int] = {}
    found: list[EntityVersion] = []
    for moment in _moments(row):
        pieces = _pieces(row, moment)
        ended = [piece for piece in current if piece not in pieces]
        found += [_version(piece, current.pop(piece), moment) for piece in ended]
        current |= {piece: moment for piece in pieces if piece not in current}
    found += [_version(piece, recorded, OPEN) for piece, recorded in current.items()]
    return sorted(found, key=lambda version: (version.times.recorded, version.times.start))


def entity_version_at(row: EntityRow, when: BitemporalPoint) -> EntityVersion | None:
    """Return the version that was true at a time, as known at a time; None if nothing was known then."""
    return next((version for version in entity_versions(row) if version.times.holds(when.world, when.known)), None)


def with_state_at(row: EntityRow, when: BitemporalPoint) -> EntityRow:
    """Return an entity with its type and summary at a time; the row itself for the present."""
    if when.is_present:
        return row
    version = entity_version_at(row, when)
    state = NOTHING if version is None else version.state
    return replace(row, type=state.type, summary=state.summary)


def _version(piece: _Piece, recorded: int, superseded: int) -> EntityVersion:
    return EntityVersion(piece.state, Version(piece.start, piece.end, recorded, superseded))


def _moments(row: EntityRow) -> list[int]:
    return sorted({row.recorded, *(change.recorded for change in row.changes)})


def _state_at(row: EntityRow, world: int) -> EntityState:
    """Return what is true at a time, as known now."""
    return next((piece.state for piece in reversed(_pieces(row, LATEST)) if piece.start <= world), NOTHING)


def _pieces(row: EntityRow, known: int) -> list[_Piece]:
    """Return the states of an entity one after the other in valid time, as known at a moment."""
    changes = [change for change in _changes(row) if change.recorded <= known]
    starts = {change.start for change in changes if change.what != "merge"}
    if row.recorded <= known:
        starts.add(row.start)
    pieces: list[_Piece] = []
    for start, state in _states(row, changes, sorted(starts)):
        if pieces and pieces[-1].state == state:
            continue
        if pieces:
            pieces[-1] = pieces[-1]._replace(end=start)
        pieces.append(_Piece(state, start, OPEN))
    return pieces


def _states(
    row: EntityRow, changes: Sequence[EntityChange], starts: Sequence[int]
) -> Iterator[tuple[int, EntityState]]:
    """Yield for each start what is true from then on, by changes that are known."""
    ordered = sorted(changes, key=attrgetter("start", "recorded"))
    places_before = _places_before(row)
    state, done, places = NOTHING, 0, set[int]()
    for start in starts:
        while done < len(ordered) and ordered[done].start <= start:
            change = ordered[done]
            if isinstance(change.value, int):
                before = places_before[change]
                places |= set(range(before, min(change.value, len(row.aliases))))
                aliases = tuple(row.aliases[place] for place in sorted(places))
                state = state._replace(aliases=aliases, alias_count=state.alias_count + change.value - before)
            elif change.what == "type":
                state = state._replace(type=change.value)
            elif change.what == "summary":
                state = state._replace(summary=change.value)
            else:
                state = state._replace(merged_into=change.value)
            done += 1
        yield start, state


def _places_before(row: EntityRow) -> Mapping[EntityChange, int]:
    """Return how many aliases there were before each change of them: each adds to the count of the one before."""
    added = [change for change in _changes(row) if change.what == "aliases"]
    return {change: int(before) for change, before in zip(added, (0, *(each.value for each in added)), strict=False)}


# -- entities ---------------------------------------------------------------------------------------


def to_entity(row: EntityRow, group: str, attributes: Mapping[str, Any]) -> Entity:
    """Return an entity as it is known now, with the times of its first record.

    Args:
        row: the stored row.
        group: group of the graph.
        attributes: their values at the requested time; see `attribute_values`.
    """
    state = EntityState(row.type, row.summary, row.aliases, row.alias_count, row.merged_into)
    start = min((row.start, *(change.start for change in row.changes if change.what != "merge")))
    return _entity(row, group, EntityVersion(state, Version(start, OPEN, row.recorded, OPEN)), attributes)


def entity_at(row: EntityRow, group: str, when: BitemporalPoint, attributes: Mapping[str, Any]) -> Entity:
    """Return an entity at a time, as known at a time; only its id, its name and attributes if nothing else was known.

    Args:
        row: the stored row.
        group: group of the graph.
        when: the requested time; a caller that names neither time gets the present state.
        attributes: their values at that time.
    """
    if when.is_present:
        return to_entity(row, group, attributes)
    version = entity_version_at(row, when)
    if version is None:
        return Entity(id=row.id, name=row.name, group_id=group, attributes=dict(attributes))
    return _entity(row, group, version, attributes)


def to_versions(row: EntityRow, group: str) -> list[Entity]:
    """Return every version of an entity as an entity without attributes."""
    return [_entity(row, group, version, {}) for version in entity_versions(row)]


def _entity(row: EntityRow, group: str, version: EntityVersion, attributes: Mapping[str, Any]) -> Entity:
    state, times = version
    return Entity(
        id=row.id,
        name=row.name,
        type=state.type,
        aliases=state.aliases,
        alias_count=state.alias_count,
        attributes=dict(attributes),
        summary=state.summary,
        group_id=group,
        valid_from=from_stamp(times.start),
        valid_to=from_stamp(times.end),
        recorded_at=from_stamp(times.recorded),
        superseded_at=from_stamp(times.superseded),
        merged_into=state.merged_into or None,
    )
