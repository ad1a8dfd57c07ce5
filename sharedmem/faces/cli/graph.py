"""Commands on knowledge graphs: add, undo, merge, check, delete, and ask, entity, history, path, as-of, stats, draw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.faces.cli import graph_output as pictures
from sharedmem.faces.cli.app import Reads, command, graph, operation_command
from sharedmem.faces.cli.output import (
    confirm,
    empty_text,
    format_count,
    is_interactive,
    print_answer,
    progress,
    read_text,
    styled_text,
    without_total,
    write_line,
)
from sharedmem.faces.cli.session import Options, options_of, perform, use_store
from sharedmem.models import (
    Entity,
    EntityFacts,
    EntityMerge,
    Episode,
    EpisodeResult,
    Fact,
    GraphCheck,
    GraphDrawing,
    GraphStats,
    Record,
    Step,
)
from sharedmem.store import SharedMemoryStore
from sharedmem.visualization import as_dot, as_html, as_mermaid

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sharedmem.api.graph import EpisodePage, FactPage

Group = Annotated[str, typer.Option("--group", "-g", help="Whose graph, such as tenant:session.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of an entity.")]
_MOMENTS = ("occurred_at", "recorded_at")


def parse_moment(option: str, word: str | None) -> datetime | None:
    """A moment in ISO 8601; without a zone it is UTC.

    Raises:
        InvalidError: it is invalid.
    """
    if word is None:
        return None
    try:
        found = datetime.fromisoformat(word)
    except ValueError:
        raise InvalidError(option, word, "give a date such as 2024-03-01, or 2024-03-01T12:00+01:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


AsOf = Annotated[
    str | None,
    typer.Option(help="As it was in the world then (ISO 8601; UTC without a zone)."),
    Reads(partial(parse_moment, "as-of")),
]
KnownAt = Annotated[
    str | None,
    typer.Option(help="As it was known then (ISO 8601; UTC without a zone)."),
    Reads(partial(parse_moment, "known-at")),
]


def read_episodes(file: Path, group: str) -> list[Episode]:
    """The episodes of a file with a JSON object a line, each with the fields of an `Episode`, for one group.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it cannot be read, or a line is no episode of this group.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError("file", str(file)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("file", str(file), f"it cannot be read: {error}") from error
    return [_parse_episode(number, line, group) for number, line in _read_lines(text)]


def _read_lines(text: str) -> Iterator[tuple[int, str]]:
    # JSON may hold the line ends that `splitlines` knows besides line feeds.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def _parse_episode(number: int, line: str, group: str) -> Episode:
    fields = _parse_object(number, line)
    if fields.setdefault("group_id", group) != group:
        raise InvalidError(f"line {number}", fields["group_id"], f"it is of another group than {group!r}")
    for name in _MOMENTS:
        if isinstance(fields.get(name), str):
            fields[name] = parse_moment(f"line {number}: {name}", fields[name])
    try:
        return Episode.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise InvalidError(f"line {number}: {place}", problem["input"], problem["msg"].lower()) from None


def _parse_object(number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidError(f"line {number}", line, 'give a JSON object, such as {"content": "Ada lives in Oslo"}')
    return fields


_AT_ONCE = 32
"""Episodes between two moves of the bar."""


class AddedEpisodes(Record):
    """What became of a file of episodes."""

    episodes: int = 0
    repeated: int = 0
    facts: int = 0
    closed: int = 0
    failed: int = 0
    """Whose facts could not be extracted."""


@command("add", None, group=graph, example='sharedmem graph add "Ada lives in Oslo." --group acme:ada')
def graph_add(  # each field is an option
    context: typer.Context,
    text: Annotated[
        str | None, typer.Argument(help="What happened or was said; - or nothing reads standard input.")
    ] = None,
    *,
    group: Group,
    at: Annotated[str | None, typer.Option(help="When it happened; now when not given.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="An id of yours, which makes adding repeatable.")] = None,
    source: Annotated[str, typer.Option(help="What or who it comes from.")] = "message",
    session: Annotated[str | None, typer.Option(help="Which conversation it belongs to.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose it is.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="Add the episodes of this file: a JSON object a line, with content and more.")
    ] = None,
) -> None:
    """Add an episode to a graph: its statements become dated facts, and facts that it contradicts are closed."""
    options = options_of(context)
    if file is not None:
        if text is not None:
            raise InvalidError("text", text, "give a text or --file, not both")
        done = _add_episodes(options, read_episodes(file, group))
        print_answer(
            options,
            done,
            lambda: pictures.added_episodes_picture(done.episodes, done.repeated, done.facts, done.closed),
        )
        return
    fields = {
        "id": id_ or "",
        "occurred_at": parse_moment("at", at),
        "source": source,
        "session": session,
        "user": user,
    }
    content = read_text(text, "say what happened, or pipe it in")
    episode = Episode.model_validate({"content": content, "group_id": group, **fields})
    result = perform(options, "graph.add", episode=episode)
    print_answer(options, result, lambda: pictures.added_picture(result))


@operation_command("graph.undo", "undo", group=graph, example="sharedmem graph undo first-call --group acme:ada")
def graph_undo(
    result: EpisodeResult,
    episode_id: Annotated[str, typer.Argument(metavar="EPISODE", help="Id of the episode.")],
    *,
    group_id: Group,
) -> RenderableType:
    """Take back all that an episode said, and open again exactly what it had closed; what was known stays known."""
    return pictures.undone_picture(result)


@operation_command("graph.merge", "merge", group=graph, example="sharedmem graph merge Lovelace Ada --group acme:ada")
def graph_merge(
    merge: EntityMerge,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Name or id of the entity that is merged.")],
    into: Annotated[str, typer.Argument(metavar="INTO", help="Name or id of the entity that it is.")],
    *,
    group_id: Group,
    reason: Annotated[str, typer.Option(help="Why; it is kept.")] = "",
) -> RenderableType:
    """Say that two entities are one; unmerge takes them apart again."""
    return pictures.merge_picture(merge)


@operation_command("graph.unmerge", "unmerge", group=graph, example="sharedmem graph unmerge Lovelace --group acme:ada")
def graph_unmerge(merge: EntityMerge, entity: Name, *, group_id: Group) -> RenderableType:
    """Take an entity that was merged apart again."""
    return pictures.merge_picture(merge)


@command("check", None, group=graph, example="sharedmem graph check --group acme:ada")
def graph_check(
    context: typer.Context,
    *,
    group: Group,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write what is missing, remove what follows from nothing.")
    ] = False,
) -> None:
    """Recompute all facts of a graph from its episodes and report every difference; exit code 1 if one is left."""
    options = options_of(context)

    async def work(store: SharedMemoryStore) -> GraphCheck:
        with progress("checking", noun="episodes") as told:
            return await store.graph.check(group_id=group, repair=repair, progress=without_total(told))

    found = use_store(options, work)
    print_answer(options, found, lambda: pictures.check_picture(found))
    if not found.is_clean:
        raise typer.Exit(1)


@command("delete", None, group=graph, example="sharedmem graph delete --group acme:ada --yes")
def graph_delete(
    context: typer.Context,
    *,
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a graph with everything in it: episodes, entities, facts and their history."""
    options = options_of(context)
    if not yes:
        confirm(lambda: _deletion_question(options, group), "group", group)
    gone = perform(options, "graph.delete", group_id=group)
    print_answer(options, gone, lambda: styled_text((format_count(gone, "record"), "green"), " deleted"))


def _add_episodes(options: Options, episodes: list[Episode]) -> AddedEpisodes:
    """Add episodes a few at a time, with a bar; what was added before an error stays."""

    async def work(store: SharedMemoryStore) -> AddedEpisodes:
        done = AddedEpisodes()
        with progress("adding", total=len(episodes), noun="episodes") as told:
            for first in range(0, len(episodes), _AT_ONCE):
                page = episodes[first : first + _AT_ONCE]
                done = _add_counts(done, await store.graph.add_episodes(page))
                if told is not None:
                    told(done.episodes)
        return done

    return use_store(options, work)


def _add_counts(done: AddedEpisodes, results: list[EpisodeResult]) -> AddedEpisodes:
    return AddedEpisodes(
        episodes=done.episodes + len(results),
        repeated=done.repeated + sum(one.repeated for one in results),
        facts=done.facts + sum(len(one.facts) for one in results),
        closed=done.closed + sum(len(one.closed) for one in results),
        failed=done.failed + sum(one.episode.extraction == "failed" for one in results),
    )


def _deletion_question(options: Options, group: str) -> str:
    stats = perform(options, "graph.stats", group_id=group)
    what = f"{format_count(stats.episodes, 'episode')} and {format_count(stats.facts + stats.past_facts, 'fact')}"
    return f"Delete {what} of group {group}?"


FORMATS = ("mermaid", "dot", "html")


class RenderedGraph(Record):
    """A picture that was written into a file."""

    file: str
    entities: int
    facts: int
    truncated: bool


@command("search", None, group=graph, example='sharedmem graph search "where is Ada?" --group acme:ada --explain')
def graph_search(  # noqa: PLR0913  # each option narrows the question
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know.")],
    *,
    group: Group,
    as_of: AsOf = None,
    known_at: KnownAt = None,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many.")] = 20,
    depth: Annotated[int, typer.Option(help="Steps that are gone from the entities that the question names.")] = 2,
    session: Annotated[str | None, typer.Option(help="Only episodes of this conversation.")] = None,
    past: Annotated[bool, typer.Option("--past", help="Facts that do not hold any more, too.")] = False,
    prompt: Annotated[bool, typer.Option("--prompt", help="As one text for a model; --json gives the items.")] = False,
    max_tokens: Annotated[int, typer.Option(help="How long the text for a model may be.", min=1)] = 1_000,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each was found.")] = False,
) -> None:
    """Show what is worth knowing for a question, with where it comes from; no model is asked."""
    options = options_of(context)
    fields = {"group_id": group, "query": question, "k": limit, "depth": depth, "session": session}
    times = {"as_of": parse_moment("as-of", as_of), "known_at": parse_moment("known-at", known_at)}
    found = perform(options, "graph.search", **fields, **times, include_past=past, explain=explain)
    if prompt and not options.json:
        write_line(found.as_prompt(max_tokens))
    else:
        print_answer(options, found, lambda: pictures.context_picture(found))


@operation_command(
    "graph.entity", "entity", group=graph, example="sharedmem graph entity Ada --group acme:ada --as-of 2024-06-01"
)
def graph_entity(
    found: EntityFacts, entity: Name, *, group_id: Group, as_of: AsOf = None, known_at: KnownAt = None
) -> RenderableType:
    """Show an entity and what holds of it, now or at another time."""
    return pictures.entity_picture(found)


@operation_command("graph.history", "history", group=graph, example="sharedmem graph history Ada --group acme:ada")
def graph_history(
    facts: list[Fact],
    entity: Name,
    *,
    group_id: Group,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many versions.")] = 1_000,
) -> RenderableType:
    """Show every version of every fact of an entity: when it was true, and when that was known."""
    return pictures.history_picture(facts)


@operation_command(
    "graph.entity_versions", "versions", group=graph, example="sharedmem graph versions Ada --group acme:ada"
)
def graph_versions(versions: list[Entity], entity: Name, *, group_id: Group) -> RenderableType:
    """Show every version of an entity: its types, summaries, names and merges, when true and when known."""
    return pictures.versions_picture(versions)


@operation_command("graph.path", "path", group=graph, example="sharedmem graph path Ada Oslo --group acme:ada")
def graph_path(
    steps: list[Step],
    a: Annotated[str, typer.Argument(metavar="A", help="Name or id of an entity.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Name or id of another one.")],
    *,
    group_id: Group,
    as_of: AsOf = None,
    known_at: KnownAt = None,
) -> RenderableType:
    """Show a shortest way along facts from one entity to another."""
    return pictures.path_picture(steps)


@operation_command("graph.as_of", "as-of", group=graph, example="sharedmem graph as-of 2024-06-01 --group acme:ada")
def graph_as_of(
    page: FactPage,
    when: Annotated[
        str,
        typer.Argument(metavar="WHEN", help="A date or a moment (ISO 8601); UTC without a zone."),
        Reads(partial(parse_moment, "when")),
    ],
    *,
    group_id: Group,
    known_at: KnownAt = None,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many.")] = 100,
    after: Annotated[str, typer.Option(help="Go on behind this page.")] = "",
) -> RenderableType:
    """Show all that was true at a moment, as it is known now or was known at another one."""
    return pictures.facts_picture(page.items, cursor=page.cursor)


@operation_command("graph.stats", "stats", group=graph, example="sharedmem graph stats --group acme:ada")
def graph_stats(stats: GraphStats, *, group_id: Group) -> RenderableType:
    """Show what a graph holds."""
    return pictures.stats_picture(stats)


@operation_command("graph.episodes", "episodes", group=graph, example="sharedmem graph episodes --group acme:ada")
def graph_episodes(
    page: EpisodePage,
    *,
    group_id: Group,
    session: Annotated[str | None, typer.Option(help="Only of this conversation.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many.")] = 20,
    after: Annotated[str, typer.Option(help="Go on behind this page.")] = "",
) -> RenderableType:
    """Show episodes, oldest first, page by page."""
    return pictures.episodes_picture(page.items, page.cursor)


@operation_command("graph.groups", "groups", group=graph, example="sharedmem graph groups")
def graph_groups(groups: list[str]) -> RenderableType:
    """Show which groups of the namespace have a graph."""
    return pictures.groups_picture(groups)


@command("draw", None, group=graph, example="sharedmem graph draw --group acme:ada --format mermaid")
def graph_draw(  # each option says what to draw, or how
    context: typer.Context,
    *,
    group: Group,
    entity: Annotated[str | None, typer.Option(help="Draw what is around this entity; else everything.")] = None,
    format_: Annotated[
        str, typer.Option("--format", help="mermaid, dot (Graphviz), or html: a page with sliders for both times.")
    ] = "mermaid",
    out: Annotated[Path | None, typer.Option(help="Write it into this file.")] = None,
    as_of: Annotated[str | None, typer.Option(help="Only what held then; not for html, which shows all times.")] = None,
    depth: Annotated[int, typer.Option(help="Steps around the entity.")] = 2,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Draw at most that many facts.")] = 500,
) -> None:
    """Draw a graph as a diagram, or as a page that shows it at any time; --json gives what pictures are made from."""
    options = options_of(context)
    at = parse_moment("as-of", as_of)
    _check_drawing(options, format_, out, at)
    drawing = perform(options, "graph.draw", group_id=group, entity=entity, depth=depth, limit=limit)
    if out is not None:
        out.write_text(_render_graph(drawing, format_, at), encoding="utf-8")
        done = RenderedGraph(
            file=str(out), entities=len(drawing.entities), facts=len(drawing.facts), truncated=drawing.truncated
        )
        what = f"{format_count(done.facts, 'fact')}{', a part of the graph' if done.truncated else ''}"
        print_answer(options, done, lambda: styled_text(("drawn: ", "green"), f"{what} into {out}"))
    elif options.json:
        print_answer(options, drawing, empty_text)
    else:
        write_line(_render_graph(drawing, format_, at).rstrip("\n"))


def _check_drawing(options: Options, format_: str, out: Path | None, at: datetime | None) -> None:
    if format_ not in FORMATS:
        raise InvalidError("format", format_, f"give one of {', '.join(FORMATS)}")
    if format_ != "html":
        return
    if at is not None:
        raise InvalidError("as-of", at.isoformat(), "a page shows all times; go there with its slider")
    if out is None and is_interactive(options):
        raise InvalidError("format", format_, "a page is nothing for a terminal; say --out FILE.html, then open it")


def _render_graph(drawing: GraphDrawing, format_: str, at: datetime | None) -> str:
    if format_ == "html":
        return as_html(drawing)
    return as_dot(drawing, at) if format_ == "dot" else as_mermaid(drawing, at)
