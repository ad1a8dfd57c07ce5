"""The command that shows what vectors texts get, and what they cost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.faces.cli.app import MEMORY, command
from sharedmem.faces.cli.output import fields_table, print_answer, rows_table, stack
from sharedmem.faces.cli.session import options_of, with_operator_access

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sharedmem.hub.embeddings import EmbeddedTexts

_NUMBERS_SHOWN = 4


@command("embed", MEMORY, example="sharedmem embed 'the car broke down' 'our automobile failed'")
def embed(
    context: typer.Context,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="What to turn into vectors.")],
) -> None:
    """Show the vectors of texts, who made them, what they cost, and how near they are to the first."""
    from sharedmem.hub.embeddings import embed_texts  # noqa: PLC0415  few commands need vectors

    options = options_of(context)
    settings = options.settings()
    embedded = asyncio.run(embed_texts(with_operator_access(settings), settings.namespace, texts))
    print_answer(options, embedded, lambda: _picture(embedded, texts))


def _picture(embedded: EmbeddedTexts, texts: list[str]) -> RenderableType:
    cost = "unknown" if embedded.cost_usd is None else f"{embedded.cost_usd:.3g} USD"
    rows = [
        ("dimension", f"{embedded.dimension:,}"),
        ("tokens", f"{embedded.tokens:,}"),
        ("cost", cost),
        ("cached", f"{embedded.cached:,} of {len(set(texts)):,}"),
    ]
    return stack(fields_table(rows, title=embedded.name), _vectors(embedded, texts))


def _vectors(embedded: EmbeddedTexts, texts: list[str]) -> RenderableType:
    first, rows = embedded.vectors[0], []
    for text, vector in zip(texts, embedded.vectors, strict=True):
        nearness = sum(one * other for one, other in zip(first, vector, strict=True))
        shown = " ".join(f"{number:.3f}" for number in vector[:_NUMBERS_SHOWN])
        rows.append((text, f"{nearness:.3f}", f"{shown} ..."))
    return rows_table(rows, "text", "nearness", "vector", right=["nearness"])
