"""Terminal output of graphs: facts with their dates, entities, paths, episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, time
from typing import TYPE_CHECKING

from sharedmem.faces.cli.output import (
    cell,
    dim,
    empty_text,
    escape_control,
    fields_table,
    format_count,
    rows_table,
    stack,
    styled_text,
    table,
)
from sharedmem.models import (
    ContextItem,
    ContextSet,
    Entity,
    EntityFacts,
    EntityMerge,
    Episode,
    EpisodeResult,
    Fact,
    GraphCheck,
    GraphProblem,
    GraphStats,
    NoteProblem,
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
        return styled_text(("known: ", "yellow"), f"{result.id} was there already; nothing has changed")
    lines = [styled_text(("added: ", "green"), escape_control(result.id), (f"  {_extraction(result)}", "dim"))]
    lines += [styled_text(("  + ", "green"), _fact_text(fact)) for fact in result.facts]
    lines += [styled_text(("  - ", "red"), _fact_text(fact)) for fact in result.closed]
    lines += [styled_text(("  ! ", "yellow"), escape_control(warning)) for warning in result.warnings]
    return stack(*lines)


def undone_picture(result: EpisodeResult) -> RenderableType:
    """What changed when an episode was taken back."""
    if result.repeated:
        return styled_text(("undone before: ", "yellow"), escape_control(result.id))
    lines = [styled_text(("undone: ", "green"), escape_control(result.id))]
    return stack(*lines, *(styled_text("  ", _fact_text(fact)) for fact in (*result.facts, *result.closed)))


def added_episodes_picture(added: int, repeated: int, facts: int, closed: int) -> Text:
    """What became of a file of episodes."""
    known = f", {repeated:,} were there already" if repeated else ""
    rest = f"{format_count(facts, 'fact')}, {closed:,} closed"
    return styled_text((format_count(added, "episode"), "green"), " added", (f"{known}; {rest}", "dim"))


def context_picture(found: ContextSet) -> RenderableType:
    """What was found for a question, best first."""
    if not found.items:
        return stack(empty_text(), *_degraded(found))
    rows = [
        (
            styled_text((f"{item.score:.3f}", "cyan")),
            _kind(item),
            _item(item),
            dim(_times(item)),
            _origin(item),
        )
        for item in found.items
    ]
    picture = rows_table(rows, "score", "kind", "what", "when", "said by", right=["score"])
    cost = f"{format_count(found.round_trips, 'round trip')}, {found.milliseconds:.1f} ms"
    return stack(picture, *_degraded(found), dim(cost))


def entity_picture(told: EntityFacts) -> RenderableType:
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
    kind = f"  {escape_control(entity.type)}" if entity.type else ""
    relations = [fact for fact in told.facts if fact.target_id is not None]
    heading = styled_text((escape_control(entity.name), "bold"), (kind, "magenta"))
    return stack(heading, fields_table(rows), "", facts_picture(relations))


def facts_picture(facts: Sequence[Fact], *, cursor: str = "") -> RenderableType:
    """Facts with the time during which they hold."""
    if not facts:
        return empty_text()
    rows = [
        (
            _fact_text(fact),
            day(fact.valid_from, otherwise="unknown"),
            styled_text((day(fact.valid_to, otherwise="-"), "dim" if fact.valid_to else "")),
            _fact_episodes(fact),
            _id(fact.id),
        )
        for fact in facts
    ]
    return stack(rows_table(rows, "fact", "from", "until", "said by", "id"), *_more(cursor, "--after"))


def history_picture(facts: Sequence[Fact]) -> RenderableType:
    """Versions of facts: when they were true, and when that was known."""
    if not facts:
        return empty_text()
    picture = table("fact", "true from", "until", "known from", "until", "said by")
    for fact in facts:
        wrong = fact.superseded_at is not None
        words = styled_text(
            (escape_control(_shorten(fact.fact)), "dim strike" if wrong else "" if fact.valid_to else "green")
        )
        times = (
            day(fact.valid_from, otherwise="unknown"),
            day(fact.valid_to, otherwise="-"),
            day(fact.recorded_at, otherwise="-"),
            day(fact.superseded_at, otherwise="-"),
        )
        picture.add_row(words, *(styled_text((one, "dim" if wrong else "")) for one in times), _fact_episodes(fact))
    return picture


def versions_picture(versions: Sequence[Entity]) -> RenderableType:
    """Versions of an entity: when they were true, and when that was known."""
    picture = table("type", "summary", "names", "merged into", "true from", "until", "known from", "until")
    for one in versions:
        style = "dim" if one.superseded_at is not None else ""
        cells = (
            escape_control(one.type),
            escape_control(_shorten(one.summary)),
            escape_control(_shorten(", ".join(one.aliases))),
            escape_control(one.merged_into or ""),
            day(one.valid_from, otherwise="unknown"),
            day(one.valid_to, otherwise="-"),
            day(one.recorded_at, otherwise="-"),
            day(one.superseded_at, otherwise="-"),
        )
        picture.add_row(*(styled_text((cell, style)) for cell in cells))
    return picture


def path_picture(steps: Sequence[Step]) -> RenderableType:
    """A way, a step a line."""
    if not steps:
        return empty_text()
    lines = []
    for step in steps:
        fact, (left, right) = step.fact, ("──", "──▶") if step.forward else ("◀──", "──")
        ends = (fact.source_name, fact.target_name) if step.forward else (fact.target_name, fact.source_name)
        arrow = (f" {left} {escape_control(fact.type)} {right} ", "cyan")
        dates = f"  {_interval(fact.valid_from, fact.valid_to)}"
        lines.append(
            styled_text((escape_control(ends[0]), "bold"), arrow, (escape_control(ends[1]), "bold"), (dates, "dim"))
        )
    return stack(*lines)


def merge_picture(merge: EntityMerge) -> RenderableType:
    """Which entities were taken for one, or apart again."""
    word, style = ("merged: ", "green") if merge.undone_at is None else ("apart again: ", "yellow")
    reason = f"  {escape_control(merge.reason)}" if merge.reason else ""
    return styled_text((word, style), escape_control(f"{merge.source_id} into {merge.into_id}"), (reason, "dim"))


def check_picture(check: GraphCheck) -> RenderableType:
    """What checking a graph has found."""
    facts, claims = format_count(check.facts, "fact"), format_count(check.claims, "claim")
    seen = f"{facts} of {claims} in {format_count(check.episodes, 'episode')}"
    if not check.problems:
        return styled_text(("clean: ", "green"), f"{seen} of {escape_control(check.group_id)}")
    rows = [problem_row(one, one.id) for one in check.problems]
    table = rows_table(rows, "problem", "record", "what", "repair")
    return stack(table, dim(f"{seen} of {escape_control(check.group_id)}"))


def problem_row(problem: GraphProblem | NoteProblem, record: str) -> tuple[object, ...]:
    """What a check has found: the kind of problem, where, what it is, and its repair."""
    kind = styled_text((problem.kind, "yellow" if problem.repaired else "red"))
    done = ("done: ", "green") if problem.repaired else ""
    return kind, record, problem.explanation, styled_text(done, escape_control(problem.repair))


def stats_picture(stats: GraphStats) -> RenderableType:
    """What a graph holds."""
    numbers = stats.model_dump(exclude={"group_id"})
    return fields_table(
        [(name.replace("_", " "), f"{count:,}") for name, count in numbers.items()], title=stats.group_id
    )


def episodes_picture(episodes: Sequence[Episode], cursor: str) -> RenderableType:
    """Episodes, with what became of them."""
    if not episodes:
        return empty_text()
    rows = []
    for episode in episodes:
        text = episode.content if isinstance(episode.content, str) else _plain(episode.content)
        words = styled_text((escape_control(_shorten(text)), "dim strike" if episode.undone_at else ""))
        happened = day(episode.occurred_at, otherwise="-")
        rows.append((_id(episode.id), happened, episode.source, words, f"{len(episode.fact_ids):,}"))
    picture = rows_table(rows, "id", "happened", "from", "what", "facts", right=["facts"])
    return stack(picture, *_more(cursor, "--after"))


def groups_picture(groups: Sequence[str]) -> RenderableType:
    """The groups, a line each."""
    return stack(*map(cell, groups)) if groups else empty_text()


# -- parts ----------------------------------------------------------------------------------------


def _fact_text(fact: Fact) -> Text:
    words = styled_text(escape_control(_shorten(fact.fact)))
    words.append(f"  {_interval(fact.valid_from, fact.valid_to)}" if fact.valid_to else "", style="dim")
    return words


def _interval(start: datetime | None, end: datetime | None) -> str:
    until = f" until {day(end, otherwise='')}" if end else ""
    return f"since {day(start, otherwise='an unknown time')}{until}"


def _extraction(result: EpisodeResult) -> str:
    told = f"{len(result.entities):,} mentioned, {format_count(len(result.facts), 'fact')}"
    return f"{told}; its facts could not be extracted" if result.episode.extraction == "failed" else told


def _item(item: ContextItem) -> Table | Text:
    words = cell(_shorten(item.text))
    for name, value in sorted(item.signals.items(), key=lambda signal: -abs(signal[1])):
        words.append(f"\n  {name} {value:+.3f}", style="green" if value > 0 else "red")
    if item.signals and item.path:
        words.append(f"\n  {' > '.join(escape_control(step.fact.type) for step in item.path)}", style="dim")
    return words


def _kind(item: ContextItem) -> Text:
    styles = {"fact": "green", "entity": "magenta", "summary": "yellow"}
    return styled_text((item.kind, styles.get(item.kind, "blue")))


def _times(item: ContextItem) -> str:
    if item.kind == "fact":
        return _interval(item.valid_from, item.valid_to)
    return day(item.occurred_at, otherwise="")


def _origin(item: ContextItem) -> Text:
    return styled_text((escape_control(", ".join(item.episode_ids[:2])), "dim cyan"))


def _degraded(found: ContextSet) -> list[Text]:
    return [styled_text(("searched by words alone: ", "yellow"), found.degraded)] if found.degraded else []


def _fact_episodes(fact: Fact) -> Text:
    more = f" +{len(fact.episode_ids) - 2}" if len(fact.episode_ids) > 2 else ""
    return styled_text((escape_control(", ".join(fact.episode_ids[:2])) + more, "dim cyan"))


def _id(text: str) -> Text:
    return styled_text((escape_control(text), "dim cyan"))


def _more(cursor: str, option: str) -> list[Text]:
    return [styled_text((f"there are more: {option} {escape_control(cursor)}", "dim"))] if cursor else []


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"
