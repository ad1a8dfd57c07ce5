"""How people see graphs on a terminal: facts with their dates, entities, ways, and what became of an episode."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, time
from typing import TYPE_CHECKING

from sharedmem.faces.cli.output import cell, counted, harmless, nothing, pairs, said, table
from sharedmem.faces.operations import graph as table_of
from sharedmem.models import (
    ContextItem,
    ContextSet,
    EntityMerge,
    Episode,
    EpisodeResult,
    Fact,
    GraphCheck,
    GraphStats,
    Step,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_LONGEST = 160


def day(moment: datetime | None, *, otherwise: str) -> str:
    """A moment as short as it can be told."""
    if moment is None:
        return otherwise
    whole = moment.timetz().replace(tzinfo=None) == time.min
    return f"{moment.date()}" if whole else f"{moment.date()} {moment:%H:%M}"


def added_picture(result: EpisodeResult) -> RenderableType:
    """What an episode said, and what it closed."""
    if result.repeated:
        return said(("known: ", "yellow"), f"{result.id} was there already; nothing has changed")
    lines = [said(("added: ", "green"), harmless(result.id), (f"  {_extraction(result)}", "dim"))]
    lines += [said(("  + ", "green"), _told(fact)) for fact in result.facts]
    lines += [said(("  - ", "red"), _told(fact)) for fact in result.closed]
    lines += [said(("  ! ", "yellow"), harmless(warning)) for warning in result.warnings]
    return _together(lines)


def undone_picture(result: EpisodeResult) -> RenderableType:
    """What changed when an episode was taken back."""
    if result.repeated:
        return said(("undone before: ", "yellow"), harmless(result.id))
    lines = [said(("undone: ", "green"), harmless(result.id))]
    return _together([*lines, *(said("  ", _told(fact)) for fact in (*result.facts, *result.closed))])


def filed_picture(added: int, repeated: int, facts: int, closed: int) -> Text:
    """What became of a file of episodes."""
    known = f", {repeated:,} were there already" if repeated else ""
    rest = f"{counted(facts, 'fact')}, {closed:,} closed"
    return said((counted(added, "episode"), "green"), " added", (f"{known}; {rest}", "dim"))


def context_picture(found: ContextSet) -> RenderableType:
    """What was found for a question, best first."""
    if not found.items:
        return _together([nothing(), *_degraded(found)])
    picture = table("score", "kind", "what", "when", "said by", right=["score"])
    for item in found.items:
        picture.add_row(
            said((f"{item.score:.3f}", "cyan")), _kind(item), _item(item), said((_times(item), "dim")), _origin(item)
        )
    cost = f"{counted(found.round_trips, 'round trip')}, {found.milliseconds:.1f} ms"
    return _together([picture, *_degraded(found), said((cost, "dim"))])


def entity_picture(told: table_of.EntityFacts) -> RenderableType:
    """An entity with its facts."""
    entity = told.entity
    rows: list[tuple[str, object]] = [("id", entity.id)]
    if entity.aliases:
        more = (
            f" and {entity.alias_count - len(entity.aliases)} more" if entity.alias_count > len(entity.aliases) else ""
        )
        rows.append(("also", f"{', '.join(entity.aliases)}{more}"))
    rows += [("about", entity.summary)] if entity.summary else []
    rows += [(name, _plain(value)) for name, value in entity.attributes.items()]
    kind = f"  {harmless(entity.type)}" if entity.type else ""
    relations = [fact for fact in told.facts if fact.target_id is not None]
    return _together(
        [said((harmless(entity.name), "bold"), (kind, "magenta")), pairs(rows), "", facts_picture(relations)]
    )


def facts_picture(facts: Sequence[Fact], *, cursor: str = "") -> RenderableType:
    """Facts with the time during which they hold."""
    if not facts:
        return nothing()
    picture = table("fact", "from", "until", "said by", "id")
    for fact in facts:
        style = "dim" if fact.valid_to else ""
        start = day(fact.valid_from, otherwise="unknown")
        picture.add_row(
            _told(fact), start, said((day(fact.valid_to, otherwise="-"), style)), _sayers(fact), _id(fact.id)
        )
    return _together([picture, *_more(cursor, "--after")])


def history_picture(facts: Sequence[Fact]) -> RenderableType:
    """Versions of facts: when they were true, and when that was known."""
    if not facts:
        return nothing()
    picture = table("fact", "true from", "until", "known from", "until", "said by")
    for fact in facts:
        wrong = fact.superseded_at is not None
        words = said((harmless(_short(fact.fact)), "dim strike" if wrong else "" if fact.valid_to else "green"))
        times = (
            day(fact.valid_from, otherwise="unknown"),
            day(fact.valid_to, otherwise="-"),
            day(fact.recorded_at, otherwise="-"),
            day(fact.superseded_at, otherwise="-"),
        )
        picture.add_row(words, *(said((one, "dim" if wrong else "")) for one in times), _sayers(fact))
    return picture


def path_picture(steps: Sequence[Step]) -> RenderableType:
    """A way, a step a line."""
    if not steps:
        return nothing()
    lines = []
    for step in steps:
        fact, (left, right) = step.fact, ("──", "──▶") if step.forward else ("◀──", "──")
        ends = (fact.source_name, fact.target_name) if step.forward else (fact.target_name, fact.source_name)
        arrow = (f" {left} {harmless(fact.type)} {right} ", "cyan")
        dates = f"  {_interval(fact.valid_from, fact.valid_to)}"
        lines.append(said((harmless(ends[0]), "bold"), arrow, (harmless(ends[1]), "bold"), (dates, "dim")))
    return _together(lines)


def merge_picture(merge: EntityMerge) -> RenderableType:
    """Which entities were taken for one, or apart again."""
    word, style = ("merged: ", "green") if merge.undone_at is None else ("apart again: ", "yellow")
    reason = f"  {harmless(merge.reason)}" if merge.reason else ""
    return said((word, style), harmless(f"{merge.source_id} into {merge.into_id}"), (reason, "dim"))


def check_picture(check: GraphCheck) -> RenderableType:
    """What checking a graph has found."""
    seen = f"{counted(check.facts, 'fact')} of {counted(check.claims, 'claim')} in {counted(check.episodes, 'episode')}"
    if not check.problems:
        return said(("clean: ", "green"), f"{seen} of {harmless(check.group_id)}")
    picture = table("problem", "record", "what", "repair")
    for problem in check.problems:
        done = said(("done: ", "green"), harmless(problem.repair)) if problem.repaired else cell(problem.repair)
        picture.add_row(
            said((problem.kind, "yellow" if problem.repaired else "red")),
            cell(problem.id),
            cell(problem.explanation),
            done,
        )
    return _together([picture, said((f"{seen} of {harmless(check.group_id)}", "dim"))])


def stats_picture(stats: GraphStats) -> RenderableType:
    """What a graph holds."""
    numbers = stats.model_dump(exclude={"group_id"})
    return pairs([(name.replace("_", " "), f"{count:,}") for name, count in numbers.items()], title=stats.group_id)


def episodes_picture(episodes: Sequence[Episode], cursor: str) -> RenderableType:
    """Episodes, with what became of them."""
    if not episodes:
        return nothing()
    picture = table("id", "happened", "from", "what", "facts", right=["facts"])
    for episode in episodes:
        text = episode.content if isinstance(episode.content, str) else _plain(episode.content)
        words = said((harmless(_short(text)), "dim strike" if episode.undone_at else ""))
        happened = day(episode.occurred_at, otherwise="-")
        picture.add_row(_id(episode.id), happened, cell(episode.source), words, f"{len(episode.fact_ids):,}")
    return _together([picture, *_more(cursor, "--after")])


def groups_picture(groups: Sequence[str]) -> RenderableType:
    """The groups, a line each."""
    return _together([cell(group) for group in groups]) if groups else nothing()


# -- parts ----------------------------------------------------------------------------------------


def _together(parts: Iterable[RenderableType]) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    return Group(*parts)


def _told(fact: Fact) -> Text:
    words = said(harmless(_short(fact.fact)))
    words.append(f"  {_interval(fact.valid_from, fact.valid_to)}" if fact.valid_to else "", style="dim")
    return words


def _interval(start: datetime | None, end: datetime | None) -> str:
    until = f" until {day(end, otherwise='')}" if end else ""
    return f"since {day(start, otherwise='an unknown time')}{until}"


def _extraction(result: EpisodeResult) -> str:
    told = f"{len(result.entities):,} mentioned, {counted(len(result.facts), 'fact')}"
    return f"{told}; its facts could not be extracted" if result.episode.extraction == "failed" else told


def _item(item: ContextItem) -> Table | Text:
    words = cell(_short(item.text))
    for name, value in sorted(item.signals.items(), key=lambda signal: -abs(signal[1])):
        words.append(f"\n  {name} {value:+.3f}", style="green" if value > 0 else "red")
    if item.signals and item.path:
        words.append(f"\n  {' > '.join(harmless(step.fact.type) for step in item.path)}", style="dim")
    return words


def _kind(item: ContextItem) -> Text:
    styles = {"fact": "green", "entity": "magenta", "summary": "yellow"}
    return said((item.kind, styles.get(item.kind, "blue")))


def _times(item: ContextItem) -> str:
    if item.kind == "fact":
        return _interval(item.valid_from, item.valid_to)
    return day(item.occurred_at, otherwise="")


def _origin(item: ContextItem) -> Text:
    return said((harmless(", ".join(item.episode_ids[:2])), "dim cyan"))


def _degraded(found: ContextSet) -> list[Text]:
    return [said(("searched by words alone: ", "yellow"), found.degraded)] if found.degraded else []


def _sayers(fact: Fact) -> Text:
    more = f" +{len(fact.episode_ids) - 2}" if len(fact.episode_ids) > 2 else ""
    return said((harmless(", ".join(fact.episode_ids[:2])) + more, "dim cyan"))


def _id(text: str) -> Text:
    return said((harmless(text), "dim cyan"))


def _more(cursor: str, option: str) -> list[Text]:
    return [said((f"there are more: {option} {harmless(cursor)}", "dim"))] if cursor else []


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"
