"""Commands on plans and their executions: looking at them, and resolving executions with an unknown outcome."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.decisions.validation import DEFAULT_WINDOW_S
from sharedmem.faces.cli.app import Reads, operation_command, plans
from sharedmem.faces.cli.output import (
    dim,
    fields_table,
    format_age,
    format_count,
    list_table,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.models import (
    Duplicate,
    ExecutionRecord,
    ExecutionStats,
    PastDecision,
    PlanPattern,
    PlanRecord,
    RefusedDuplicate,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


OfAction = Annotated[str | None, typer.Option(help="Only plans with this action.")]
Limit = Annotated[int, typer.Option(help="Show at most that many.")]
Session = Annotated[str, typer.Argument(help="Name of the session.")]
OfSymbol = Annotated[str | None, typer.Option(help="Only what is about this symbol.")]
_STYLES = {"running": "cyan", "succeeded": "green", "failed": "red", "unknown": "yellow", "orphaned": "yellow"}


@operation_command("plan.list", "list", group=plans, example="sharedmem plans list desk --symbol BTC")
def plans_list(
    found: list[PlanRecord],
    session: Session,
    symbol: OfSymbol = None,
    limit: Limit = 10,
) -> RenderableType:
    """Show the newest plans, newest first."""
    rows = [
        (one.plan_hash, one.symbol, one.action, one.confidence, _age(one.timestamp_ms), one.reasoning) for one in found
    ]
    return rows_table(rows, "plan", "symbol", "action", "confidence", "saved", "reasoning", right=["confidence"])


@operation_command(
    "plan.check", "check", group=plans, example='sharedmem plans check desk BTC BUY "the trend is strong"'
)
def plans_check(
    found: Duplicate,
    session: Session,
    symbol: Annotated[str, typer.Argument(help="What the plan is about.")],
    action: Annotated[str, typer.Argument(help="What to do.")],
    reasoning: Annotated[str, typer.Argument(help="Why, to the letter.")],
    time_window_sec: Annotated[
        float, typer.Option("--window", help="How many seconds back to look.")
    ] = DEFAULT_WINDOW_S,
) -> RenderableType:
    """Show whether the same plan was saved in the time window."""
    if found.plan is None:
        return styled_text(("new: ", "green"), "no such plan was saved in that time")
    return styled_text(("duplicate ", "yellow"), f"of {found.plan.plan_hash}, saved ", _age(found.plan.timestamp_ms))


@operation_command(
    "plan.find_similar", "similar", group=plans, example='sharedmem plans similar "the trend is strong" --symbol BTC'
)
def plans_similar(  # each filter is an option
    found: list[PastDecision],
    reasoning: Annotated[str, typer.Argument(help="The reasoning to compare with.")],
    *,
    session: Annotated[str | None, typer.Option(help="Only plans of this session.")] = None,
    symbol: OfSymbol = None,
    action: OfAction = None,
    threshold: Annotated[float, typer.Option(help="Least cosine similarity, above 0, up to 1.")] = 0.5,
    limit: Limit = 10,
) -> RenderableType:
    """Show earlier plans with a similar reasoning and how they went, the most similar first."""
    return _past_picture(found)


@operation_command("plan.history", "history", group=plans, example="sharedmem plans history desk --since 2026-05-01")
def plans_history(
    found: list[PastDecision],
    session: Session,
    symbol: OfSymbol = None,
    since: Annotated[datetime | None, typer.Option(help="Only plans after this."), Reads(datetime.astimezone)] = None,
    until: Annotated[datetime | None, typer.Option(help="Only plans before this."), Reads(datetime.astimezone)] = None,
    limit: Limit = 100,
) -> RenderableType:
    """Show past plans and how they went, newest first; with the setting decision_history also those long ago."""
    return _past_picture(found)


@operation_command("plan.patterns", "patterns", group=plans, example="sharedmem plans patterns --symbol BTC")
def plans_patterns(
    found: list[PlanPattern],
    session: Annotated[str | None, typer.Argument(help="Only this session.")] = None,
    symbol: OfSymbol = None,
    action: OfAction = None,
    within: Annotated[float, typer.Option(help="Seconds between a plan and the one that followed it.")] = 3600.0,
    limit: Limit = 20,
) -> RenderableType:
    """Show what tended to follow plans of each kind, and how that went."""
    headings = ("plan", "then", "times", "share", "lift", "ended", "succeeded")
    rows = [
        (
            f"{one.first.symbol} {one.first.action}",
            f"{one.then.symbol} {one.then.action}",
            one.times,
            f"{one.share:.0%}",
            f"{one.lift:.2f}",
            one.ended,
            one.succeeded,
        )
        for one in found
    ]
    return rows_table(rows, *headings, right=headings[2:])


@operation_command("execution.stats", "stats", group=plans, example="sharedmem plans stats desk")
def plans_stats(stats: ExecutionStats, session: Session, symbol: OfSymbol = None) -> RenderableType:
    """Show how executions went."""
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
    return stack(numbers, "", _executions_picture(stats.recent_executions))


@operation_command("plan.refusals", "refusals", group=plans, example="sharedmem plans refusals desk")
def plans_refusals(found: list[RefusedDuplicate], session: Session) -> RenderableType:
    """Show the newest plans and executions that were refused as duplicates."""
    rows = [
        (one.what, one.symbol, one.plan_id, styled_text((one.actor, "cyan")), _age(one.timestamp_ms)) for one in found
    ]
    return rows_table(rows, "refused", "symbol", "in favour of", "actor", "when")


@operation_command("execution.open", "open", group=plans, example="sharedmem plans open desk")
def plans_open(found: list[ExecutionRecord], session: Session) -> RenderableType:
    """Show the executions that wait for an end: running, orphaned and unknown ones."""
    return _executions_picture(found)


@operation_command(
    "execution.resolve",
    "resolve",
    group=plans,
    example="sharedmem plans resolve desk c18188c2 success --order-id o-123",
)
def plans_resolve(
    record: ExecutionRecord,
    session: Session,
    plan_hash: Annotated[str, typer.Argument(metavar="plan", help="Hash or id of the plan.")],
    status: Annotated[str, typer.Argument(help="success, failed, or unknown.")],
    order_id: Annotated[str, typer.Option(help="What the exchange calls the order.")] = "",
    order_size_usdt: Annotated[float, typer.Option("--order-size", help="Size of the order in USDT.")] = 0.0,
    error: Annotated[str, typer.Option(help="What went wrong.")] = "",
) -> RenderableType:
    """Say how an orphaned or unknown execution ended, after looking at the exchange."""
    return styled_text(record.plan_hash, (" has ", "dim"), (record.state, _STYLES[record.state]))


@operation_command("plan.sessions", "sessions", group=plans, example="sharedmem plans sessions")
def plans_sessions(names: list[str]) -> RenderableType:
    """Show the sessions that have plans."""
    return list_table(names, first=1)


def _past_picture(found: list[PastDecision]) -> RenderableType:
    headings = ("session", "plan", "symbol", "action", "similarity", "saved", "execution", "reasoning")
    rows = [
        (
            one.plan.session_id,
            one.plan.plan_hash,
            one.plan.symbol,
            one.plan.action,
            "" if one.plan.similarity is None else f"{one.plan.similarity:.2f}",
            _age(one.plan.timestamp_ms),
            styled_text((one.execution.state, _STYLES[one.execution.state])) if one.execution else "",
            one.plan.reasoning,
        )
        for one in found
    ]
    return rows_table(rows, *headings, right=["similarity"])


def _age(timestamp_ms: int) -> Text:
    return dim(format_age(datetime.fromtimestamp(timestamp_ms / 1000, UTC)))


def _executions_picture(found: list[ExecutionRecord]) -> RenderableType:
    headings = ("plan", "symbol", "action", "state", "attempt", "by", "when", "order", "error")
    rows = [
        (
            one.plan_hash,
            one.symbol,
            one.action,
            styled_text((one.state, _STYLES[one.state])),
            one.attempt,
            one.actor,
            _age(one.timestamp_ms),
            one.order_id,
            one.error,
        )
        for one in found
    ]
    return rows_table(rows, *headings, right=["attempt"])
