"""Commands on semantic memory: remember, recall, memories, thread."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.faces.cli.app import MEMORY, command, memories, threads
from sharedmem.faces.cli.output import (
    ago,
    answer,
    body,
    cell,
    counted,
    duration,
    nothing,
    pairs,
    rows_of,
    said,
    size,
    table,
)
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.faces.operations import memory as table_of
from sharedmem.models import AddResult, Hit, MemoryFilter, MemoryItem, MemoryStats, MemoryVersion, Record, ThreadStats

if TYPE_CHECKING:
    from rich.console import RenderableType

Given = TypeVar("Given", bound=Record)
Id = Annotated[str, typer.Argument(help="Id of the memory.")]
Thread = Annotated[str, typer.Argument(help="Name of the thread.")]
OfUser = Annotated[str | None, typer.Option("--user", help="Only what is remembered of this user.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Only what this agent remembered.")]
OfThread = Annotated[str | None, typer.Option("--thread", help="Only of this thread.")]
OfCategory = Annotated[str | None, typer.Option("--category", help="Only of this category.")]
OfTags = Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag; may come again.")]
OfType = Annotated[str | None, typer.Option("--type", help="Only short-term, long-term or semantic-cache.")]
Since = Annotated[datetime | None, typer.Option(help="Only what happened then or later.")]
_LONGEST = 300


@command("remember", MEMORY, example='sharedmem remember "The lease ends in May" --category office --tag lease')
def remember(  # noqa: PLR0913  # each field is an option
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(help="What to remember; - or nothing reads standard input.")] = None,
    *,
    user: Annotated[str | None, typer.Option(help="Whom it belongs to.")] = None,
    thread: Annotated[str, typer.Option(help="Thread it belongs to.")] = "main",
    category: Annotated[str | None, typer.Option(help="One word for what it is about.")] = None,
    importance: Annotated[str, typer.Option(help="low, medium, high or critical.")] = "medium",
    memory_type: Annotated[str, typer.Option("--type", help="long-term or short-term.")] = "long-term",
    ttl: Annotated[int | None, typer.Option(help="Seconds until it is forgotten; -1 for never.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may come again.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Who said it, when it is a turn of a conversation.")] = None,
    dedup: Annotated[bool, typer.Option(help="Whether it is merged into a memory that says the same.")] = True,
) -> None:
    """Remember a fact, unless it is known already."""
    given = _given_text(text)
    fields: dict[str, Any] = {
        "memory": given,
        "user_id": user,
        "thread_id": thread,
        "category": category,
        "importance": importance,
        "memory_type": memory_type,
        "ttl": ttl,
        "tags": tag or [],
        "messages": [{"role": "user", "name": speaker, "content": given}] if speaker else [],
    }
    options = options_of(context)
    result = perform(options, table_of.MEMORY_ADD, table_of.MemoryAdd(item=_checked(MemoryItem, fields), dedup=dedup))
    answer(options, result, lambda: _added_picture(result))


@command("recall", MEMORY, example='sharedmem recall "when does the lease end?" --explain')
def recall(  # noqa: PLR0913  # each filter is an option
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What you want to know.")],
    *,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many, up to 100.")] = 10,
    mode: Annotated[str, typer.Option(help="hybrid, semantic or keywords.")] = "hybrid",
    threshold: Annotated[float | None, typer.Option(help="Least cosine similarity of hits by meaning.")] = None,
    diversity: Annotated[float | None, typer.Option(help="0 to 1: how much variety counts.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each was found, and the cost.")] = False,
    user: OfUser = None,
    agent: OfAgent = None,
    thread: OfThread = None,
    category: OfCategory = None,
    tag: OfTags = None,
    memory_type: OfType = None,
    since: Since = None,
) -> None:
    """Show what is remembered that answers a question, best first."""
    fields = {"query": query, "limit": limit, "mode": mode, "threshold": threshold, "diversity": diversity}
    filters = _filter(user, agent, thread, category, tag, memory_type, since)
    request = _checked(table_of.MemorySearch, fields | {"explain": explain, "filters": filters})
    options = options_of(context)
    found = perform(options, table_of.MEMORY_SEARCH, request)
    answer(options, found, lambda: _recalled_picture(found))


@command("list", None, group=memories, example="sharedmem memories list --category office")
def memories_list(  # noqa: PLR0913  # likewise
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(help="Show at most that many, up to 100.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on behind this page.")] = None,
    user: OfUser = None,
    agent: OfAgent = None,
    thread: OfThread = None,
    category: OfCategory = None,
    tag: OfTags = None,
    memory_type: OfType = None,
    since: Since = None,
) -> None:
    """Show memories, newest first, page by page."""
    filters = _filter(user, agent, thread, category, tag, memory_type, since)
    options = options_of(context)
    request = table_of.MemoryList(filters=filters, limit=limit, cursor=cursor)
    page = perform(options, table_of.MEMORY_LIST, request)
    answer(options, page, lambda: _page_picture(page))


@command("show", None, group=memories, example="sharedmem memories show 4f1c2a9be0d37781")
def memories_show(context: typer.Context, id_: Id) -> None:
    """Show everything that is known of a memory."""
    options = options_of(context)
    item = perform(options, table_of.MEMORY_GET, table_of.OnMemory(id=id_))
    if item is None:
        raise NotFoundError("memory", id_, "`sharedmem memories history` may know what became of it")
    answer(options, item, lambda: body(item.model_dump(mode="json", exclude_none=True, exclude_defaults=True)))


@command("history", None, group=memories, example="sharedmem memories history 4f1c2a9be0d37781")
def memories_history(context: typer.Context, id_: Id) -> None:
    """Show what a memory was before, newest first: what was merged into it, changed, deleted."""
    options = options_of(context)
    versions = perform(options, table_of.MEMORY_HISTORY, table_of.OnMemory(id=id_))
    answer(options, versions, lambda: _history_picture(versions))


@command("undo", None, group=memories, example="sharedmem memories undo 4f1c2a9be0d37781")
def memories_undo(
    context: typer.Context,
    id_: Id,
    version: Annotated[int | None, typer.Option(help="The version whose change is taken back; else the last.")] = None,
) -> None:
    """Take back a merge, a change or a deletion."""
    options = options_of(context)
    item = perform(options, table_of.MEMORY_UNDO, table_of.MemoryUndo(id=id_, version=version))
    answer(options, item, lambda: said(("undone: ", "green"), item.memory))


@command("forget", None, group=memories, example="sharedmem memories forget 4f1c2a9be0d37781")
def memories_forget(context: typer.Context, id_: Id) -> None:
    """Forget a memory; `memories undo` brings it back while its history stays."""
    options = options_of(context)
    gone = perform(options, table_of.MEMORY_DELETE, table_of.OnMemory(id=id_))
    answer(options, gone, lambda: said(("forgotten", "green")) if gone else nothing())


@command("stats", None, group=memories, example="sharedmem memories stats")
def memories_stats(
    context: typer.Context,
    user: OfUser = None,
    agent: OfAgent = None,
    thread: OfThread = None,
    category: OfCategory = None,
) -> None:
    """Show how many memories there are, of which types and categories."""
    filters = _filter(user, agent, thread, category, None, None, None)
    options = options_of(context)
    stats = perform(options, table_of.MEMORY_STATS, table_of.OnMemories(filters=filters))
    answer(options, stats, lambda: _stats_picture(stats))


@command("stats", None, group=threads, example="sharedmem thread stats main")
def thread_stats(context: typer.Context, thread: Thread) -> None:
    """Show what a thread holds, and who takes part."""
    options = options_of(context)
    stats = perform(options, table_of.THREAD_STATS, table_of.OnThread(thread_id=thread))
    answer(options, stats, lambda: _thread_picture(stats))


@command("summary", None, group=threads, example="sharedmem thread summary main --turns 50")
def thread_summary(
    context: typer.Context,
    thread: Thread,
    turns: Annotated[int, typer.Option(help="Of how many of the newest turns it tells.")] = 50,
) -> None:
    """Show what a thread was about; offline in some of its own sentences."""
    options = options_of(context)
    request = table_of.ThreadSummarize(thread_id=thread, max_turns=turns)
    summary = perform(options, table_of.THREAD_SUMMARY, request)
    answer(options, summary, lambda: body(summary) if summary else nothing())


def _given_text(text: str | None) -> str:
    given = sys.stdin.read().rstrip("\n") if text in {None, "-"} and not sys.stdin.isatty() else text
    if not given:
        raise InvalidError("text", given, "say what to remember, or pipe it in")
    return given


def _filter(  # what the options above say
    user: str | None,
    agent: str | None,
    thread: str | None,
    category: str | None,
    tags: list[str] | None,
    memory_type: str | None,
    since: datetime | None,
) -> MemoryFilter:
    fields = {
        "user_id": user,
        "agent_id": agent,
        "thread_id": thread,
        "category": category,
        "tags": tuple(tags or ()),
        "memory_type": memory_type,
        "since": since.astimezone() if since else None,
    }
    return _checked(MemoryFilter, fields)


def _checked(kind: type[Given], fields: dict[str, Any]) -> Given:
    """A request made of options.

    Raises:
        InvalidError: one of them is none.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InvalidError(str(problem["loc"][-1]), problem["input"], problem["msg"].lower()) from None


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def _added_picture(result: AddResult) -> RenderableType:
    if result.merged:
        alike = "" if result.similarity is None else f", similarity {result.similarity:.2f}"
        return said(("known: ", "yellow"), f"merged into {result.id}{alike}")
    waiting = "" if result.embedded else "; its embedding waits for the provider, its words are found"
    return said(("remembered: ", "green"), result.id, (waiting, "dim"))


def _recalled_picture(found: table_of.Recalled) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    if not found.hits:
        return nothing()
    picture = table("score", "memory", "when", "thread", "id", right=["score"])
    for hit in found.hits:
        when = said((ago(hit.item.timestamp), "dim"))
        text = said((f"{hit.item.author}: ", "bold"), _short(hit.item.memory)) if hit.item.author else None
        picture.add_row(cell(round(hit.score, 3)), text or cell(_short(hit.item.memory)), when, *_whereabouts(hit))
    parts: list[RenderableType] = [picture]
    if found.degraded:
        parts.append(said(("searched by words alone: ", "yellow"), found.degraded))
    if found.hits[0].why is not None:
        parts += ["", *(_why_picture(place, hit) for place, hit in enumerate(found.hits, 1)), _cost_picture(found)]
    return Group(*parts)


def _whereabouts(hit: Hit) -> tuple[RenderableType, RenderableType]:
    return cell(hit.item.thread_id), said((hit.item.id, "dim"))


def _why_picture(place: int, hit: Hit) -> RenderableType:
    title = f"{place}. {_short(hit.item.memory)[:60]}"
    picture = table("signal", "score", "rank", "weight", "gave", title=title, right=["score", "rank", "weight", "gave"])
    for signal in hit.why.signals if hit.why else ():
        numbers = (cell(round(signal.score, 3)), cell(signal.rank), cell(round(signal.weight, 3)))
        picture.add_row(cell(signal.name), *numbers, cell(round(signal.contribution, 3)))
    return picture


def _cost_picture(found: table_of.Recalled) -> RenderableType:
    cost = found.cost
    spent = f"{counted(cost.round_trips, 'round trip')}, {cost.milliseconds:.1f} ms, {counted(cost.tokens, 'token')}"
    return said(("cost: ", "dim"), spent)


def _page_picture(page: table_of.MemoryPage) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    if not page.items:
        return nothing()
    picture = table("memory", "type", "category", "when", "thread", "id")
    for item in page.items:
        facts = (cell(item.memory_type), cell(item.category or ""), said((ago(item.timestamp), "dim")))
        picture.add_row(cell(_short(item.memory)), *facts, cell(item.thread_id), said((item.id, "dim")))
    shown = f"{len(page.items)} of {counted(page.total, 'memory').replace('memorys', 'memories')}"
    more = f"; the next: --cursor {page.cursor}" if page.cursor else ""
    return Group(picture, said((shown + more, "dim")))


def _history_picture(versions: list[MemoryVersion]) -> RenderableType:
    if not versions:
        return nothing()
    styles = {"added": "green", "deleted": "red", "merged": "yellow"}
    picture = table("version", "change", "when", "by", "memory", right=["version"])
    for one in versions:
        text = _short(one.item.memory) if one.merged_text is None else f"+ {_short(one.merged_text)}"
        change = said((one.change, styles.get(one.change, "cyan")))
        picture.add_row(cell(one.version), change, said((ago(one.at), "dim")), cell(one.actor), cell(text))
    return picture


def _stats_picture(stats: MemoryStats) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    numbers = pairs(
        [
            ("memories", f"{stats.count:,}"),
            ("size", size(stats.bytes)),
            ("merged", counted(stats.duplicates_merged, "duplicate")),
        ]
    )
    kinds = [{"type": kind, "memories": count} for kind, count in sorted(stats.by_type.items())]
    categories = [{"category": name or "-", "memories": count} for name, count in sorted(stats.by_category.items())]
    return Group(numbers, "", rows_of(kinds, first=1), "", rows_of(categories, first=1))


def _thread_picture(stats: ThreadStats) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    length = ""
    if stats.first_turn_at and stats.last_turn_at:
        length = duration((stats.last_turn_at - stats.first_turn_at).total_seconds())
    numbers = pairs(
        [
            ("turns", f"{stats.turn_count:,}"),
            ("tokens", f"{stats.total_tokens:,}"),
            ("first", ago(stats.first_turn_at) if stats.first_turn_at else "-"),
            ("last", ago(stats.last_turn_at) if stats.last_turn_at else "-"),
            ("over", length or "-"),
        ]
    )
    return Group(numbers, "", rows_of([who.model_dump() for who in stats.participants], first=1))
