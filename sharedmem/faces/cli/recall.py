"""Commands over all parts of a store: what an agent should know now, and filing what was said."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.faces.cli.app import MEMORY
from sharedmem.faces.cli.operations import Reads, operation_command
from sharedmem.faces.cli.output import body, dim, escape_control, fields_table, read_text, stack
from sharedmem.models import RecalledContext, RememberReceipt

if TYPE_CHECKING:
    from rich.console import RenderableType

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
