"""Commands on the semantic cache: looking answers up, keeping them, forgetting them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.cli.app import cache, command
from sharedmem.faces.cli.output import answer, body, counted, duration, pairs, said
from sharedmem.faces.cli.session import Options, options_of, perform
from sharedmem.faces.cli.values import read_value
from sharedmem.faces.operations import cache as table_of
from sharedmem.models import CachedResult, CacheStats

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
    """Show the answer that fits a prompt; exit code 3 when there is none."""
    options = options_of(context)
    request = table_of.CacheCheck(
        prompt=prompt, threshold=threshold, key=key, model=model, prompt_version=prompt_version, tags=tuple(tag or ())
    )
    found = perform(options, table_of.CACHE_CHECK, request)
    answer(options, found, lambda: _answer_picture(found))
    if found is None:
        raise typer.Exit(3)


@command("put", None, group=cache, example='sharedmem cache put "what is the capital of France?" Paris --tag geo')
def cache_put(  # noqa: PLR0913  # each is an option
    context: typer.Context,
    prompt: Prompt,
    response: Annotated[str, typer.Argument(help="The answer: JSON or text; @file or - reads it.")],
    *,
    ttl: Annotated[float | None, typer.Option(help="Seconds until it is forgotten; without it the setting.")] = None,
    key: Key = "",
    model: Model = "",
    prompt_version: PromptVersion = "",
    tag: Tags = None,
    cost: Annotated[float, typer.Option(help="What the answer cost.")] = 0.0,
    tokens: Annotated[int, typer.Option(help="How many tokens it took.")] = 0,
) -> None:
    """Keep the answer to a prompt, and tell its id."""
    options = options_of(context)
    request = table_of.CachePut(
        prompt=prompt,
        response=read_value(response),
        ttl=ttl,
        key=key,
        model=model,
        prompt_version=prompt_version,
        tags=tuple(tag or ()),
        cost=cost,
        tokens=tokens,
    )
    id_ = perform(options, table_of.CACHE_PUT, request)
    answer(options, id_, lambda: said(("kept as ", "dim"), id_))


@command("invalidate", None, group=cache, example="sharedmem cache invalidate --tag geo")
def cache_invalidate(
    context: typer.Context,
    tag: Annotated[str | None, typer.Option(help="Answers with this tag.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Answers to this prompt, whatever the model.")] = None,
    key: Annotated[str | None, typer.Option(help="Answers under this key.")] = None,
) -> None:
    """Forget answers to which all that is given applies."""
    options = options_of(context)
    request = table_of.CacheInvalidate(tag=tag, prompt=prompt, key=key)
    dropped = perform(options, table_of.CACHE_INVALIDATE, request)
    answer(options, dropped, lambda: said(counted(dropped, "answer"), " forgotten"))


@command("clear", None, group=cache, example="sharedmem cache clear --yes")
def cache_clear(
    context: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Forget every answer of the namespace; what was counted stays."""
    options = options_of(context)
    if not yes:
        _confirm(options)
    dropped = perform(options, table_of.CACHE_CLEAR, table_of.OnCache())
    answer(options, dropped, lambda: said(counted(dropped, "answer"), " forgotten"))


@command("report", None, group=cache, example="sharedmem cache report 196c698fd5c5227e000c739b79c3b30d")
def cache_report(
    context: typer.Context, id_: Annotated[str, typer.Argument(metavar="ID", help="Of an answer.")]
) -> None:
    """Tell that an answer did not fit the prompt it was given for; it is counted."""
    options = options_of(context)
    perform(options, table_of.CACHE_REPORT, table_of.OnAnswer(id=id_))
    answer(options, None, lambda: said("counted as a false hit"))


@command("stats", None, group=cache, example="sharedmem cache stats")
def cache_stats(context: typer.Context) -> None:
    """Show how the cache of the namespace has done."""
    options = options_of(context)
    stats = perform(options, table_of.CACHE_STATS, table_of.OnCache())
    answer(options, stats, lambda: _stats_picture(stats))


def _confirm(options: Options) -> None:
    if not sys.stdin.isatty():
        raise InvalidError("clear", options.settings().namespace, "nobody is there to confirm it; say --yes")
    entries = perform(options, table_of.CACHE_STATS, table_of.OnCache()).entries
    if not typer.confirm(f"Forget {counted(entries, 'answer')} of namespace {options.settings().namespace}?", err=True):
        raise typer.Exit(1)


def _answer_picture(found: CachedResult | None) -> RenderableType:
    if found is None:
        return said(("no answer fits", "yellow"))
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    how = "the same prompt" if found.exact else f"similarity {found.similarity:.4f}"
    rows = [("id", found.id), ("asked", found.prompt), ("found by", how), ("age", duration(found.age_s))]
    return Group(body(found.response), pairs(rows))


def _stats_picture(stats: CacheStats) -> RenderableType:
    checks = stats.hits + stats.misses
    rate = said((f"{stats.hit_rate:.1%}", "green" if stats.hits else "dim"), (f" of {checks:,} checks", "dim"))
    return pairs(
        [
            ("answers", stats.entries),
            ("hit rate", rate),
            ("hits", said(f"{stats.hits:,}", (f", {stats.exact_hits:,} by the same prompt", "dim"))),
            ("misses", stats.misses),
            ("guarded", said(f"{stats.guarded:,}", (" near prompts that ask for something else", "dim"))),
            ("false hits", said((f"{stats.false_hits:,}", "red" if stats.false_hits else ""))),
            ("saved", said(f"{stats.saved_cost:,.2f}", (f", {stats.saved_tokens:,} tokens", "dim"))),
        ]
    )
