"""Commands on search indexes: index list, check, promote, rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sharedmem.faces.cli.app import command, index
from sharedmem.faces.cli.output import (
    dim,
    format_count,
    format_size,
    print_answer,
    progress,
    rows_table,
    stack,
    styled_text,
    without_total,
)
from sharedmem.faces.cli.session import options_of, use_hub
from sharedmem.hub import Hub
from sharedmem.models import IndexStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")
Family = Annotated[str, typer.Option(help="What the index holds: memory or cache.")]


@command("list", None, group=index, example="sharedmem index list")
def index_list(context: typer.Context) -> None:
    """Show every search index: what it holds, and whether it is well."""
    options = options_of(context)
    found = use_hub(options, lambda hub, _: hub.index.all())
    print_answer(options, found, lambda: _picture(found))


@command("check", None, group=index, example="sharedmem --namespace research index check")
def index_check(context: typer.Context) -> None:
    """Check the search indexes of the namespace; exit code 1 if something is wrong."""
    options = options_of(context)
    problems = use_hub(options, lambda hub, namespace: hub.index.check(namespace))
    print_answer(options, problems, lambda: _problems_picture(problems))
    if problems:
        raise typer.Exit(1)


@command("promote", None, group=index, example="sharedmem --namespace research index promote")
def index_promote(context: typer.Context, family: Family = "memory") -> None:
    """Give the namespace an index of its own, while it is used."""
    options = options_of(context)

    async def promoted(hub: Hub, namespace: str) -> list[IndexStatus]:
        with progress("promoting", noun="documents") as bar:
            await hub.index.promote(namespace, family=family, progress=without_total(bar))
        return await hub.index.all()

    found = use_hub(options, promoted)
    print_answer(options, found, lambda: _picture(found))


@command("rebuild", None, group=index, example="sharedmem --namespace research index rebuild")
def index_rebuild(
    context: typer.Context,
    family: Family = "memory",
    shared: Annotated[
        bool, typer.Option("--shared", help="Of all indexes the one that small namespaces share.")
    ] = False,
) -> None:
    """Build anew the index in which the namespace is searched, beside the old one; searches go on meanwhile.

    After a change of the embedder the memories in it get new vectors.
    """
    options = options_of(context)

    async def rebuilt(hub: Hub, namespace: str) -> list[IndexStatus]:
        with progress("rebuilding", noun="documents") as bar:
            await hub.index.rebuild(None if shared else namespace, family=family, progress=without_total(bar))
        return await hub.index.all()

    found = use_hub(options, rebuilt)
    print_answer(options, found, lambda: _picture(found))


def _picture(found: list[IndexStatus]) -> RenderableType:
    rows = [
        (
            one.family,
            ", ".join(one.namespaces) or dim("shared"),
            styled_text(f"{one.documents:,}", (f", {one.failures:,} failed", "red") if one.failures else ""),
            format_size(one.bytes),
            f"{one.algorithm}, being built" if one.indexing else one.algorithm,
            one.model or dim("none"),
        )
        for one in found
    ]
    picture = rows_table(rows, "holds", "of", "documents", "size", "by", "embedder", right=["documents", "size"])
    problems = [
        problem if one.name in problem else f"{one.name}: {problem}" for one in found for problem in one.problems
    ]
    return stack(picture, *(styled_text(("! ", "yellow"), problem) for problem in problems))


def _problems_picture(problems: list[str]) -> RenderableType:
    if not problems:
        return styled_text(("well", "green"))
    lines = (styled_text(("! ", "yellow"), problem) for problem in problems)
    return stack(styled_text((format_count(len(problems), "problem"), "yellow")), *lines)
