"""Commands on plans and their executions: looking at them, and deciding what became of those nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.decisions.validation import DEFAULT_WINDOW_S
from sharedmem.faces.cli.app import command, plans
from sharedmem.faces.cli.output import (
    cell,
    empty_text,
    fields_table,
    format_age,
    format_count,
    list_table,
    print_answer,
    show_operation,
    styled_text,
    table,
)
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.models import Duplicate, ExecutionRecord, ExecutionStats, PlanRecord

if TYPE_CHECKING:
    from rich.console import RenderableType


Session = Annotated[str, typer.Argument(help="Name of the session.")]
OfSymbol = Annotated[str | None, typer.Option(help="Only what is about this symbol.")]
_STYLES = {"running": "cyan", "succeeded": "green", "failed": "red", "unknown": "yellow", "orphaned": "yellow"}


@command("list", None, group=plans, example="sharedmem plans list desk --symbol BTC")
def plans_list(
    context: typer.Context,
    session: Session,
    symbol: OfSymbol = None,
    limit: Annotated[int, typer.Option(help="Show at most that many.")] = 10,
) -> None:
    """Show the newest plans, newest first."""
    show_operation(context, "plan.list", _plans_picture, session=session, symbol=symbol, limit=limit)


@command("check", None, group=plans, example='sharedmem plans check desk BTC BUY "the trend is strong"')
def plans_check(
    context: typer.Context,
    session: Session,
    symbol: Annotated[str, typer.Argument(help="What the plan is about.")],
    action: Annotated[str, typer.Argument(help="What to do.")],
    reasoning: Annotated[str, typer.Argument(help="Why, to the letter.")],
    window: Annotated[float, typer.Option(help="How many seconds back to look.")] = DEFAULT_WINDOW_S,
) -> None:
    """Tell whether the same plan was saved in the time window."""
    options = options_of(context)
    found = perform(
        options,
        "plan.check",
        session=session,
        symbol=symbol,
        action=action,
        reasoning=reasoning,
        time_window_sec=window,
    )
    print_answer(options, found, lambda: _duplicate_picture(found))


@command("stats", None, group=plans, example="sharedmem plans stats desk")
def plans_stats(context: typer.Context, session: Session, symbol: OfSymbol = None) -> None:
    """Show how executions went."""
    show_operation(context, "execution.stats", _stats_picture, session=session, symbol=symbol)


@command("open", None, group=plans, example="sharedmem plans open desk")
def plans_open(context: typer.Context, session: Session) -> None:
    """Show the executions that wait for an end: running, orphaned and unknown ones."""
    show_operation(context, "execution.open", _executions_picture, session=session)


@command("resolve", None, group=plans, example="sharedmem plans resolve desk c18188c2 success --order-id o-123")
def plans_resolve(
    context: typer.Context,
    session: Session,
    plan: Annotated[str, typer.Argument(help="Hash or id of the plan.")],
    status: Annotated[str, typer.Argument(help="success, failed, or unknown.")],
    order_id: Annotated[str, typer.Option(help="What the exchange calls the order.")] = "",
    order_size: Annotated[float, typer.Option(help="Size of the order in USDT.")] = 0.0,
    error: Annotated[str, typer.Option(help="What went wrong.")] = "",
) -> None:
    """Say how an orphaned or unknown execution ended, after looking at the exchange."""
    options = options_of(context)
    record = perform(
        options,
        "execution.resolve",
        session=session,
        plan_hash=plan,
        status=status,
        order_id=order_id,
        order_size_usdt=order_size,
        error=error,
    )
    print_answer(
        options, record, lambda: styled_text(record.plan_hash, (" has ", "dim"), (record.state, _STYLES[record.state]))
    )


@command("sessions", None, group=plans, example="sharedmem plans sessions")
def plans_sessions(context: typer.Context) -> None:
    """Show the sessions that have plans."""
    show_operation(context, "plan.sessions", lambda names: list_table(names, first=1))


def _format_moment(timestamp_ms: int) -> str:
    return format_age(datetime.fromtimestamp(timestamp_ms / 1000, UTC))


def _plans_picture(found: list[PlanRecord]) -> RenderableType:
    if not found:
        return empty_text()
    picture = table("plan", "symbol", "action", "confidence", "saved", "reasoning", right=["confidence"])
    for plan in found:
        name = cell(plan.plan_hash)
        words = (cell(plan.symbol), cell(plan.action), cell(plan.confidence))
        picture.add_row(name, *words, styled_text((_format_moment(plan.timestamp_ms), "dim")), cell(plan.reasoning))
    return picture


def _duplicate_picture(found: Duplicate) -> RenderableType:
    if found.plan is None:
        return styled_text(("new: ", "green"), "no such plan was saved in that time")
    return styled_text(
        ("duplicate ", "yellow"), f"of {found.plan.plan_hash}, saved {_format_moment(found.plan.timestamp_ms)}"
    )


def _executions_picture(found: list[ExecutionRecord]) -> RenderableType:
    if not found:
        return empty_text()
    picture = table("plan", "symbol", "action", "state", "attempt", "by", "when", "order", "error", right=["attempt"])
    for record in found:
        picture.add_row(
            cell(record.plan_hash),
            cell(record.symbol),
            cell(record.action),
            styled_text((record.state, _STYLES[record.state])),
            cell(record.attempt),
            cell(record.actor),
            styled_text((_format_moment(record.timestamp_ms), "dim")),
            cell(record.order_id),
            cell(record.error),
        )
    return picture


def _stats_picture(stats: ExecutionStats) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    ended = stats.successful_executions + stats.failed_executions
    numbers = fields_table(
        [
            ("executions", stats.total_executions),
            ("succeeded", stats.successful_executions),
            ("failed", stats.failed_executions),
            ("unknown", stats.total_executions - ended),
            ("win rate", f"{stats.win_rate:.1%}"),
            ("prevented", format_count(stats.duplicates_prevented, "duplicate")),
        ]
    )
    return Group(numbers, "", _executions_picture(stats.recent_executions))
