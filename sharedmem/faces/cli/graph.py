"""Commands that change or check a knowledge graph: graph add, undo, merge, unmerge, check, delete."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.cli import graph_pictures as pictures
from sharedmem.faces.cli.app import command, graph
from sharedmem.faces.cli.graph_words import Group, Name, episodes_of, moment
from sharedmem.faces.cli.output import answer, counted, progress, said
from sharedmem.faces.cli.session import Options, opened, options_of, perform
from sharedmem.faces.operations import graph as table_of
from sharedmem.models import Episode, EpisodeResult, GraphCheck, Record

_AT_ONCE = 32
"""Episodes between two moves of the bar."""


class Filed(Record):
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
    """Tell a graph what happened; what it says becomes dated facts, and facts that it contradicts are closed."""
    options = options_of(context)
    if file is not None:
        if text is not None:
            raise InvalidError("text", text, "give a text or --file, not both")
        done = _file_added(options, episodes_of(file, group))
        answer(options, done, lambda: pictures.filed_picture(done.episodes, done.repeated, done.facts, done.closed))
        return
    fields = {"id": id_ or "", "occurred_at": moment("at", at), "source": source, "session": session, "user": user}
    episode = Episode.model_validate({"content": _given_text(text), "group_id": group, **fields})
    result = perform(options, table_of.GRAPH_ADD, table_of.GraphAdd(episode=episode))
    answer(options, result, lambda: pictures.added_picture(result))


@command("undo", None, group=graph, example="sharedmem graph undo first-call --group acme:ada")
def graph_undo(
    context: typer.Context,
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="Id of the episode.")],
    *,
    group: Group,
) -> None:
    """Take back all that an episode said, and open again exactly what it had closed; what was known stays known."""
    options = options_of(context)
    result = perform(options, table_of.GRAPH_UNDO, table_of.OnEpisode(group_id=group, episode_id=episode))
    answer(options, result, lambda: pictures.undone_picture(result))


@command("merge", None, group=graph, example="sharedmem graph merge Lovelace Ada --group acme:ada")
def graph_merge(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Name or id of the entity that is merged.")],
    into: Annotated[str, typer.Argument(metavar="INTO", help="Name or id of the entity that it is.")],
    *,
    group: Group,
    reason: Annotated[str, typer.Option(help="Why; it is kept.")] = "",
) -> None:
    """Say that two entities are one; unmerge takes them apart again."""
    options = options_of(context)
    request = table_of.GraphMerge(group_id=group, source=source, into=into, reason=reason)
    merge = perform(options, table_of.GRAPH_MERGE, request)
    answer(options, merge, lambda: pictures.merge_picture(merge))


@command("unmerge", None, group=graph, example="sharedmem graph unmerge Lovelace --group acme:ada")
def graph_unmerge(context: typer.Context, name: Name, *, group: Group) -> None:
    """Take an entity that was merged apart again."""
    options = options_of(context)
    merge = perform(options, table_of.GRAPH_UNMERGE, table_of.OnEntity(group_id=group, entity=name))
    answer(options, merge, lambda: pictures.merge_picture(merge))


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

    async def work() -> GraphCheck:
        async with opened(settings) as (_, store):
            with progress("checking", noun="episodes") as told:
                return await store.graph.check(group_id=group, repair=repair, progress=_counting(told))

    settings = options.settings()
    found = asyncio.run(work())
    answer(options, found, lambda: pictures.check_picture(found))
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
        _confirm(options, group)
    gone = perform(options, table_of.GRAPH_DELETE, table_of.OnGroup(group_id=group))
    answer(options, gone, lambda: said((counted(gone, "record"), "green"), " deleted"))


def _counting(told: Callable[[int], None] | None) -> Callable[[int, int], None] | None:
    """A bar that counts what was read; how much there is, nobody knows before."""
    return None if told is None else lambda done, _: told(done)


def _given_text(text: str | None) -> str:
    given = sys.stdin.read().rstrip("\n") if text in {None, "-"} and not sys.stdin.isatty() else text
    if not given:
        raise InvalidError("text", given, "say what happened, or pipe it in")
    return given


def _file_added(options: Options, episodes: list[Episode]) -> Filed:
    """Add episodes a few at a time, with a bar; what was added before an error stays."""

    async def work() -> Filed:
        done = Filed()
        async with opened(settings) as (_, store):
            with progress("adding", total=len(episodes), noun="episodes") as told:
                for first in range(0, len(episodes), _AT_ONCE):
                    request = table_of.GraphAddMany(episodes=episodes[first : first + _AT_ONCE])
                    done = _counted(done, await table_of.GRAPH_ADD_MANY.run(store, request))
                    if told is not None:
                        told(done.episodes)
        return done

    settings = options.settings()
    return asyncio.run(work())


def _counted(done: Filed, results: list[EpisodeResult]) -> Filed:
    return Filed(
        episodes=done.episodes + len(results),
        repeated=done.repeated + sum(one.repeated for one in results),
        facts=done.facts + sum(len(one.facts) for one in results),
        closed=done.closed + sum(len(one.closed) for one in results),
        failed=done.failed + sum(one.episode.extraction == "failed" for one in results),
    )


def _confirm(options: Options, group: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidError("group", group, "nobody is there to confirm it; say --yes")
    stats = perform(options, table_of.GRAPH_STATS, table_of.OnGroup(group_id=group))
    what = f"{counted(stats.episodes, 'episode')} and {counted(stats.facts + stats.past_facts, 'fact')}"
    if not typer.confirm(f"Delete {what} of group {group}?", err=True):
        raise typer.Exit(1)
