"""Commands that ask a knowledge graph: graph ask, entity, history, path, as-of, stats, episodes, groups, draw."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.cli import graph_pictures as pictures
from sharedmem.faces.cli.app import command, graph
from sharedmem.faces.cli.graph_words import AsOf, Group, KnownAt, Name, moment, times
from sharedmem.faces.cli.output import answer, counted, is_for_people, nothing, said, write_line
from sharedmem.faces.cli.session import Options, options_of, perform
from sharedmem.faces.operations import graph as table_of
from sharedmem.knowledge.graph.diagrams import as_dot, as_mermaid
from sharedmem.knowledge.graph.page import as_html
from sharedmem.models import GraphDrawing, Record

FORMATS = ("mermaid", "dot", "html")


class Drawn(Record):
    """A picture that was written into a file."""

    file: str
    entities: int
    facts: int
    truncated: bool


@command("ask", None, group=graph, example='sharedmem graph ask "where does Ada live?" --group acme:ada --explain')
def graph_ask(  # noqa: PLR0913  # each option narrows the question
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
    request = table_of.GraphAsk.model_validate(
        fields | times(as_of, known_at) | {"include_past": past, "explain": explain}
    )
    found = perform(options, table_of.GRAPH_ASK, request)
    if prompt and not options.json:
        write_line(found.as_prompt(max_tokens))
    else:
        answer(options, found, lambda: pictures.context_picture(found))


@command("entity", None, group=graph, example="sharedmem graph entity Ada --group acme:ada --as-of 2024-06-01")
def graph_entity(
    context: typer.Context, name: Name, *, group: Group, as_of: AsOf = None, known_at: KnownAt = None
) -> None:
    """Show an entity and what holds of it, now or at another time."""
    options = options_of(context)
    fields = {"group_id": group, "entity": name}
    told = perform(options, table_of.GRAPH_ENTITY, table_of.OnEntityAt.model_validate(fields | times(as_of, known_at)))
    answer(options, told, lambda: pictures.entity_picture(told))


@command("history", None, group=graph, example="sharedmem graph history Ada --group acme:ada")
def graph_history(
    context: typer.Context,
    name: Name,
    *,
    group: Group,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many versions.")] = 1_000,
) -> None:
    """Show every version of every fact of an entity: when it was true, and when that was known."""
    options = options_of(context)
    request = table_of.GraphHistory(group_id=group, entity=name, limit=limit)
    facts = perform(options, table_of.GRAPH_HISTORY, request)
    answer(options, facts, lambda: pictures.history_picture(facts))


@command("path", None, group=graph, example="sharedmem graph path Ada Oslo --group acme:ada")
def graph_path(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="Name or id of an entity.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Name or id of another one.")],
    *,
    group: Group,
    as_of: AsOf = None,
    known_at: KnownAt = None,
) -> None:
    """Show a shortest way along facts from one entity to another."""
    options = options_of(context)
    fields = {"group_id": group, "a": a, "b": b}
    steps = perform(options, table_of.GRAPH_PATH, table_of.GraphPath.model_validate(fields | times(as_of, known_at)))
    answer(options, steps, lambda: pictures.path_picture(steps))


@command("as-of", None, group=graph, example="sharedmem graph as-of 2024-06-01 --group acme:ada")
def graph_as_of(
    context: typer.Context,
    when: Annotated[str, typer.Argument(metavar="WHEN", help="A date or a moment (ISO 8601); UTC without a zone.")],
    *,
    group: Group,
    known_at: KnownAt = None,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many.")] = 100,
    after: Annotated[str, typer.Option(help="Go on behind this page.")] = "",
) -> None:
    """Show all that was true at a moment, as it is known now or was known at another one."""
    options = options_of(context)
    fields = {"group_id": group, "when": moment("when", when), "known_at": moment("known-at", known_at)}
    request = table_of.GraphAsOf.model_validate(fields | {"limit": limit, "after": after})
    page = perform(options, table_of.GRAPH_AS_OF, request)
    answer(options, page, lambda: pictures.facts_picture(page.items, cursor=page.cursor))


@command("stats", None, group=graph, example="sharedmem graph stats --group acme:ada")
def graph_stats(context: typer.Context, *, group: Group) -> None:
    """Show what a graph holds."""
    options = options_of(context)
    stats = perform(options, table_of.GRAPH_STATS, table_of.OnGroup(group_id=group))
    answer(options, stats, lambda: pictures.stats_picture(stats))


@command("episodes", None, group=graph, example="sharedmem graph episodes --group acme:ada")
def graph_episodes(
    context: typer.Context,
    *,
    group: Group,
    session: Annotated[str | None, typer.Option(help="Only of this conversation.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many.")] = 20,
    after: Annotated[str, typer.Option(help="Go on behind this page.")] = "",
) -> None:
    """Show episodes, oldest first, page by page."""
    options = options_of(context)
    request = table_of.GraphEpisodes(group_id=group, session=session, limit=limit, after=after)
    page = perform(options, table_of.GRAPH_EPISODES, request)
    answer(options, page, lambda: pictures.episodes_picture(page.items, page.cursor))


@command("groups", None, group=graph, example="sharedmem graph groups")
def graph_groups(context: typer.Context) -> None:
    """Show which groups of the namespace have a graph."""
    options = options_of(context)
    groups = perform(options, table_of.GRAPH_GROUPS, table_of.OnGroups())
    answer(options, groups, lambda: pictures.groups_picture(groups))


@command("draw", None, group=graph, example="sharedmem graph draw --group acme:ada --format mermaid")
def graph_draw(  # each option says what to draw, or how
    context: typer.Context,
    *,
    group: Group,
    entity: Annotated[str | None, typer.Option(help="Draw what lies around this entity; else everything.")] = None,
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
    at = moment("as-of", as_of)
    _check_drawing(options, format_, out, at)
    request = table_of.GraphDraw(group_id=group, entity=entity, depth=depth, limit=limit)
    drawing = perform(options, table_of.GRAPH_DRAW, request)
    if out is not None:
        out.write_text(_rendered(drawing, format_, at), encoding="utf-8")
        done = Drawn(
            file=str(out), entities=len(drawing.entities), facts=len(drawing.facts), truncated=drawing.truncated
        )
        what = f"{counted(done.facts, 'fact')}{', a part of the graph' if done.truncated else ''}"
        answer(options, done, lambda: said(("drawn: ", "green"), f"{what} into {out}"))
    elif options.json:
        answer(options, drawing, nothing)
    else:
        write_line(_rendered(drawing, format_, at).rstrip("\n"))


def _check_drawing(options: Options, format_: str, out: Path | None, at: datetime | None) -> None:
    if format_ not in FORMATS:
        raise InvalidError("format", format_, f"give one of {', '.join(FORMATS)}")
    if format_ != "html":
        return
    if at is not None:
        raise InvalidError("as-of", at.isoformat(), "a page shows all times; go there with its slider")
    if out is None and is_for_people(options):
        raise InvalidError("format", format_, "a page is nothing for a terminal; say --out FILE.html, then open it")


def _rendered(drawing: GraphDrawing, format_: str, at: datetime | None) -> str:
    if format_ == "html":
        return as_html(drawing)
    return as_dot(drawing, at) if format_ == "dot" else as_mermaid(drawing, at)
