"""Commands on the semantic cache: check, put, invalidate, clear, report, stats, calibrate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.faces.cli.app import Reads, cache, command, operation_command
from sharedmem.faces.cli.embeddings import PairFile, calibrate
from sharedmem.faces.cli.output import (
    body,
    confirm,
    dim,
    fields_table,
    format_age,
    format_count,
    format_duration,
    print_answer,
    read_value,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.faces.cli.session import Options, options_of, perform
from sharedmem.models import CachedResult, CacheEntry, CachePage, CacheStats

if TYPE_CHECKING:
    from rich.console import RenderableType


Prompt = Annotated[str, typer.Argument(help="What is asked.")]
Key = Annotated[str, typer.Option(help="What else the answer depends on: a user, a document.")]
Model = Annotated[str, typer.Option(help="The model that answers.")]
PromptVersion = Annotated[str, typer.Option(help="Version of the template around the prompt.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may come again.")]


@command("check", None, group=cache, example='sharedmem cache check "what is the capital of France?"')
def cache_check(
    context: typer.Context,
    prompt: Prompt,
    *,
    threshold: Annotated[
        float | None, typer.Option(help="Cosine similarity from which meaning is near enough; without it the setting.")
    ] = None,
    key: Key = "",
    model: Model = "",
    prompt_version: PromptVersion = "",
    tag: Tags = None,
) -> None:
    """Show the answer that fits a prompt; exit code 3 if no answer fits."""
    options = options_of(context)
    found = perform(
        options,
        "cache.check",
        prompt=prompt,
        threshold=threshold,
        key=key,
        model=model,
        prompt_version=prompt_version,
        tags=tuple(tag or ()),
    )
    print_answer(options, found, lambda: _answer_picture(found))
    if found is None:
        raise typer.Exit(3)


@operation_command(
    "cache.put", "put", group=cache, example='sharedmem cache put "what is the capital of France?" Paris --tag geo'
)
def cache_put(  # noqa: PLR0913  # each is an option
    answer: str,
    prompt: Prompt,
    response: Annotated[str, typer.Argument(help="The answer: JSON or text; @file or - reads it."), Reads(read_value)],
    *,
    ttl: Annotated[float | None, typer.Option(help="Seconds until it is forgotten; without it the setting.")] = None,
    key: Key = "",
    model: Model = "",
    prompt_version: PromptVersion = "",
    tags: Tags = None,
    cost: Annotated[float, typer.Option(help="What the answer cost.")] = 0.0,
    tokens: Annotated[int, typer.Option(help="How many tokens it took.")] = 0,
) -> RenderableType:
    """Store the answer to a prompt, and show its id."""
    return styled_text(("kept as ", "dim"), answer)


@operation_command("cache.delete", "delete", group=cache, example="sharedmem cache delete --tag geo")
def cache_delete(
    dropped: int,
    tag: Annotated[str | None, typer.Option(help="Answers with this tag.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Answers to this prompt, whatever the model.")] = None,
    key: Annotated[str | None, typer.Option(help="Answers under this key.")] = None,
) -> RenderableType:
    """Delete the answers that match all given options."""
    return styled_text(format_count(dropped, "answer"), " forgotten")


@command("clear", None, group=cache, example="sharedmem cache clear --yes")
def cache_clear(
    context: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Forget every answer of the namespace; what was counted stays."""
    options = options_of(context)
    if not yes:
        namespace = options.settings().namespace
        confirm(lambda: f"Forget {_count_answers(options)} of namespace {namespace}?", "clear", namespace)
    dropped = perform(options, "cache.clear")
    print_answer(options, dropped, lambda: styled_text(format_count(dropped, "answer"), " forgotten"))


def _count_answers(options: Options) -> str:
    return format_count(perform(options, "cache.stats").entries, "answer")


@operation_command(
    "cache.report", "report", group=cache, example="sharedmem cache report 196c698fd5c5227e000c739b79c3b30d"
)
def cache_report(_: None, id_: Annotated[str, typer.Argument(metavar="ID", help="Of an answer.")]) -> RenderableType:
    """Report that a cached answer did not fit its prompt; it is counted."""
    return styled_text("counted as a false hit")


@operation_command("cache.list", "list", group=cache, example="sharedmem cache list --tag geo")
def cache_list(
    page: CachePage,
    tag: Annotated[str | None, typer.Option(help="Only answers with this tag.")] = None,
    *,
    limit: Annotated[int, typer.Option(help="How many, at most 1,000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Cursor of the page before.")] = None,
) -> RenderableType:
    """List the stored answers; the ones that expire last come first."""
    rows = [
        (one.id, one.prompt, ", ".join(one.tags), format_age(one.created_at), _time_left(one)) for one in page.answers
    ]
    picture = rows_table(rows, "id", "prompt", "tags", "stored", "expires")
    return picture if page.cursor is None else stack(picture, dim(f"more with --cursor {page.cursor}"))


@operation_command("cache.stats", "stats", group=cache, example="sharedmem cache stats")
def cache_stats(stats: CacheStats) -> RenderableType:
    """Show how the cache of the namespace has done."""
    checks = stats.hits + stats.misses
    rate = styled_text((f"{stats.hit_rate:.1%}", "green" if stats.hits else "dim"), (f" of {checks:,} checks", "dim"))
    return fields_table(
        [
            ("answers", stats.entries),
            ("hit rate", rate),
            ("hits", styled_text(f"{stats.hits:,}", (f", {stats.exact_hits:,} by the same prompt", "dim"))),
            ("misses", stats.misses),
            ("guarded", styled_text(f"{stats.guarded:,}", (" near prompts that ask for something else", "dim"))),
            ("false hits", styled_text((f"{stats.false_hits:,}", "red" if stats.false_hits else ""))),
            ("saved", styled_text(f"{stats.saved_cost:,.2f}", (f", {stats.saved_tokens:,} tokens", "dim"))),
        ]
    )


def _time_left(entry: CacheEntry) -> str:
    if entry.expires_at is None:
        return ""
    return f"in {format_duration(max(0.0, (entry.expires_at - datetime.now(UTC)).total_seconds()))}"


def _answer_picture(found: CachedResult | None) -> RenderableType:
    if found is None:
        return styled_text(("no answer fits", "yellow"))
    how = "the same prompt" if found.exact else f"similarity {found.similarity:.4f}"
    rows = [("id", found.id), ("asked", found.prompt), ("found by", how), ("age", format_duration(found.age_s))]
    return stack(body(found.response), fields_table(rows))


@command("calibrate", None, group=cache, example="sharedmem cache calibrate pairs.jsonl --max-false-hits 0.005")
def cache_calibrate(
    context: typer.Context,
    file: PairFile,
    max_false_hits: Annotated[
        float, typer.Option(help="Share of the pairs that differ which may be taken for the same.")
    ] = 0.005,
) -> None:
    """Measure which threshold is safe for your prompts and embedder; changes nothing, prints the setting."""
    calibrate(options_of(context), file, max_false_hits, setting="SHAREDMEM_CACHE_SIMILARITY")
