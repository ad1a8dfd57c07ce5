"""What users see of the rows that a backend keeps. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from sharedmem.errors import InternalError
from sharedmem.knowledge.graph.records import EntityRow, EpisodeRow, FactRow, Letter, Version, When
from sharedmem.knowledge.graph.times import OPEN, moment_of
from sharedmem.models import Entity, Episode, Fact, GraphKind

ATTRIBUTE = "@"
"""What the type of an attribute begins with; alone it stands for the types of all of them."""
KINDS: Mapping[Letter, GraphKind] = {
    "e": "episode",
    "m": "episode",
    "s": "summary",
    "n": "entity",
    "f": "fact",
    "p": "fact",
}


def episode_of(row: EpisodeRow) -> Episode:
    """An episode as it was told, and since when it does not count any more."""
    told = Episode.model_validate_json(row.body)
    undone = moment_of(row.undone)
    return told if told.undone_at == undone else told.model_copy(update={"undone_at": undone})


def entity_of(row: EntityRow, group: str, attributes: Mapping[str, Any]) -> Entity:
    """An entity.

    Args:
        row: as it is kept.
        group: whose graph.
        attributes: as they are at the time that is asked for; see `attributes_of`.
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
        recorded_at=moment_of(row.recorded),
        merged_into=row.merged_into or None,
    )


def attributes_of(rows: Iterable[FactRow], when: When) -> dict[str, Any]:
    """The values of those attributes that hold at a time, by name."""
    return {
        row.type.removeprefix(ATTRIBUTE): value_of(row)
        for row in sorted(rows, key=lambda row: row.type)
        if row.type.startswith(ATTRIBUTE) and version_at(row, when) is not None
    }


def value_of(row: FactRow) -> Any:
    """The value of an attribute; None of a relation."""
    return orjson.loads(row.value) if row.value else None


def version_at(row: FactRow, when: When) -> Version | None:
    """The version that holds at a time, as known at a time; None when the fact does not."""
    for version in reversed(row.versions):
        if version.holds(when.world, when.known):
            return version
    return None


def version_known(row: FactRow, when: When) -> Version | None:
    """What is known at a time of a fact that had begun by then, whether it still holds or not; None if nothing is."""
    for version in reversed(row.versions):
        if version.recorded <= when.known < version.superseded and version.start <= when.world:
            return version
    return None


def fact_of(row: FactRow, version: Version, group: str) -> Fact:
    """A fact in one of its versions."""
    is_attribute = row.type.startswith(ATTRIBUTE)
    return Fact(
        id=row.id,
        group_id=group,
        source_id=row.source,
        source_name=row.source_name,
        type=row.type,
        target_id=None if is_attribute else row.target,
        target_name=row.target_name,
        value=value_of(row) if is_attribute else None,
        fact=row.text,
        valid_from=moment_of(version.start),
        valid_to=moment_of(version.end),
        recorded_at=_recorded(version),
        superseded_at=moment_of(version.superseded),
        invalidated_at=invalidated_at(row, version),
        episode_ids=row.episodes,
    )


def newest_fact_of(row: FactRow, group: str) -> Fact:
    """A fact as it is known now, or as it was last known."""
    return fact_of(row, row.versions[-1], group)


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
    return moment_of(learned)


def _is_withdrawn(row: FactRow, place: int) -> bool:
    """Whether nothing was known of a fact after one of its versions."""
    ended = row.versions[place].superseded
    return ended != OPEN and (place + 1 == len(row.versions) or row.versions[place + 1].recorded > ended)


def _recorded(version: Version) -> datetime:
    moment = moment_of(version.recorded)
    if moment is None:
        raise InternalError(f"a version of a fact was recorded at no moment: {version}")
    return moment
