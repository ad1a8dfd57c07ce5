"""The Redis keys of decision sessions: what plans and executions share, and rebuilding the keys from the durable tier.

For the tier a session is one key, that of its plans. Its documents are the head (the counts of all its executions, the
number of listed plans and of listed ended executions), and the elements `plan/<id>`, `execution/<id>`,
`name/<plan_hash>` (the execution that a hash still identifies after its plan has left the list) and `count/<symbol>`.
All other data is computed from these, exactly as the scripts have written it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson

from sharedmem.coordination.names import NameAccess
from sharedmem.decisions.validation import LONGEST_WINDOW_S, encode_duplicate_entry, encode_json_text, plan_digest
from sharedmem.errors import DurabilityPendingError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, RedisPart, UnsettledError
from sharedmem.redis.keys import SHARED_SCOPE, KeySpace, Space, Target, check_name
from sharedmem.redis.replies import Argument, Command, Reply
from sharedmem.redis.scope import Need
from sharedmem.redis.scripts.decisions import (
    COLD,
    DecisionScripts,
    DuplicateKeys,
    ExecutionBeginKeys,
    ExecutionEndKeys,
    ExecutionKeys,
    ExecutionStatsKeys,
    PlanKeys,
    PlanSaveKeys,
    SessionForgetKeys,
)
from sharedmem.redis.service_keys import decoding

T = TypeVar("T")
_REMEMBERED = 4096
_MOST_TRIES = 20
_PAGE = 1000
_SESSIONS = "$plan"
_SAVED = "plan.saved"
# The id of a plan, the fence of an execution, or the version itself.
_VERSION = re.compile(rb'^(?:saved )?(\d+)|"fence":(\d+)')


@dataclass(frozen=True, slots=True, eq=False)
class SessionKeys:
    """The keys of one session; those of a store are one object a session."""

    name: str
    target: Target
    space: Space
    keep: DurabilityModes
    """How the durable tier stores the session: as one key, that of its plans."""
    events: bytes
    """Prefix of the channels of its events."""
    saving: PlanSaveKeys
    plans: PlanKeys
    duplicates: DuplicateKeys
    refusals: bytes
    begin: ExecutionBeginKeys
    end: ExecutionEndKeys
    executions: ExecutionKeys
    stats: ExecutionStatsKeys
    forget: SessionForgetKeys


class DecisionSessions:
    """The sessions of one namespace: their keys, their scripts and the restore from the durable tier.

    Args:
        names: the names within the actor's rights.
    """

    def __init__(self, names: NameAccess) -> None:
        self.names = names
        self.actor = names.actor
        self.settings = names.context.settings
        self.scripts = DecisionScripts(names.context.executor)
        self._tier = names.context.tier
        self._known: dict[tuple[str, Need], SessionKeys] = {}

    @property
    def waits_for_tier(self) -> bool:
        """Whether a change of a session waits until the durable tier has it."""
        return self._tier is not None and self.settings.log_durability == "through"

    def keys(self, name: str, need: Need) -> SessionKeys:
        """Return the keys of a session.

        Raises:
            InvalidError: the name is invalid.
            AccessDeniedError: the actor may not write, or read, there.
        """
        try:
            return self._known[name, need]
        except (KeyError, TypeError):
            session = self._find_keys(check_name("session", name), need)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[name, need] = session
        return session

    async def changed(self, session: SessionKeys, call: Awaitable[T]) -> T:
        """Return the result of a change of a session.

        Raises:
            DurabilityPendingError: the change is made in Redis, but the durable tier does not have it yet.
            SharedMemoryError: the public error for the server's refusal.
        """
        try:
            return await self.names.explained(session.target, call)
        except UnsettledError as error:
            found = _VERSION.search(error.reply)
            version = int(found[1] or found[2]) if found else 0
            raise DurabilityPendingError(session.target.key, version, str(error)) from error.cause

    async def look(self, session: SessionKeys, call: Callable[[int], Awaitable[Reply]]) -> Reply:
        """Return the reply of a script that reads a session; restore a session first that only the durable tier has.

        Args:
            session: keys of the session.
            call: runs the script; with 1 it returns `COLD` if it found nothing and the session is not in Redis.

        Raises:
            UnavailableError: the session is not in Redis, and the tier is unreachable.
            SharedMemoryError: the public error for the server's refusal.
        """
        if self._tier is None:
            return await self.names.explained(session.target, call(0))
        await self._tier.join(session.space.namespace)
        for _ in range(_MOST_TRIES):
            reply = await self.names.explained(session.target, call(1))
            if reply != COLD:
                return reply
            if not await self.restore(session):
                return await self.names.explained(session.target, call(0))
        raise UnavailableError(f"session {session.name!r}", "Redis evicts it as often as it is restored; try again")

    async def restore(self, session: SessionKeys) -> bool:
        """Restore a session that only the durable tier may have; return whether it is in Redis now."""
        return self._tier is not None and await self._tier.recall(session.keep.targets[0], LOG_MODE)

    async def documents(self, name: str) -> list[DurableRecord]:
        """Return the documents of a session in the durable tier; none without a tier. One request to the tier.

        Raises:
            InvalidError, AccessDeniedError: as `keys`.
            UnavailableError, LimitedError: the tier is unavailable.
        """
        session = self.keys(name, "read")
        return [] if self._tier is None else await self._tier.documents(session.keep.targets[0])

    async def session_names(self) -> list[str]:
        """Return the sessions that have plans, sorted; from the durable tier too."""
        registry = self._registry("read")
        if self._tier is None:
            return sorted(await self._registered(registry))
        namespace = registry.space.namespace
        await self._tier.join(namespace)
        names = await self._still_here(sorted(await self._registered(registry)))
        async for page in self._tier.logs(namespace, _SESSIONS):
            keyspace = self.names.scope.keyspace
            owners = (keyspace.owner(keyspace.target(key)) for key in page)
            names |= {owner.key.rpartition(":")[2] for owner in owners}
        return sorted(names)

    async def _registered(self, registry: Target) -> set[str]:
        names, cursor = set[str](), "0"
        while True:
            held = self.names.part(registry, "plan.sessions")
            call = self.names.context.client.call("SSCAN", held, cursor, "COUNT", _PAGE)
            position, page = as_list(await self.names.explained(registry, call))
            with decoding(held):
                names |= {text_of(name) for name in as_list(page)}
            cursor = text_of(position)
            if cursor == "0":
                return names

    async def _still_here(self, names: Sequence[str]) -> set[str]:
        """Return the sessions that are in Redis: a server restored from an old snapshot may list deleted ones."""
        found = set[str]()
        for first in range(0, len(names), _PAGE):
            some = names[first : first + _PAGE]
            looks = [("EXISTS", self.keys(name, "read").plans.plans) for name in some]
            replies = await self.names.context.client.read_many(looks)
            found |= {name for name, reply in zip(some, replies, strict=True) if reply == 1}
        return found

    def _registry(self, need: Need) -> Target:
        """Return the key from which the key of the session registry is derived."""
        return self.names.scope.common(f"{self.names.scope.identity.namespace}:{SHARED_SCOPE}", need)

    def _find_keys(self, name: str, need: Need) -> SessionKeys:
        target = self.names.scope.common(name, need)
        channel = self.names.scope.common(f"memory.{name}.{_SAVED}", need).physical
        key, sessions = target.physical, self.names.part(self._registry(need), "plan.sessions")
        plans, order = self.names.part(target, "plan"), self.names.part(target, "plan.order")
        duplicates, ages = self.names.part(target, "plan.duplicates"), self.names.part(target, "plan.ages")
        executions, finished = self.names.part(target, "execution"), self.names.part(target, "execution.finished")
        stats, refusals = self.names.part(target, "execution.stats"), self.names.part(target, "plan.refusals")
        return SessionKeys(
            name=name,
            target=target,
            space=target.space,
            keep=DurabilityModes((self.names.scope.keyspace.beside(target, "plan"),), LOG_MODE),
            events=channel.removesuffix(_SAVED.encode()),
            saving=PlanSaveKeys(plans, key, order, duplicates, ages, executions, finished, stats, sessions, refusals),
            plans=PlanKeys(plans, order),
            duplicates=DuplicateKeys(plans, duplicates),
            refusals=refusals,
            begin=ExecutionBeginKeys(plans, key, order, executions, finished, stats, refusals),
            end=ExecutionEndKeys(plans, key, order, executions, finished, stats),
            executions=ExecutionKeys(plans, executions),
            stats=ExecutionStatsKeys(plans, stats, finished, executions),
            forget=SessionForgetKeys(
                plans, key, order, duplicates, ages, executions, finished, stats, sessions, refusals
            ),
        )


# -- restoring from the durable tier -------------------------------------------------------------


# The scripts find fields by their neighbours; a store that parses JSON may return fields in another order.
_PLAN = (
    *("timestamp_ms", "plan_id", "plan_hash", "session_id", "symbol", "action"),
    *("confidence", "method", "reasoning"),
)
_EXECUTION = (
    *("lease_ends_us", "lease_ms", "state", "fence", "attempt", "actor", "timestamp_ms"),
    *("plan_id", "plan_hash", "session_id", "symbol", "action", "confidence"),
    *("status", "order_id", "executed", "order_size_usdt", "error"),
)
# Fields in which 1.0 may have become 1.
_FRACTIONS = {"confidence", "order_size_usdt"}
_LEASE_END = re.compile(rb'^\{"lease_ends_us":\d+,')
_COUNTS = ("succeeded", "failed", "unknown", "prevented")
_PARTS = (
    *("plan", "plan.order", "plan.duplicates", "plan.ages"),
    *("execution", "execution.finished", "execution.stats"),
)

Body = dict[str, Any]
Rows = list[tuple[Argument, ...]]


class _SessionDocuments(NamedTuple):
    """The parsed documents of a session: plans ordered by age, executions by their last change."""

    head: Body
    listed: list[Body]
    """The plans that the session still lists."""
    plans: list[Body]
    """These, and the plans that the duplicate index still has."""
    executions: list[Body]
    names: list[tuple[str, str]]
    counts: list[Body]


class SessionRestorer:
    """Rebuilds the Redis keys of sessions (see `sharedmem.redis.durability.KeyRestorer`).

    Args:
        keyspace: builds the keys.
    """

    def __init__(self, keyspace: KeySpace) -> None:
        self._keyspace = keyspace

    def presence(self, target: Target) -> bytes:
        """Return the key of the plans: it exists as long as the session."""
        return target.physical

    def parts(self, target: Target, records: Sequence[DurableRecord], *, now_ms: int = 0) -> list[RedisPart]:
        """Return the Redis keys of a session from its valid documents: all keys that it may have, also empty ones.

        The tier does not have renewals. So a claim that comes back runs for its lease once more: its executor, which
        may have renewed it just before the loss, must not meet a successor.
        """
        found = _parse_documents(records)
        session = self._keyspace.owner(target)
        made: list[tuple[str, Rows]] = [
            ("HSET", list(_plans(found))),
            ("RPUSH", [(_entry(plan, ""),) for plan in found.listed]),
            ("HSET", list(_duplicates(found))),
            ("ZADD", [(id_, digest_) for digest_, id_ in _newest_plans(found).items()]),
            ("HSET", list(_executions(found, now_ms))),
            ("RPUSH", [(entry,) for entry in _finished_executions(found)]),
            ("HSET", list(_stats(found))),
        ]
        places = [self._keyspace.part(session, part) for part in _PARTS]
        running = self._keyspace.part(session, "execution")
        parts = [RedisPart(place, command, rows) for place, (command, rows) in zip(places, made, strict=True)]
        return [part._replace(settled=_without_lease) if part.place == running else part for part in parts]

    def besides(self, target: Target, head: DurableRecord) -> list[Command]:  # noqa: ARG002  # its name is enough
        """Return the command that adds the session to the sessions of its namespace."""
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
    head_body = _parse_body(head)
    # With the setting `decision_history` there may be many more, which Redis no longer had.
    listed = plans[max(0, len(plans) - head.size) :]
    executions = _still_needed([_parse_body(record) for record in by_age], listed, head_body.get("finished", 0))
    names = [(record.element.partition("/")[2], str(_parse_body(record)["plan_id"])) for record in by_type["name"]]
    return _SessionDocuments(
        head=head_body,
        listed=listed,
        plans=_matchable(plans),
        executions=executions,
        names=names,
        counts=[_parse_body(record) for record in by_type["count"]],
    )


def _matchable(plans: list[Body]) -> list[Body]:
    """Return the plans that a time window can match: the others are history."""
    newest_us = int(plans[-1]["plan_id"]) if plans else 0
    return [plan for plan in plans if newest_us - int(plan["plan_id"]) <= LONGEST_WINDOW_S * 1_000_000]


def _still_needed(executions: list[Body], listed: Sequence[Body], finished: int) -> list[Body]:
    """Return the executions of listed plans, the unresolved ones, and the `finished` ones that ended last."""
    ids = {plan["plan_id"] for plan in listed}
    ended = [one["plan_id"] for one in executions if one["state"] != "running"]
    ids.update(ended[max(0, len(ended) - finished) :])
    return [one for one in executions if one["plan_id"] in ids or one["state"] in {"running", "unknown"}]


def _parse_body(record: DurableRecord) -> Body:
    # A tombstone has no body, and so no counts; but its place is needed.
    body: Body = orjson.loads(record.body or "{}")
    return body


def _plans(found: _SessionDocuments) -> Iterator[tuple[Argument, ...]]:
    """Yield plans by id, and the newest id by plan hash."""
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
    """Return the newest plan by digest."""
    return {_digest(plan): plan["plan_id"] for plan in found.plans}


def _digest(plan: Mapping[str, Any]) -> bytes:
    return plan_digest(plan["symbol"], plan["action"], plan["reasoning"])


def _executions(found: _SessionDocuments, now_ms: int) -> Iterator[tuple[Argument, ...]]:
    """Yield executions by plan id, and ids by the hash of a plan that has left the list."""
    for execution in found.executions:
        yield execution["plan_id"], _encode_body(_with_lease_from(execution, now_ms), _EXECUTION)
    known = {execution["plan_id"] for execution in found.executions}
    yield from ((short, id_) for short, id_ in found.names if id_ in known)


def _with_lease_from(execution: Body, now_ms: int) -> Body:
    if execution["state"] != "running":
        return execution
    ends_us = int(execution["lease_ends_us"])
    # Documents of earlier versions lack the length.
    lease_ms = int(execution.get("lease_ms", ends_us // 1000 - int(execution["timestamp_ms"])))
    return execution | {"lease_ends_us": max(ends_us, (now_ms + lease_ms) * 1000)}


def _without_lease(cell: bytes) -> bytes:
    """Return an execution without the end of its lease, which renewals move in Redis alone."""
    return _LEASE_END.sub(b"{", cell)


def _finished_executions(found: _SessionDocuments) -> list[bytes]:
    """Return the executions that ended last, newest first; of older ones only unresolved ones are there."""
    ended = [_entry(one, f" {one['state']}") for one in found.executions if one["state"] != "running"]
    return ended[::-1][: found.head.get("finished", 0)]


def _stats(found: _SessionDocuments) -> Iterator[tuple[Argument, ...]]:
    for tail, counts in ((b"", found.head), *((b" " + encode_json_text(one["symbol"]), one) for one in found.counts)):
        yield from ((what.encode() + tail, counts[what]) for what in _COUNTS if counts.get(what))


def _entry(of: Mapping[str, Any], state: str) -> bytes:
    return f"{of['plan_id']}{state} {of['plan_hash']} ".encode() + encode_json_text(of["symbol"])


def _encode_body(body: Mapping[str, Any], fields: Sequence[str]) -> bytes:
    """Return the JSON in the field order of the scripts; fields that are unknown to this version come last."""
    known = {name: float(body[name]) if name in _FRACTIONS else body[name] for name in fields if name in body}
    return orjson.dumps(known | {name: value for name, value in body.items() if name not in known})
