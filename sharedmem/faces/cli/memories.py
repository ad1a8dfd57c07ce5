"""Commands on semantic memory: memories, thread."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.api.operation import build_record
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.faces.cli.app import command, memories, threads
from sharedmem.faces.cli.output import (
    body,
    cell,
    empty_text,
    escape_control,
    fields_table,
    format_age,
    format_count,
    format_duration,
    format_size,
    print_answer,
    show_operation,
    styled_text,
    table,
)
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.models import (
    AddResult,
    Hit,
    MemoryFilter,
    MemoryItem,
    MemorySearchReply,
    MemoryStats,
    MemoryVersion,
    Signal,
    ThreadStats,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from sharedmem.api.memory import MemoryPage

Id = Annotated[str, typer.Argument(metavar="ID", help="Of the memory.")]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="Name of the thread.")]
OfUser = Annotated[str | None, typer.Option("--user", help="Only what is remembered of this user.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Only what this agent remembered.")]
OfThread = Annotated[str | None, typer.Option("--thread", help="Only of this thread.")]
OfCategory = Annotated[str | None, typer.Option("--category", help="Only of this category.")]
OfTags = Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag; may come again.")]
OfType = Annotated[str | None, typer.Option("--type", help="Only short-term, long-term or semantic-cache.")]
Since = Annotated[datetime | None, typer.Option(help="Only what happened then or later.")]
_LONGEST = 300
_BAR = 20


@command("add", None, group=memories, example='sharedmem memories add "The lease ends in May" --id lease --tag office')
def memories_add(  # noqa: PLR0913  # each field is an option
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(help="What to remember; - or nothing reads standard input.")] = None,
    *,
    id_: Annotated[
        str | None, typer.Option("--id", help="An id of yours, which must be free; without it one is made.")
    ] = None,
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
    """Add a fact, unless it is known already."""
    given = _read_text(text)
    fields: dict[str, Any] = {
        "id": id_ or "",
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
    show_operation(context, "memory.add", _added_picture, item=build_record(MemoryItem, fields), dedup=dedup)


@command("search", None, group=memories, example='sharedmem memories search "when does the lease end?" --explain')
def memories_search(  # noqa: PLR0913  # each filter is an option
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
    fields: dict[str, Any] = {
        "query": query,
        "limit": limit,
        "mode": mode,
        "threshold": threshold,
        "diversity": diversity,
    }
    filters = _filter(user, agent, thread, category, tag, memory_type, since)
    show_operation(context, "memory.search", _hits_picture, **fields, explain=explain, filters=filters)


@command("list", None, group=memories, example="sharedmem memories list --category office")
def memories_list(  # noqa: PLR0913  # likewise
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many, up to 1,000.")] = 20,
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
    show_operation(context, "memory.list", _page_picture, filters=filters, limit=limit, cursor=cursor)


@command("get", None, group=memories, example="sharedmem memories get lease")
def memories_get(context: typer.Context, id_: Id) -> None:
    """Show everything that is known of a memory."""
    options = options_of(context)
    item = perform(options, "memory.get", id=id_)
    if item is None:
        raise NotFoundError("memory", id_, f"`sharedmem memories history {id_}` may know what became of it")
    print_answer(options, item, lambda: _item_picture(item))


@command("history", None, group=memories, example="sharedmem memories history lease")
def memories_history(context: typer.Context, id_: Id) -> None:
    """Show what a memory was before, newest first: what was merged into it, changed, deleted."""
    show_operation(context, "memory.history", _history_picture, id=id_)


@command("delete", None, group=memories, example="sharedmem memories delete lease")
def memories_delete(context: typer.Context, id_: Id) -> None:
    """Delete a memory; `memories undo` brings it back while its history stays."""
    show_operation(
        context, "memory.delete", lambda gone: styled_text(("deleted", "green")) if gone else empty_text(), id=id_
    )


@command("undo", None, group=memories, example="sharedmem memories undo lease")
def memories_undo(
    context: typer.Context,
    id_: Id,
    version: Annotated[int | None, typer.Option(help="The version whose change is taken back; else the last.")] = None,
) -> None:
    """Take back a merge, a change or a deletion."""
    options = options_of(context)
    item = perform(options, "memory.undo", id=id_, version=version)
    print_answer(options, item, lambda: styled_text(("undone: ", "green"), item.memory))


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
    show_operation(context, "memory.stats", _stats_picture, filters=filters)


@command("stats", None, group=threads, example="sharedmem thread stats main")
def thread_stats(context: typer.Context, thread: Thread) -> None:
    """Show what a thread holds, and who takes part."""
    show_operation(context, "thread.stats", _thread_picture, thread_id=thread)


@command("summary", None, group=threads, example="sharedmem thread summary main --turns 50")
def thread_summary(
    context: typer.Context,
    thread: Thread,
    turns: Annotated[int, typer.Option(help="Of how many of the newest turns it tells.", min=1, max=1000)] = 50,
) -> None:
    """Show what a thread was about, and remember that; offline in some of its own sentences."""
    options = options_of(context)
    summary = perform(options, "thread.summary", thread_id=thread, max_turns=turns)
    print_answer(options, summary, lambda: body(summary) if summary else empty_text())


def _read_text(text: str | None) -> str:
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
    return build_record(MemoryFilter, fields)


def _format_memory_count(count: int) -> str:
    return "1 memory" if count == 1 else f"{count:,} memories"


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def _added_picture(result: AddResult) -> RenderableType:
    if result.merged:
        alike = "" if result.similarity is None else f", similarity {result.similarity:.2f}"
        return styled_text(("known: ", "yellow"), f"merged into {result.id}{alike}")
    waiting = "" if result.embedded else "; its embedding waits for the provider, its words are found"
    return styled_text(("remembered: ", "green"), result.id, (waiting, "dim"))


def _hits_picture(found: MemorySearchReply) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    if not found.hits:
        return Group(empty_text(), *_degraded_picture(found))
    picture = _two_column_grid()
    strongest = max((abs(signal.contribution) for hit in found.hits for signal in _signals(hit)), default=0.0)
    for hit in found.hits:
        reasons = [_reasons_picture(_signals(hit), strongest)] if hit.why is not None else []
        picture.add_row(
            styled_text((f"{hit.score:.3f}", "cyan")),
            Group(_memory_text(hit.item), _memory_details(hit.item), *reasons),
        )
        if reasons:
            picture.add_row()
    cost = [] if found.hits[0].why is None else [_cost_picture(found)]
    return Group(picture, *_degraded_picture(found), *cost)


def _two_column_grid() -> Table:
    from rich.table import Table  # noqa: PLC0415  likewise

    picture = Table.grid(padding=(0, 2, 0, 0))
    picture.add_column(justify="right", no_wrap=True)
    picture.add_column(overflow="fold")
    return picture


def _memory_text(item: MemoryItem) -> Text:
    return styled_text((f"{escape_control(item.author)}: ", "bold") if item.author else "", cell(_shorten(item.memory)))


def _memory_details(item: MemoryItem) -> Text:
    """Its id first, since that is what people copy."""
    kind = [] if item.memory_type == "long-term" else [item.memory_type]
    tags = [f"#{tag}" for tag in item.tags]
    facts = [
        format_age(item.timestamp),
        f"thread {item.thread_id}",
        *kind,
        *([item.category] if item.category else []),
        *tags,
    ]
    return styled_text((item.id, "dim cyan"), (f"  {escape_control(', '.join(facts))}", "dim"))


def _signals(hit: Hit) -> tuple[Signal, ...]:
    return hit.why.signals if hit.why is not None else ()


def _reasons_picture(signals: Sequence[Signal], strongest: float) -> Table:
    """One line a signal; the bars of all hits have one scale."""
    from rich.table import Table  # noqa: PLC0415  likewise

    picture = Table.grid(padding=(0, 2, 0, 0))
    for signal in signals:
        length = round(_BAR * abs(signal.contribution) / strongest) if strongest else 0
        bar = styled_text(("━" * length, "green" if signal.contribution > 0 else "red"))
        picture.add_row(signal.name, styled_text((_signal_text(signal), "dim")), f"{signal.contribution:+.3f}", bar)
    return picture


def _signal_text(signal: Signal) -> str:
    if signal.rank is not None:
        return f"{signal.score:.3f}, place {signal.rank}, weight {signal.weight:g}"
    return "lent by turns beside it" if signal.name == "neighbours" else f"times {signal.score:.3g}"


def _degraded_picture(found: MemorySearchReply) -> list[Text]:
    return [styled_text(("searched by words alone: ", "yellow"), found.degraded)] if found.degraded else []


def _cost_picture(found: MemorySearchReply) -> RenderableType:
    cost = found.cost
    trips, tokens = format_count(cost.round_trips, "round trip"), format_count(cost.tokens, "token")
    return styled_text(("cost: ", "dim"), f"{trips}, {cost.milliseconds:.1f} ms, {tokens}")


def _page_picture(page: MemoryPage) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    if not page.items:
        return empty_text()
    blocks = [block for item in page.items for block in (_memory_text(item), _memory_details(item))]
    shown = f"{len(page.items):,} of {_format_memory_count(page.total)}"
    more = f"; the next: --cursor {page.cursor}" if page.cursor else ""
    return Group(*blocks, styled_text((shown + more, "dim")))


def _item_picture(item: MemoryItem) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    facts = item.model_dump(exclude_none=True, exclude_defaults=True, exclude={"memory", "hash", "embedding"})
    if facts.get("content") == item.memory:
        del facts["content"]
    return Group(
        styled_text((escape_control(item.memory), "bold")),
        fields_table((name, _format_field(value)) for name, value in facts.items()),
    )


def _format_field(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value.isoformat(' ', 'seconds')}, {format_age(value)}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) and not isinstance(value[0], dict) else value


def _history_picture(versions: list[MemoryVersion]) -> RenderableType:
    if not versions:
        return empty_text()
    styles = {"added": "green", "deleted": "red", "merged": "yellow"}
    picture = table("version", "change", "when", "by", "memory", right=["version"])
    for one in versions:
        text = _shorten(one.item.memory) if one.merged_text is None else f"+ {_shorten(one.merged_text)}"
        change = styled_text((one.change, styles.get(one.change, "cyan")))
        picture.add_row(
            cell(one.version), change, styled_text((format_age(one.at), "dim")), cell(one.actor), cell(text)
        )
    return picture


def _stats_picture(stats: MemoryStats) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    if not stats.count:
        return empty_text()
    merged = format_count(stats.duplicates_merged, "duplicate")
    numbers = fields_table([("memories", f"{stats.count:,}"), ("size", format_size(stats.bytes)), ("merged", merged)])
    return Group(numbers, "", _counts("type", stats.by_type), "", _counts("category", stats.by_category))


def _counts(heading: str, counts: Mapping[str, int]) -> Table:
    picture = table(heading, "memories", right=["memories"])
    for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        picture.add_row(cell(name) if name else styled_text(("none", "dim")), f"{count:,}")
    return picture


def _thread_picture(stats: ThreadStats) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  likewise

    if not stats.turn_count:
        return empty_text()
    length = ""
    if stats.first_turn_at and stats.last_turn_at:
        length = format_duration((stats.last_turn_at - stats.first_turn_at).total_seconds())
    numbers = fields_table(
        [
            ("turns", f"{stats.turn_count:,}"),
            ("tokens", f"{stats.total_tokens:,}"),
            ("first", format_age(stats.first_turn_at) if stats.first_turn_at else "-"),
            ("last", format_age(stats.last_turn_at) if stats.last_turn_at else "-"),
            ("over", length or "-"),
        ]
    )
    speakers = table("who", "turns", right=["turns"])
    for one in stats.participants:
        speakers.add_row(cell(one.name), f"{one.turns:,}")
    return Group(numbers, "", speakers) if stats.participants else numbers
