"""Commands on what agents remember: memories, threads, and what all parts of a store know or file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.api.operation import build_record
from sharedmem.errors import NotFoundError
from sharedmem.faces.cli.app import MEMORY, Reads, command, memories, operation_command, threads
from sharedmem.faces.cli.embeddings import PairFile, calibrate
from sharedmem.faces.cli.output import (
    body,
    cell,
    dim,
    empty_text,
    escape_control,
    fields_table,
    format_age,
    format_count,
    format_duration,
    format_size,
    print_answer,
    progress,
    read_text,
    rows_table,
    stack,
    styled_text,
    without_total,
)
from sharedmem.faces.cli.session import options_of, perform, use_store
from sharedmem.models import (
    AddResult,
    DuplicateReport,
    Hit,
    MemoryFilter,
    MemoryItem,
    MemorySearchReply,
    MemoryStats,
    MemoryVersion,
    RecalledContext,
    RememberReceipt,
    Signal,
    ThreadStats,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from sharedmem.api.memory import MemoryPage
    from sharedmem.store import SharedMemoryStore


Id = Annotated[str, typer.Argument(metavar="ID", help="Of the memory.")]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="Name of the thread.")]
OfUser = Annotated[str | None, typer.Option("--user", help="Only what is remembered of this user.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Only what this agent remembered.")]
OfThread = Annotated[str | None, typer.Option("--thread", help="Only of this thread.")]
OfCategory = Annotated[str | None, typer.Option("--category", help="Only of this category.")]
OfTags = Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag; may come again.")]
OfType = Annotated[str | None, typer.Option("--type", help="Only short-term or long-term.")]
Since = Annotated[datetime | None, typer.Option(help="Only what happened then or later."), Reads(datetime.astimezone)]
_LONGEST = 300
_BAR = 20


def _item_fields(given: dict[str, Any]) -> dict[str, Any]:
    """The request of `memory.add`: everything but `dedup` and `summarize` is a field of the memory."""
    text = read_text(given.pop("text", None), "say what to remember, or pipe it in")
    if given.get("importance") is None:
        given.pop("importance", None)
    dedup, speaker = given.pop("dedup", None), given.pop("speaker", None)
    summarize = given.pop("summarize", False)
    said = {"messages": [{"role": "user", "name": speaker, "content": text}]} if speaker else {}
    return {"item": build_record(MemoryItem, {"memory": text, **given, **said}), "dedup": dedup, "summarize": summarize}


def _filtered(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request, in which those of a filter are one field."""
    fields = {name: given.pop(name) for name in list(given) if name in MemoryFilter.model_fields}
    return {"filters": build_record(MemoryFilter, fields), **given}


@operation_command(
    "memory.add",
    "add",
    group=memories,
    example='sharedmem memories add "The lease ends in May" --id lease --tag office',
    request=_item_fields,
)
def memories_add(  # noqa: PLR0913  # each field is an option
    result: AddResult,
    text: Annotated[str | None, typer.Argument(help="What to remember; - or nothing reads standard input.")] = None,
    *,
    id_: Annotated[
        str | None, typer.Option("--id", help="An id of yours, which must be free; without it one is made.")
    ] = None,
    user_id: Annotated[str | None, typer.Option("--user", help="Whom it belongs to.")] = None,
    thread_id: Annotated[str, typer.Option("--thread", help="Thread it belongs to.")] = "main",
    category: Annotated[str | None, typer.Option(help="One word for what it is about.")] = None,
    importance: Annotated[
        str | None,
        typer.Option(help="low, medium, high or critical; default: medium, or the score of importance_scoring."),
    ] = None,
    memory_type: Annotated[str, typer.Option("--type", help="long-term or short-term.")] = "long-term",
    ttl: Annotated[int | None, typer.Option(help="Seconds until it is forgotten; -1 for never.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag; may come again.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Who said it, when it is a turn of a conversation.")] = None,
    dedup: Annotated[
        bool | None,
        typer.Option(
            "--dedup/--no-dedup",
            help="Whether it is merged into a memory that says the same; default: setting dedup_enabled.",
        ),
    ] = None,
    summarize: Annotated[
        bool, typer.Option("--summarize", help="Let the language model write its summary first.")
    ] = False,
) -> RenderableType:
    """Add a fact, unless it is known already."""
    if result.merged:
        alike = "" if result.similarity is None else f", similarity {result.similarity:.2f}"
        return styled_text(("known: ", "yellow"), f"merged into {result.id}{alike}")
    waiting = "" if result.embedded else "; its embedding waits for the provider, its words are found"
    return styled_text(("remembered: ", "green"), result.id, (waiting, "dim"))


@operation_command(
    "memory.search",
    "search",
    group=memories,
    example='sharedmem memories search "when does the lease end?" --explain',
    request=_filtered,
)
def memories_search(  # noqa: PLR0913  # each filter is an option
    found: MemorySearchReply,
    query: Annotated[str, typer.Argument(help="What you want to know.")],
    *,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-k", help="Show at most that many; default: setting search_limit (10)."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="hybrid, semantic or keywords; default: setting search_mode (hybrid).")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Least probability of being relevant, 0 to 1.")] = None,
    diversity: Annotated[float | None, typer.Option(help="0 to 1: how much variety counts.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each was found, and the cost.")] = False,
    user_id: OfUser = None,
    agent_id: OfAgent = None,
    thread_id: OfThread = None,
    category: OfCategory = None,
    tags: OfTags = None,
    memory_type: OfType = None,
    since: Since = None,
) -> RenderableType:
    """Show memories that answer a question, best first."""
    return _hits_picture(found)


@operation_command(
    "memory.list",
    "list",
    group=memories,
    example="sharedmem memories list --category office",
    request=_filtered,
)
def memories_list(  # noqa: PLR0913  # likewise
    page: MemoryPage,
    *,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many, up to 1,000.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on behind this page.")] = None,
    user_id: OfUser = None,
    agent_id: OfAgent = None,
    thread_id: OfThread = None,
    category: OfCategory = None,
    tags: OfTags = None,
    memory_type: OfType = None,
    since: Since = None,
) -> RenderableType:
    """Show memories, newest first, page by page."""
    if not page.items:
        return empty_text()
    blocks = [block for item in page.items for block in (_memory_text(item), _memory_details(item))]
    shown = f"{len(page.items):,} of {'1 memory' if page.total == 1 else f'{page.total:,} memories'}"
    return stack(*blocks, dim(f"{shown}; the next: --cursor {page.cursor}" if page.cursor else shown))


@command("get", None, group=memories, example="sharedmem memories get lease")
def memories_get(context: typer.Context, id_: Id) -> None:
    """Show everything that is known of a memory."""
    options = options_of(context)
    item = perform(options, "memory.get", id=id_)
    if item is None:
        raise NotFoundError("memory", id_, f"`sharedmem memories history {id_}` may know what became of it")
    print_answer(options, item, lambda: _item_picture(item))


@operation_command("memory.history", "history", group=memories, example="sharedmem memories history lease")
def memories_history(versions: list[MemoryVersion], id_: Id) -> RenderableType:
    """Show what a memory was before, newest first: what was merged into it, changed, deleted."""
    styles = {"added": "green", "deleted": "red", "merged": "yellow"}
    rows = [
        (
            one.version,
            styled_text((one.change, styles.get(one.change, "cyan"))),
            dim(format_age(one.at)),
            one.actor,
            _shorten(one.item.memory) if one.merged_text is None else f"+ {_shorten(one.merged_text)}",
        )
        for one in versions
    ]
    return rows_table(rows, "version", "change", "when", "by", "memory", right=["version"])


@operation_command("memory.delete", "delete", group=memories, example="sharedmem memories delete lease")
def memories_delete(gone: bool, id_: Id) -> RenderableType:
    """Delete a memory; `memories undo` brings it back while its history stays."""
    return styled_text(("deleted", "green")) if gone else empty_text()


@command(
    "merge-duplicates", None, group=memories, example="sharedmem memories merge-duplicates --category office --dry-run"
)
def memories_merge_duplicates(  # each filter is an option
    context: typer.Context,
    *,
    similarity: Annotated[
        float | None, typer.Option(help="Least cosine similarity, 0.7 to 1; default: setting dedup_similarity.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the duplicates, change nothing.")] = False,
    user_id: OfUser = None,
    agent_id: OfAgent = None,
    thread_id: OfThread = None,
    category: OfCategory = None,
    tags: OfTags = None,
    memory_type: OfType = None,
) -> None:
    """Merge stored memories that say the same, the newer into the older; `undo` splits one again."""
    options = options_of(context)
    chosen = {"user_id": user_id, "agent_id": agent_id, "thread_id": thread_id, "category": category, "tags": tags}
    given = {name: value for name, value in (chosen | {"memory_type": memory_type}).items() if value}

    async def work(store: SharedMemoryStore) -> DuplicateReport:
        with progress("comparing", noun="memories") as told:
            return await store.memory.merge_duplicates(
                build_record(MemoryFilter, given),
                similarity=similarity,
                dry_run=dry_run,
                on_progress=without_total(told),
            )

    found = use_store(options, work)
    print_answer(options, found, lambda: _duplicates_picture(found, dry_run=dry_run))


@command("calibrate", None, group=memories, example="sharedmem memories calibrate pairs.jsonl --max-false-merges 0.02")
def memories_calibrate(
    context: typer.Context,
    file: PairFile,
    max_false_merges: Annotated[
        float, typer.Option(help="Share of the pairs that differ which may be merged; a merge can be undone.")
    ] = 0.02,
) -> None:
    """Measure which dedup_similarity is safe for your memories and embedder; changes nothing, prints the setting."""
    calibrate(options_of(context), file, max_false_merges, setting="SHAREDMEM_DEDUP_SIMILARITY")


@operation_command("memory.undo", "undo", group=memories, example="sharedmem memories undo lease")
def memories_undo(
    item: MemoryItem,
    id_: Id,
    version: Annotated[int | None, typer.Option(help="The version whose change is taken back; else the last.")] = None,
) -> RenderableType:
    """Take back a merge, a change or a deletion."""
    return styled_text(("undone: ", "green"), item.memory)


@operation_command("memory.summarize", "summarize", group=memories, example="sharedmem memories summarize lease")
def memories_summarize(item: MemoryItem, id_: Id) -> RenderableType:
    """Write the summary of a memory, and show it; offline in some of its own sentences."""
    return body(item.summary) if item.summary else empty_text()


@operation_command("memory.stats", "stats", group=memories, example="sharedmem memories stats", request=_filtered)
def memories_stats(
    stats: MemoryStats,
    user_id: OfUser = None,
    agent_id: OfAgent = None,
    thread_id: OfThread = None,
    category: OfCategory = None,
) -> RenderableType:
    """Show how many memories there are, of which types and categories."""
    if not stats.count:
        return empty_text()
    merged = format_count(stats.duplicates_merged, "duplicate")
    numbers = fields_table([("memories", f"{stats.count:,}"), ("size", format_size(stats.bytes)), ("merged", merged)])
    return stack(numbers, "", _counts("type", stats.by_type), "", _counts("category", stats.by_category))


@operation_command("thread.stats", "stats", group=threads, example="sharedmem thread stats main")
def thread_stats(stats: ThreadStats, thread_id: Thread) -> RenderableType:
    """Show what a thread holds, and who takes part."""
    if not stats.turn_count:
        return empty_text()
    first, last = stats.first_turn_at, stats.last_turn_at
    numbers = fields_table(
        [
            ("turns", f"{stats.turn_count:,}"),
            ("tokens" if stats.tokens_from == "metrics" else "words", f"{stats.total_tokens:,}"),
            ("first", format_age(first) if first else "-"),
            ("last", format_age(last) if last else "-"),
            ("over", format_duration((last - first).total_seconds()) if first and last else "-"),
        ]
    )
    if not stats.participants:
        return numbers
    speakers = [(one.name, f"{one.turns:,}") for one in stats.participants]
    return stack(numbers, "", rows_table(speakers, "who", "turns", right=["turns"]))


@operation_command("thread.summary", "summary", group=threads, example="sharedmem thread summary main --turns 50")
def thread_summary(
    summary: str,
    thread_id: Thread,
    max_turns: Annotated[
        int, typer.Option("--turns", help="How many of the newest turns to summarise.", min=1, max=1000)
    ] = 50,
) -> RenderableType:
    """Show what a thread was about, and remember that; offline in some of its own sentences."""
    return body(summary) if summary else empty_text()


@operation_command("thread.roll_up", "rollup", group=threads, example="sharedmem thread rollup main --turns 20")
def thread_rollup(
    rollups: list[str],
    thread_id: Thread,
    turns: Annotated[
        int | None, typer.Option(help="Older turns that become one memory; default: setting rollup_turns.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(help="Newest turns that stay out; default: setting rollup_keep (10).")
    ] = None,
) -> RenderableType:
    """Summarise the older turns of a thread: several become one memory that names them. The turns stay."""
    return stack(*rollups) if rollups else empty_text()


@operation_command(
    "memory.roll_up_old", "rollup", group=memories, example="sharedmem memories rollup --older-than-days 90"
)
def memories_rollup(
    rollups: list[str],
    older_than_days: Annotated[
        int | None, typer.Option(help="Least age in days; default: setting rollup_old_after_days.")
    ] = None,
) -> RenderableType:
    """Summarise old memories of one kind: five to fifty become one memory that names them. They stay."""
    return stack(*rollups) if rollups else empty_text()


def _duplicates_picture(report: DuplicateReport, *, dry_run: bool) -> RenderableType:
    done = f"{format_count(report.found, 'duplicate')} {'found' if dry_run else 'merged'}"
    apart = f"{format_count(report.kept_apart, 'near pair')} kept apart"
    summary = dim(f"{done} among {report.compared:,} memories; {apart}")
    if not report.duplicates:
        return summary
    rows = [
        (f"{one.similarity:.3f}", one.id, _shorten(one.memory), one.into, _shorten(one.into_memory))
        for one in report.duplicates
    ]
    return stack(rows_table(rows, "similarity", "id", "memory", "into", "older memory", right=["similarity"]), summary)


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def _hits_picture(found: MemorySearchReply) -> RenderableType:
    if not found.hits:
        return stack(empty_text(), *_degraded_picture(found))
    picture = _two_column_grid()
    strongest = max((abs(signal.contribution) for hit in found.hits for signal in _signals(hit)), default=0.0)
    for hit in found.hits:
        reasons = [_reasons_picture(_signals(hit), strongest)] if hit.why is not None else []
        picture.add_row(
            styled_text((f"{hit.score:.3f}", "cyan")),
            stack(_memory_text(hit.item), _memory_details(hit.item), *reasons),
        )
        if reasons:
            picture.add_row()
    cost = [] if found.hits[0].why is None else [_cost_picture(found)]
    return stack(picture, *_degraded_picture(found), *cost)


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


def _item_picture(item: MemoryItem) -> RenderableType:
    facts = item.model_dump(exclude_none=True, exclude_defaults=True, exclude={"memory", "hash", "embedding"})
    if facts.get("content") == item.memory:
        del facts["content"]
    return stack(
        styled_text((escape_control(item.memory), "bold")),
        fields_table((name, _format_field(value)) for name, value in facts.items()),
    )


def _format_field(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value.isoformat(' ', 'seconds')}, {format_age(value)}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) and not isinstance(value[0], dict) else value


def _counts(heading: str, counts: Mapping[str, int]) -> RenderableType:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    rows = [(name or dim("none"), f"{count:,}") for name, count in ordered]
    return rows_table(rows, heading, "memories", right=["memories"])


# -- all parts of a store -------------------------------------------------------------------------


AsOf = Annotated[datetime | None, typer.Option(help="What was known and true then."), Reads(datetime.astimezone)]


@operation_command(
    "knowledge.recall", "recall", MEMORY, example='sharedmem recall "what does the deploy need?" --tokens 800'
)
def recall(  # noqa: PLR0913  # each narrows what is looked for
    found: RecalledContext,
    question: Annotated[str, typer.Argument(help="What an agent has to do or answer.")],
    *,
    tokens: Annotated[int, typer.Option(help="Most tokens of the answer.")] = 1500,
    as_of: AsOf = None,
    user_id: Annotated[str | None, typer.Option("--user", help="Only what concerns this user.")] = None,
    parts: Annotated[
        list[str] | None, typer.Option("--part", help="memory, graph or notes; may come again; default: all.")
    ] = None,
    values: Annotated[list[str] | None, typer.Option("--value", help="Key of a value to show as well.")] = None,
    group_id: Annotated[str | None, typer.Option("--group", help="Group of the graph; default: main.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", help="App of the notes; default: main.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="How much the best record must have to do with it, 0 to 1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model whose tokens count, such as openai:gpt-4o.")] = None,
) -> RenderableType:
    """Show what an agent should know now: memories, facts and notes in one text for a prompt, in a budget of tokens."""
    counted = f"{found.tokens} tokens ({found.tokens_by}), {found.left_out} left out, {found.repeated} repeated"
    remarks = [dim(escape_control(reason)) for reason in found.degraded]
    if not found.items and not found.standing:
        return stack(dim("nothing that has to do with it is known"), *remarks)
    return stack(body(found.text), dim(counted), *remarks)


def _text_request(given: dict[str, Any]) -> dict[str, Any]:
    """The request of `knowledge.remember`: the text of the command, or of standard input."""
    text = read_text(given.pop("text", None), "say what to remember, or pipe it in")
    return {"conversation": text, **given}


@operation_command(
    "knowledge.remember",
    "remember",
    MEMORY,
    example='sharedmem remember "Ada lives in Oslo" --user ada',
    request=_text_request,
)
def remember(
    receipt: RememberReceipt,
    text: Annotated[str | None, typer.Argument(help="What was said; - or nothing reads standard input.")] = None,
    *,
    user_id: Annotated[str | None, typer.Option("--user", help="Whom it concerns.")] = None,
    thread_id: Annotated[str, typer.Option("--thread", help="Thread it belongs to.")] = "main",
    parts: Annotated[
        list[str] | None, typer.Option("--part", help="memory, graph or notes; may come again; default: all.")
    ] = None,
    group_id: Annotated[str | None, typer.Option("--group", help="Group of the graph; default: main.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", help="App of the notes; default: main.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait until it is done.")] = 30.0,
) -> RenderableType:
    """File a text as what it is: a memory, the facts that it states, and a note; show what became of it."""
    cost = f"{receipt.cost.model_calls} calls of a model, {receipt.cost.model_tokens} tokens"
    return fields_table(
        [
            ("task", receipt.task_id),
            ("status", receipt.status),
            ("memories", ", ".join(receipt.memories) or "-"),
            *([("merged", ", ".join(receipt.merged))] if receipt.merged else []),
            ("facts", f"{len(receipt.facts)} stated, {len(receipt.closed_facts)} ended"),
            ("note", receipt.note or "-"),
            *((f"{part} skipped", reason) for part, reason in receipt.skipped.items()),
            *(("remark", remark) for remark in receipt.remarks),
            ("cost", cost),
            *([("error", receipt.error)] if receipt.error else []),
        ]
    )
