"""What is told of the records that were chosen: texts, dates, where they come from. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sharedmem.knowledge.graph.paths import Reach, steps_along
from sharedmem.knowledge.graph.records import FactRow
from sharedmem.knowledge.graph.retrieving.ranking import Pool, Ranked
from sharedmem.knowledge.graph.times import moment_of
from sharedmem.models import ContextItem, Step
from sharedmem.providers.chunks import count_tokens


@dataclass(slots=True)
class Around:
    """How the walk came to what it found, where it began at entities that the question names."""

    reach: Reach = field(default_factory=lambda: Reach((), ()))
    nearer_ends: Mapping[str, str] = field(default_factory=dict)
    """Of each fact that was walked along, by its id: the entity through which it was reached."""
    rows: Mapping[str, FactRow] = field(default_factory=dict)
    """Of the facts on the ways."""


def items_of(ranked: Iterable[Ranked], pool: Pool, around: Around, group: str, *, explain: bool) -> list[ContextItem]:
    """What is answered.

    Args:
        ranked: the records, in their order.
        pool: their rows.
        around: how the walk came to them.
        group: whose graph.
        explain: whether to tell what each signal added to the score.
    """
    return [_counted(_item(one, pool, around, group), one, explain=explain) for one in ranked]


def _counted(item: ContextItem, one: Ranked, *, explain: bool) -> ContextItem:
    # One more for the end of the line.
    fields: dict[str, object] = {"tokens": count_tokens(item.as_line()) + 1}
    if explain:
        fields["signals"] = one.signals
    return item.model_copy(update=fields)


def _item(one: Ranked, pool: Pool, around: Around, group: str) -> ContextItem:
    if one.kind == "fact":
        return _of_fact(one, pool.facts[one.id], around, group)
    if one.kind == "entity":
        return _of_entity(one, pool, around, group)
    row = pool.episodes[one.id]
    return ContextItem(
        kind=one.kind,
        id=one.id,
        text=f"{row.source}: {row.text}" if one.kind == "episode" else row.text,
        score=one.score,
        occurred_at=moment_of(row.occurred),
        episode_ids=(one.id,),
    )


def _of_fact(one: Ranked, row: FactRow, around: Around, group: str) -> ContextItem:
    assert one.version is not None
    end = around.nearer_ends.get(one.id)
    path, distance = _way_to(end, around, group)
    return ContextItem(
        kind="fact",
        id=one.id,
        text=row.text,
        score=one.score,
        valid_from=moment_of(one.version.start),
        valid_to=moment_of(one.version.end),
        episode_ids=row.episodes,
        path=path,
        distance=distance,
    )


def _of_entity(one: Ranked, pool: Pool, around: Around, group: str) -> ContextItem:
    row = pool.entities[one.id]
    path, distance = _way_to(one.id, around, group)
    text = f"{row.name}: {row.summary}"
    return ContextItem(kind="entity", id=one.id, text=text, score=one.score, path=path, distance=distance)


def _way_to(entity: str | None, around: Around, group: str) -> tuple[tuple[Step, ...], int | None]:
    if entity is None or entity not in around.reach.distances:
        return (), None
    return steps_along(around.reach.to(entity), around.rows, group), around.reach.distances[entity]
