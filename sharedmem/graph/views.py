"""Convert stored rows to the public models of the graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from sharedmem.errors import InternalError
from sharedmem.graph.records import BitemporalPoint, EntityRow, EpisodeRow, FactRow, KindCode, Version
from sharedmem.graph.timestamps import OPEN, from_stamp
from sharedmem.models import Entity, Episode, Fact, GraphKind

ATTRIBUTE_PREFIX = "@"
"""What the type of an attribute begins with; alone it stands for the types of all of them."""
KINDS: Mapping[KindCode, GraphKind] = {
    "e": "episode",
    "m": "episode",
    "s": "summary",
    "n": "entity",
    "f": "fact",
    "p": "fact",
}


def to_episode(row: EpisodeRow) -> Episode:
    """An episode as it was told, and since when it does not count any more."""
    told = Episode.model_validate_json(row.body)
    undone = from_stamp(row.undone)
    return told if told.undone_at == undone else told.model_copy(update={"undone_at": undone})


def to_entity(row: EntityRow, group: str, attributes: Mapping[str, Any]) -> Entity:
    """An entity.

    Args:
        row: as it is kept.
        group: whose graph.
        attributes: as they are at the time that is asked for; see `attribute_values`.
    """
    return Entity(
        id=row.id,
        name=row.name,
        type=row.type,
        aliases=row.aliases,
        alias_count=row.alias_count,
        attributes=dict(attributes),
        summary=row.summary,
        group_id=group,
        recorded_at=from_stamp(row.recorded),
        merged_into=row.merged_into or None,
    )


def attribute_values(rows: Iterable[FactRow], when: BitemporalPoint) -> dict[str, Any]:
    """The values of those attributes that hold at a time, by name."""
    return {
        row.type.removeprefix(ATTRIBUTE_PREFIX): attribute_value(row)
        for row in sorted(rows, key=lambda row: row.type)
        if row.type.startswith(ATTRIBUTE_PREFIX) and version_at(row, when) is not None
    }


def attribute_value(row: FactRow) -> Any:
    """The value of an attribute; None of a relation."""
    return orjson.loads(row.value) if row.value else None


def version_at(row: FactRow, when: BitemporalPoint) -> Version | None:
    """The version that holds at a time, as known at a time; None when the fact does not."""
    for version in reversed(row.versions):
        if version.holds(when.world, when.known):
            return version
    return None


def version_known(row: FactRow, when: BitemporalPoint) -> Version | None:
    """What is known at a time of a fact that had begun by then, whether it still holds or not; None if nothing is."""
    for version in reversed(row.versions):
        if version.recorded <= when.known < version.superseded and version.start <= when.world:
            return version
    return None


def to_fact(row: FactRow, version: Version, group: str) -> Fact:
    """A fact in one of its versions."""
    is_attribute = row.type.startswith(ATTRIBUTE_PREFIX)
    return Fact(
        id=row.id,
        group_id=group,
        source_id=row.source,
        source_name=row.source_name,
        type=row.type,
        target_id=None if is_attribute else row.target,
        target_name=row.target_name,
        value=attribute_value(row) if is_attribute else None,
        fact=row.text,
        valid_from=from_stamp(version.start),
        valid_to=from_stamp(version.end),
        recorded_at=_recorded_time(version),
        superseded_at=from_stamp(version.superseded),
        invalidated_at=invalidated_at(row, version),
        episode_ids=row.episodes,
    )


def to_latest_fact(row: FactRow, group: str) -> Fact:
    """A fact as it is known now, or as it was last known."""
    return to_fact(row, row.versions[-1], group)


def invalidated_at(row: FactRow, version: Version) -> datetime | None:
    """When the graph learned that a fact had ended, or that it had been wrong altogether; None while it holds.

    Of several versions with an end in a row, the first tells: later ones only correct the date.
    """
    learned, known_until = OPEN, 0
    for place, each in enumerate(row.versions):
        if each.end == OPEN:
            learned = each.superseded if _is_withdrawn(row, place) else OPEN
        elif learned == OPEN or each.recorded > known_until:
            learned = each.recorded
        if each == version:
            break
        known_until = each.superseded
    return from_stamp(learned)


def _is_withdrawn(row: FactRow, place: int) -> bool:
    """Whether nothing was known of a fact after one of its versions."""
    ended = row.versions[place].superseded
    return ended != OPEN and (place + 1 == len(row.versions) or row.versions[place + 1].recorded > ended)


def _recorded_time(version: Version) -> datetime:
    moment = from_stamp(version.recorded)
    if moment is None:
        raise InternalError(f"a version of a fact was recorded at no moment: {version}")
    return moment
