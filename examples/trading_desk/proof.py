"""The end of the run: compare the exchange with the decision log, and display the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from exchange import Placed
from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sharedmem import ExecutionRecord, ExecutionStats


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Check(_Frozen):
    """Two numbers that must be equal."""

    claim: str
    left: int
    right: int

    @property
    def holds(self) -> bool:
        """Whether they are equal."""
        return self.left == self.right


class Summary(_Frozen):
    """The results of the run."""

    naive: bool
    decisions: int
    """Decisions of the rule on this series, counted separately."""
    plans_saved: int
    orders: int
    doubled: tuple[str, ...]
    """Decisions with more than one order at the exchange."""
    doubled_by_planners: int
    """Orders too many because the decision was in the queue more than once."""
    doubled_by_executors: int
    """Orders too many because one ticket was carried out more than once."""
    win_rate: float
    executions_succeeded: int
    executions_failed: int
    duplicates_prevented: int
    plans_refused: int
    """Of these, plans that a second planner did not save again."""
    taken_over: int
    orphans_resolved: int
    unknowns_settled: int
    crashes: int
    """Executors that died and were restarted."""
    mishaps: dict[str, int]
    checks: tuple[Check, ...]
    seconds: float
    exchange: str
    server: str

    @property
    def ok(self) -> bool:
        """Whether all checks hold."""
        return all(check.holds for check in self.checks)


def doubles(orders: Iterable[Placed]) -> tuple[str, ...]:
    """Return the decisions that were executed more than once, in order."""
    times = Counter(order.decision for order in orders)
    return tuple(sorted(decision for decision, number in times.items() if number > 1))


def too_many(orders: Sequence[Placed]) -> tuple[int, int]:
    """Return (surplus orders of planners, of executors): a repeated reference is caused by an executor."""
    decisions, references = {order.decision for order in orders}, {order.reference for order in orders}
    return len(references) - len(decisions), len(orders) - len(references)


def checks_of_orders(orders: Sequence[Placed]) -> list[Check]:
    """Return the checks of the exchange's file alone, for orders of any sender."""
    distinct = len({order.decision for order in orders})
    return [Check(claim="orders = distinct decisions among them", left=len(orders), right=distinct)]


def checks_of_log(
    orders: Sequence[Placed],
    executions: Mapping[str, ExecutionRecord | None],
    *,
    decisions: int,
    stats: ExecutionStats,
) -> list[Check]:
    """Return the checks between the exchange's file and the decision log.

    Args:
        orders: every accepted order.
        executions: by plan id, for every saved plan; None for a plan that was never begun.
        decisions: number of decisions of the rule.
        stats: the log's counts during the run.
    """
    recorded = {plan_id: record.order_id for plan_id, record in executions.items() if record and record.executed}
    agreed = sum(recorded.get(order.reference) == order.order_id for order in orders)
    states = Counter(record.state if record else "none" for record in executions.values())
    ended = states["succeeded"] + states["failed"]
    return [
        Check(claim="orders = plans executed in the log", left=len(orders), right=len(recorded)),
        Check(claim="orders = orders in the log by plan and number", left=len(orders), right=agreed),
        Check(claim="decisions of the rule = plans saved", left=decisions, right=len(executions)),
        Check(claim="plans saved = plans whose end is known", left=len(executions), right=ended),
        Check(claim="executions counted on the way = counted now", left=stats.total_executions, right=ended),
    ]  # fmt: skip - a check a line


def picture(summary: Summary) -> Group:
    """Return the summary for display."""
    verdict = _verdict(summary)
    style = "bold green" if summary.ok else "bold red"
    parts: list[RenderableType] = [
        _numbers(summary),
        _mishaps(summary),
        _checks(summary),
        Panel(Text(verdict, style=style), expand=False),
    ]
    return Group(*parts, Text(f"Exchange: {summary.exchange}"), Text(f"Server:   {summary.server}"))


def _verdict(summary: Summary) -> str:
    if summary.ok:
        return f"PROVED: {summary.orders} orders for {summary.orders} distinct plans, 0 doubles."
    if summary.doubled:
        return (
            f"FAILED: {len(summary.doubled)} decisions were carried out more than once, such as {summary.doubled[0]}:\n"
            f"{summary.doubled_by_planners} orders too many because two planners decided, "
            f"{summary.doubled_by_executors} because an executor repeated itself or another."
        )
    failed = next(check for check in summary.checks if not check.holds)
    return f"FAILED: {failed.claim}: {failed.left} against {failed.right}."


def _numbers(summary: Summary) -> Table:
    table = _table("The desk, without a decision log" if summary.naive else "The desk", "", "")
    rows: list[tuple[str, object]] = [("decisions of the rule", summary.decisions), ("orders placed", summary.orders)]
    if not summary.naive:
        rows += [
            ("plans saved", summary.plans_saved),
            ("win rate (executions that succeeded)", f"{summary.win_rate:.1%}"),
            ("duplicates prevented", summary.duplicates_prevented),
            ("  of these plans decided twice", summary.plans_refused),
            ("claims taken over from the dead", summary.taken_over),
            ("open at the close, resolved by the statement", summary.orphans_resolved),
            ("unknown, resolved by look-up at the exchange", summary.unknowns_settled),
        ]
    for name, value in [*rows, ("executors that died", summary.crashes), ("seconds", f"{summary.seconds:.1f}")]:
        table.add_row(name, str(value))
    return table


def _mishaps(summary: Summary) -> Table:
    table = _table("What went wrong on the way", "mishap", "times")
    for kind, times in summary.mishaps.items():
        table.add_row(kind, str(times))
    return table


def _checks(summary: Summary) -> Table:
    table = _table("The proof, from the exchange's own file", "has to hold", "", "")
    for check in summary.checks:
        mark = Text("yes", style="green") if check.holds else Text("NO", style="bold red")
        table.add_row(
            check.claim, f"{check.left} = {check.right}" if check.holds else f"{check.left} ≠ {check.right}", mark
        )
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=any(headings))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number == 1 else "left")
    return table
