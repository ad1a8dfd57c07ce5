"""A session is made again of its documents, however a store has spelled them."""

from __future__ import annotations

import json
from typing import Any

from sharedmem.decisions.sessions import SessionRestorer
from sharedmem.decisions.validation import plan_digest
from sharedmem.models import DurableRecord
from sharedmem.redis.durability import RedisPart
from sharedmem.redis.keys import KeySpace

KEYSPACE = KeySpace("sm", client="me")
TARGET = KEYSPACE.beside(KEYSPACE.target("team:shared:desk"), "plan")
IMAGER = SessionRestorer(KEYSPACE)
HEAD = {"succeeded": 1, "failed": 0, "unknown": 0, "prevented": 2, "finished": 1}
PLAN = {
    "timestamp_ms": 1700000000000,
    "plan_id": "1700000000000001",
    "plan_hash": "0a1b2c3d",
    "session_id": "desk",
    "symbol": 'B"TC',
    "action": "BUY",
    "confidence": 1.0,
    "method": "",
    "reasoning": "ü",
}
EXECUTION = {
    "state": "succeeded",
    "fence": 1700000000000002,
    "attempt": 1,
    "actor": "ada",
    "timestamp_ms": 1700000000000,
    "plan_id": "1700000000000001",
    "plan_hash": "0a1b2c3d",
    "session_id": "desk",
    "symbol": 'B"TC',
    "action": "BUY",
    "confidence": 1.0,
    "status": "success",
    "order_id": "o-1",
    "executed": True,
    "order_size_usdt": 100.0,
    "error": "",
}

BODIES = {"plan": PLAN, "execution": EXECUTION}


def record(element: str, kind: str, body: dict[str, Any], stamp: int = 1, size: int = 0) -> DurableRecord:
    text = json.dumps(body, ensure_ascii=False)
    return DurableRecord(
        key=TARGET.key, element=element, type=kind, kind="log", version=stamp, stamp=stamp, size=size, body=text
    )


def session(plan: dict[str, Any] = PLAN, execution: dict[str, Any] = EXECUTION) -> list[DurableRecord]:
    return [
        record("", "session", HEAD, size=1),
        record('count/B\\"TC', "count", {"symbol": 'B"TC', "succeeded": 1, "failed": 0, "unknown": 0, "prevented": 2}),
        record("execution/1700000000000001", "execution", execution),
        record("plan/1700000000000001", "plan", plan),
    ]


def by_name(parts: list[RedisPart]) -> dict[str, RedisPart]:
    return {part.place.decode().partition("}:$")[2].partition(":")[0]: part for part in parts}


def test_a_session_lies_in_redis_as_the_scripts_would_have_left_it() -> None:
    parts = by_name(IMAGER.parts(TARGET, session()))

    spelled = {name: json.dumps(body, ensure_ascii=False, separators=(",", ":")) for name, body in BODIES.items()}
    plan_id, short = "1700000000000001", "0a1b2c3d"
    full = plan_digest('B"TC', "BUY", "ü")
    assert parts["plan"].rows == [(plan_id, spelled["plan"].encode()), (short, plan_id)]
    assert parts["plan.order"].rows == [(f'{plan_id} {short} B\\"TC'.encode(),)]
    assert parts["plan.duplicates"].rows == [(full, f"{plan_id} 1.0 ".encode())]
    assert parts["plan.ages"].rows == [(plan_id, full)]
    assert parts["execution"].rows == [(plan_id, spelled["execution"].encode())]
    assert parts["execution.finished"].rows == [(f'{plan_id} succeeded {short} B\\"TC'.encode(),)]
    counts = parts["execution.stats"].rows
    assert counts == [(b"succeeded", 1), (b"prevented", 2), (b'succeeded B\\"TC', 1), (b'prevented B\\"TC', 2)]
    assert {part.place for part in parts.values()} >= {IMAGER.presence(TARGET)}


def test_a_store_that_understands_json_may_change_its_order_and_make_whole_numbers_of_fractions() -> None:
    plan = dict(reversed((PLAN | {"confidence": 1}).items()))
    execution = dict(reversed((EXECUTION | {"confidence": 1, "order_size_usdt": 100}).items()))

    assert IMAGER.parts(TARGET, session(plan, execution)) == IMAGER.parts(TARGET, session())


def test_what_a_later_version_has_added_stays() -> None:
    (row, *_) = by_name(IMAGER.parts(TARGET, session(PLAN | {"horizon": "1d"})))["plan"].rows

    assert str(row[1]).endswith('"horizon":"1d"}\'')


def test_of_a_forgotten_session_it_is_known_where_it_lay() -> None:
    parts = IMAGER.parts(TARGET, [record("", "session", {}).model_copy(update={"deleted": True, "body": ""})])

    assert {part.place for part in parts} == {part.place for part in IMAGER.parts(TARGET, session())}
    assert not any(part.rows for part in parts)


def test_a_session_that_is_back_is_listed_again() -> None:
    assert IMAGER.besides(TARGET, session()[0]) == [("SADD", b"sm:{team}:$plan.sessions:shared", "desk")]
