"""examples/trading_desk: executors die, the exchange fails, and no order is placed twice; without the log many are."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support import embedded_fixtures
from support.forked_processes import run_forked

from sharedmem import ExecutionRecord, ExecutionStats
from sharedmem.models import ExecutionState

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "trading_desk"))

import exchange
import generate_prices
import market
import mishaps
import proof

DESK = Path(__file__).parents[3] / "examples" / "trading_desk"
data_dir = embedded_fixtures.data_dir


@pytest.fixture(scope="module")
def series() -> market.Series:
    return market.read_series(DESK / "prices.csv")


@pytest.fixture
def bourse(tmp_path: Path) -> exchange.Exchange:
    """An empty exchange where everything goes well."""
    found = exchange.Exchange(tmp_path / "exchange.sqlite")
    found.found()
    return found


def order(reference: str = "plan-1", venue: str = exchange.LANTERN) -> exchange.Order:
    return exchange.Order(reference=reference, decision="day KELP buy", venue=venue, price=48.0, size_usdt=900.0)


# -- the series and the rule ----------------------------------------------------------------------


def test_the_series_is_what_its_generator_writes() -> None:
    assert generate_prices.table() == (DESK / "prices.csv").read_text(encoding="utf-8")


def test_the_rule_has_something_to_decide_about_every_symbol(series: market.Series) -> None:
    by_symbol = Counter(decision.symbol for decision in market.all_decisions(series))

    assert by_symbol.keys() == series.closes.keys() == exchange.VENUES.keys()
    assert 40 <= by_symbol.total() <= 90


def test_no_two_decisions_are_the_same_plan(series: market.Series) -> None:
    decisions = market.all_decisions(series)

    assert len({decision.name for decision in decisions}) == len(decisions)
    assert len({(d.symbol, d.action, d.reasoning) for d in decisions}) == len(decisions)
    assert all(0 <= decision.confidence <= 1 for decision in decisions)


def test_buying_and_selling_take_turns(series: market.Series) -> None:
    for symbol in series.closes:
        actions = [decision.action for decision in market.all_decisions(series) if decision.symbol == symbol]

        assert all(one != other for one, other in pairwise(actions))


def test_the_rule_buys_where_the_averages_cross() -> None:
    closes = [10.0] * 24 + [9.0, 14.0, 14.0]
    days = [f"day {number}" for number in range(len(closes))]

    sell, buy = market.all_decisions(market.Series(days, {"KELP": closes}))

    assert (sell.name, buy.name) == ("day 24 KELP sell", "day 25 KELP buy")
    assert buy.reasoning == (
        "On day 25 the 5-day average of KELP (10.60) crossed above its 20-day average (10.15); the close was 14.00."
    )


# -- what goes wrong ------------------------------------------------------------------------------


def test_every_venue_meets_every_mishap_and_mostly_none(series: market.Series) -> None:
    decisions = market.all_decisions(series)
    dealt = mishaps.dealt(decisions, exchange.VENUES, seed=7)

    met = {(exchange.VENUES[d.symbol], dealt[d.name]) for d in decisions if d.name in dealt}
    assert len(met) == len(mishaps.Mishap) * len(set(exchange.VENUES.values()))
    assert len(dealt) < 0.6 * len(decisions)
    assert (
        dealt == mishaps.dealt(decisions, exchange.VENUES, seed=7) != mishaps.dealt(decisions, exchange.VENUES, seed=8)
    )


# -- the exchange ---------------------------------------------------------------------------------


def test_the_exchange_takes_an_order_as_often_as_it_is_sent(bourse: exchange.Exchange) -> None:
    first, second = bourse.place(order()), bourse.place(order())

    assert first.order_id != second.order_id
    assert bourse.statement() == [first, second]
    assert proof.doubles(bourse.statement()) == ("day KELP buy",)


def test_an_order_whose_sender_has_lost_its_claim_is_refused(bourse: exchange.Exchange) -> None:
    with pytest.raises(exchange.RejectedError, match="too late"):
        bourse.place(order(), permitted=lambda: False)

    assert bourse.statement() == []


def test_an_order_can_be_looked_up_at_one_venue_and_not_at_the_other(bourse: exchange.Exchange) -> None:
    at_lantern = bourse.place(order("a"))
    bourse.place(order("b", exchange.QUAYSIDE))

    assert bourse.look_up("a") == at_lantern
    assert bourse.look_up("b") is None
    assert [placed.reference for placed in bourse.statement()] == ["a", "b"]


@pytest.mark.parametrize(
    ("mishap", "error", "orders"),
    [
        (mishaps.Mishap.TIMEOUT_ACCEPTED, exchange.ExchangeTimeoutError, 1),
        (mishaps.Mishap.TIMEOUT_LOST, exchange.ExchangeTimeoutError, 0),
        (mishaps.Mishap.REJECTION, exchange.RejectedError, 0),
    ],
)
def test_a_mishap_strikes_once(tmp_path: Path, mishap: mishaps.Mishap, error: type[Exception], orders: int) -> None:
    bourse = exchange.Exchange(tmp_path / "exchange.sqlite", executor="e", mishaps={"day KELP buy": mishap})
    bourse.found()

    with pytest.raises(error):
        bourse.place(order())
    assert len(bourse.statement()) == orders
    bourse.place(order())

    assert len(bourse.statement()) == orders + 1
    assert bourse.mishaps() == {mishap.value: 1}


# -- the proof ------------------------------------------------------------------------------------


def placed(reference: str, decision: str, order_id: str) -> exchange.Placed:
    return exchange.Placed(order_id=order_id, reference=reference, decision=decision, size_usdt=1.0)


def executed(plan: str, *, order_id: str, state: ExecutionState = "succeeded") -> ExecutionRecord:
    return ExecutionRecord(
        plan_id=plan,
        plan_hash="00000000",
        session_id="s",
        symbol="KELP",
        action="buy",
        confidence=0.5,
        status="",
        executed=bool(order_id),
        order_id=order_id,
        order_size_usdt=1.0,
        timestamp_ms=0,
        error="",
        state=state,
        fence=1,
        attempt=1,
        actor="e",
    )


def failures(orders: list[exchange.Placed], executions: dict[str, ExecutionRecord | None], total: int = 2) -> int:
    stats = ExecutionStats(
        total_executions=total,
        successful_executions=0,
        failed_executions=0,
        win_rate=0.0,
        duplicates_prevented=0,
        recent_executions=[],
    )
    checks = proof.checks_of_orders(orders) + proof.checks_of_log(orders, executions, decisions=2, stats=stats)
    return sum(not check.holds for check in checks)


GOOD = [placed("1", "a", "L-1"), placed("2", "b", "L-2")]
LOG: dict[str, ExecutionRecord | None] = {"1": executed("1", order_id="L-1"), "2": executed("2", order_id="L-2")}


def test_the_proof_holds_when_orders_and_log_agree() -> None:
    assert failures(GOOD, LOG) == 0
    assert failures(GOOD[:1], LOG | {"2": executed("2", order_id="", state="failed")}) == 0


@pytest.mark.parametrize(
    ("orders", "log"),
    [
        ([*GOOD, placed("2", "b", "L-3")], LOG),
        ([*GOOD, placed("3", "b", "L-3")], LOG),
        (GOOD[:1], LOG),
        ([GOOD[0], placed("2", "b", "L-9")], LOG),
        (GOOD, {"1": LOG["1"]}),
        (GOOD, LOG | {"2": None}),
        (GOOD, LOG | {"2": executed("2", order_id="L-2", state="unknown")}),
    ],
    ids=["doubled", "doubled under another name", "not placed", "another number", "no plan", "never begun", "unknown"],
)
def test_the_proof_fails_when_they_do_not(
    orders: list[exchange.Placed], log: dict[str, ExecutionRecord | None]
) -> None:
    assert failures(orders, log) > 0


def test_orders_too_many_are_told_by_whose_doing_they_are() -> None:
    orders = [placed("1", "a", "L-1"), placed("1", "a", "L-2"), placed("2", "a", "L-3"), placed("3", "b", "L-4")]

    assert proof.too_many(orders) == (1, 1)


# -- the run --------------------------------------------------------------------------------------


def run_desk(data_dir: Path, *options: str) -> tuple[int, dict[str, Any]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SHAREDMEM_")}
    ended = run_forked(
        *(str(DESK / "floor.py"), "--json", *options),
        cwd=data_dir.parent,
        environment=environment | {"SHAREDMEM_DATA_DIR": str(data_dir)},
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_whatever_goes_wrong_no_order_is_placed_twice_and_no_plan_is_lost(data_dir: Path) -> None:
    code, summary = run_desk(data_dir, "--speed", "4")

    assert code == 0, json.dumps(summary)
    assert summary["doubled"] == []
    assert all(check["left"] == check["right"] for check in summary["checks"])
    assert summary["orders"] == summary["executions_succeeded"] > 0
    assert summary["plans_saved"] == summary["decisions"] == summary["plans_refused"]
    # What was to go wrong has gone wrong, and was dealt with in each of the ways there are.
    assert summary["mishaps"].keys() == {mishap.value for mishap in mishaps.Mishap}
    assert summary["crashes"] >= 8
    for way in ("taken_over", "orphans_resolved", "unknowns_settled", "executions_failed"):
        assert summary[way] > 0, way
    assert summary["duplicates_prevented"] > summary["plans_refused"]
    assert 0 < summary["win_rate"] < 1


@pytest.mark.nightly
def test_control_without_the_decision_log_orders_are_placed_twice(data_dir: Path) -> None:
    code, summary = run_desk(data_dir, "--naive", "--speed", "4", "--days", "130")

    assert code == 1
    assert len(summary["doubled"]) > 0
    assert summary["orders"] > summary["decisions"]
    assert summary["doubled_by_planners"] > 0
    assert summary["doubled_by_executors"] > 0


def test_the_desk_says_what_is_wrong_when_there_is_no_server(tmp_path: Path) -> None:
    ended = run_forked(
        str(DESK / "floor.py"),
        environment={
            **os.environ,
            "SHAREDMEM_REDIS_URL": f"unix://{tmp_path}/nobody.sock",
            "SHAREDMEM_DATA_DIR": str(tmp_path),
            "SHAREDMEM_RETRY_FOR_S": "0",
        },
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("the trading desk failed: ")
    assert "Traceback" not in ended.stderr
