"""Drawings of graphs that tests look at, made without a store."""

from __future__ import annotations

from datetime import UTC, datetime

from sharedmem.models import DrawnEntity, DrawnEpisode, DrawnFact, DrawnVersion, GraphDrawing


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def version(start: str | None, end: str | None, recorded: str, superseded: str | None = None) -> DrawnVersion:
    """What was known from `recorded` until `superseded`; dates as text."""
    return DrawnVersion(
        valid_from=day(start) if start else None,
        valid_to=day(end) if end else None,
        recorded_at=day(recorded),
        superseded_at=day(superseded) if superseded else None,
    )


def entity(id_: str, name: str, type_: str = "", *aliases: str) -> DrawnEntity:
    return DrawnEntity(id=id_, name=name, type=type_, aliases=aliases, recorded_at=day("2020-01-01"))


def fact(
    id_: str, source: str, type_: str, target: str | None, *versions: DrawnVersion, value: str = "", text: str = ""
) -> DrawnFact:
    return DrawnFact(
        id=id_,
        source_id=source,
        type=type_,
        target_id=target,
        value=value,
        fact=text or f"{source} {type_} {target or value}",
        versions=versions,
        episode_ids=("e1",),
    )


def drawing_of_a_move(**changes: object) -> GraphDrawing:
    """Ada moves from Oslo to Rome in 2022, which is learned in 2023; she works for Acme from 2021."""
    drawing = GraphDrawing(
        group_id="acme:moves",
        drawn_at=day("2024-06-01"),
        entities=(
            entity("ada", "Ada", "person", "Countess"),
            entity("oslo", "Oslo", "city"),
            entity("rome", "Rome", "city"),
            entity("acme", "Acme", "company"),
        ),
        facts=(
            fact(
                "f-oslo",
                "ada",
                "lives_in",
                "oslo",
                version("2020-01-01", None, "2020-02-01", "2023-03-01"),
                version("2020-01-01", "2022-05-01", "2023-03-01"),
                text="Ada lives in Oslo",
            ),
            fact(
                "f-rome", "ada", "lives_in", "rome", version("2022-05-01", None, "2023-03-01"), text="Ada lives in Rome"
            ),
            fact(
                "f-acme",
                "ada",
                "works_for",
                "acme",
                version("2021-01-01", None, "2021-01-02"),
                text="Ada works for Acme",
            ),
            fact(
                "f-age",
                "ada",
                "@mood",
                None,
                version(None, None, "2020-02-01"),
                value="calm",
                text="Ada's mood is calm",
            ),
        ),
        episodes=(DrawnEpisode(id="e1", text="She told us all of it.", source="crm", occurred_at=day("2023-03-01")),),
    )
    return drawing.model_copy(update=changes)
