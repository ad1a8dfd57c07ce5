"""Rows of a graph made by hand, for what is pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson

from sharedmem.graph.records import OPEN, Edge, EntityRow, EpisodeRow, FactRow, KindCode, Version, to_stamp

DAY_0 = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = "acme:support"


def day(number: float) -> datetime:
    """A moment, counted in days from the first of 2026."""
    return DAY_0 + timedelta(days=number)


def stamp(number: float) -> int:
    """The same as a stamp."""
    return to_stamp("day", day(number))


def version(
    start: float, end: float | None = None, *, recorded: float | None = None, superseded: float | None = None
) -> Version:
    """A version, in days; recorded when it begins, unless something else is said."""
    return Version(
        stamp(start),
        OPEN if end is None else stamp(end),
        stamp(start if recorded is None else recorded),
        OPEN if superseded is None else stamp(superseded),
    )


def fact_row(
    id_: str,
    source: str,
    type_: str,
    target: str,
    *versions: Version,
    value: object = None,
    episodes: tuple[str, ...] = (),
) -> FactRow:
    """A fact; of an attribute `target` is the value as people read it."""
    is_attribute = type_.startswith("@")
    words = type_.removeprefix("@").replace("_", " ")
    return FactRow(
        id=id_,
        lines=(f"{source.lower()}>{type_}",),
        source=source.lower(),
        source_name=source,
        type=type_,
        target="" if is_attribute else target.lower(),
        target_name=target,
        value=orjson.dumps(value).decode() if is_attribute else "",
        text=f"{source}: {words} is {target}" if is_attribute else f"{source} {words} {target}",
        versions=versions or (version(0),),
        episodes=episodes,
    )


def entity_row(name: str, **fields: object) -> EntityRow:
    """An entity whose id is its name in small letters."""
    given: dict[str, object] = {"type": "", "aliases": (), "alias_count": 0, "summary": "", "recorded": stamp(0)}
    return EntityRow(id=name.lower(), name=name, names=(name.lower(),), **(given | fields))  # type: ignore[arg-type]  # as named


def episode_row(
    id_: str,
    text: str,
    occurred: float = 0,
    *,
    recorded: float | None = None,
    undone: float | None = None,
    letter: KindCode = "e",
    entities: tuple[str, ...] = (),
    covers: tuple[str, ...] = (),
) -> EpisodeRow:
    """An episode that was recorded when it occurred, unless something else is said."""
    learned = occurred if recorded is None else recorded
    body = {
        "content": text,
        "group_id": GROUP,
        "id": id_,
        "occurred_at": day(occurred),
        "recorded_at": day(learned),
        "entities": entities,
        "covers": covers,
        "kind": {"s": "summary", "m": "statement"}.get(letter, "episode"),
    }
    return EpisodeRow(
        id=id_,
        body=orjson.dumps(body),
        digest="",
        letter=letter,
        occurred=stamp(occurred),
        recorded=stamp(learned),
        session="",
        user="",
        source="user",
        text=text,
        claims=(),
        lines=(),
        undone=OPEN if undone is None else stamp(undone),
    )


def edge(row: FactRow, *, backward: bool = False) -> Edge:
    """A fact in its newest version, seen from its source, or from its target."""
    ends = (row.target, row.source) if backward else (row.source, row.target)
    return Edge(*ends, forward=not backward, type=row.type, fact=row.id, version=row.versions[-1])
