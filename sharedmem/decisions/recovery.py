"""How a session of decisions lies in Redis, made again of what the durable tier has of it.

For the tier a session is one key, that of its plans. Its documents are the head (the counts of all its executions,
how many plans are listed and how many ended executions), and by element `plan/<id>`, `execution/<id>`,
`name/<plan_hash>` (which execution a hash still names after its plan has gone from the list) and `count/<symbol>`.
Everything else is worked out of these, to the letter as the scripts have left it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from sharedmem.decisions.validation import encode_duplicate_entry, encode_json_text, plan_digest
from sharedmem.models import DurableRecord
from sharedmem.redis.durability import RedisPart
from sharedmem.redis.keys import SHARED_SCOPE, KeySpace, Target
from sharedmem.redis.replies import Argument, Command

# The scripts find fields by what stands beside them; a store that understands JSON may give it back in another order.
_PLAN = (
    *("timestamp_ms", "plan_id", "plan_hash", "session_id", "symbol", "action"),
    *("confidence", "method", "reasoning"),
)
_EXECUTION = (
    *("lease_ends_us", "state", "fence", "attempt", "actor", "timestamp_ms"),
    *("plan_id", "plan_hash", "session_id", "symbol", "action", "confidence"),
    *("status", "order_id", "executed", "order_size_usdt", "error"),
)
# Where 1.0 may have become 1.
_FRACTIONS = {"confidence", "order_size_usdt"}
_COUNTS = ("succeeded", "failed", "unknown", "prevented")
_PARTS = (
    *("plan", "plan.order", "plan.duplicates", "plan.ages"),
    *("execution", "execution.finished", "execution.stats"),
)

Body = dict[str, Any]
Rows = list[tuple[Argument, ...]]


class _SessionDocuments(NamedTuple):
    """The documents of a session, understood: plans by their age, executions by that of their last change."""

    head: Body
    listed: list[Body]
    """The plans that the session still shows."""
    plans: list[Body]
    """Those, and the plans that still make the same one a duplicate."""
    executions: list[Body]
    names: list[tuple[str, str]]
    counts: list[Body]


class SessionRestorer:
    """Knows how sessions lie in Redis (`wire.tier.Imager`).

    Args:
        keyspace: how keys are spelled.
    """

    def __init__(self, keyspace: KeySpace) -> None:
        self._keyspace = keyspace

    def presence(self, target: Target) -> bytes:
        """The plans: a session has some as long as it lives."""
        return target.physical

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """What the living documents of a session are in Redis: all that one may have there, with or without rows."""
        found = _parse_documents(records)
        session = self._keyspace.owner(target)
        made: list[tuple[str, Rows]] = [
            ("HSET", list(_plans(found))),
            ("RPUSH", [(_entry(plan, ""),) for plan in found.listed]),
            ("HSET", list(_duplicates(found))),
            ("ZADD", [(id_, digest_) for digest_, id_ in _newest_plans(found).items()]),
            ("HSET", list(_executions(found))),
            ("RPUSH", [(entry,) for entry in _finished_executions(found)]),
            ("HSET", list(_stats(found))),
        ]
        places = [self._keyspace.part(session, part) for part in _PARTS]
        return [RedisPart(place, command, rows) for place, (command, rows) in zip(places, made, strict=True)]

    def besides(self, target: Target) -> list[Command]:
        """The session is among those of its namespace again."""
        session = self._keyspace.owner(target)
        registry = self._keyspace.target(f"{session.space.namespace}:{SHARED_SCOPE}")
        return [("SADD", self._keyspace.part(registry, "plan.sessions"), session.key.rpartition(":")[2])]


def _parse_documents(records: Sequence[DurableRecord]) -> _SessionDocuments:
    head, *elements = records
    by_type: defaultdict[str, list[DurableRecord]] = defaultdict(list)
    for record in elements:
        by_type[record.type].append(record)
    plans = sorted((_parse_body(record) for record in by_type["plan"]), key=lambda plan: str(plan["plan_id"]))
    by_age = sorted(by_type["execution"], key=lambda record: record.stamp)
    names = [(record.element.partition("/")[2], str(_parse_body(record)["plan_id"])) for record in by_type["name"]]
    return _SessionDocuments(
        head=_parse_body(head),
        # Whatever else is there has left the list, and is remembered as a duplicate only.
        listed=plans[max(0, len(plans) - head.size) :],
        plans=plans,
        executions=[_parse_body(record) for record in by_age],
        names=names,
        counts=[_parse_body(record) for record in by_type["count"]],
    )


def _parse_body(record: DurableRecord) -> Body:
    # A tombstone has none, and so no counts; where it lay is asked for all the same.
    body: Body = orjson.loads(record.body or "{}")
    return body


def _plans(found: _SessionDocuments) -> Iterator[tuple[Argument, ...]]:
    """Plans by id, and the newest id by plan hash."""
    for plan in found.listed:
        yield plan["plan_id"], _encode_body(plan, _PLAN)
        yield plan["plan_hash"], plan["plan_id"]


def _duplicates(found: _SessionDocuments) -> Iterator[tuple[Argument, ...]]:
    newest = _newest_plans(found)
    for plan in found.plans:
        full = _digest(plan)
        if newest[full] == plan["plan_id"]:
            yield (
                full,
                f"{plan['plan_id']} ".encode() + encode_duplicate_entry(float(plan["confidence"]), plan["method"]),
            )


def _newest_plans(found: _SessionDocuments) -> dict[bytes, str]:
    """The newest plan by digest."""
    return {_digest(plan): plan["plan_id"] for plan in found.plans}


def _digest(plan: Mapping[str, Any]) -> bytes:
    return plan_digest(plan["symbol"], plan["action"], plan["reasoning"])


def _executions(found: _SessionDocuments) -> Iterator[tuple[Argument, ...]]:
    """Executions by plan id, and ids by the hash of a plan that has gone from the list."""
    for execution in found.executions:
        yield execution["plan_id"], _encode_body(execution, _EXECUTION)
    known = {execution["plan_id"] for execution in found.executions}
    yield from ((short, id_) for short, id_ in found.names if id_ in known)


def _finished_executions(found: _SessionDocuments) -> list[bytes]:
    """The executions that ended last, newest first; of older ones only those are there that nobody has resolved."""
    ended = [_entry(one, f" {one['state']}") for one in found.executions if one["state"] != "running"]
    return ended[::-1][: found.head.get("finished", 0)]


def _stats(found: _SessionDocuments) -> Iterator[tuple[Argument, ...]]:
    for tail, counts in ((b"", found.head), *((b" " + encode_json_text(one["symbol"]), one) for one in found.counts)):
        yield from ((what.encode() + tail, counts[what]) for what in _COUNTS if counts.get(what))


def _entry(of: Mapping[str, Any], state: str) -> bytes:
    return f"{of['plan_id']}{state} {of['plan_hash']} ".encode() + encode_json_text(of["symbol"])


def _encode_body(body: Mapping[str, Any], fields: Sequence[str]) -> bytes:
    """The JSON as the scripts have it, in their order; fields that this version does not know come last."""
    known = {name: float(body[name]) if name in _FRACTIONS else body[name] for name in fields if name in body}
    return orjson.dumps(known | {name: value for name, value in body.items() if name not in known})
