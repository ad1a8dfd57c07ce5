"""Executions: claim each plan at most once, hold and renew the claim while a block runs, and record its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, Unpack, cast

import orjson

from sharedmem.clock import Clock
from sharedmem.coordination.names import check_lease_ms
from sharedmem.decisions.sessions import DecisionSessions, SessionKeys
from sharedmem.decisions.validation import (
    OutcomeFields,
    check_confidence,
    check_fence,
    check_outcome,
    check_plan,
    check_word,
    encode_json_fields,
    encode_json_text,
)
from sharedmem.errors import (
    AlreadyExecutedError,
    ClaimLostError,
    ConflictError,
    DurabilityPendingError,
    InternalError,
    InvalidError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
)
from sharedmem.models import ExecutionClaim, ExecutionRecord, ExecutionStats
from sharedmem.models.record import of_checked
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.replies import Reply
from sharedmem.redis.scripts.data import WriteBatcher, split_replies
from sharedmem.redis.scripts.decisions import ExecutionBegin, ExecutionEnd
from sharedmem.redis.service_keys import decoding
from sharedmem.runtime import get_logger, metric_key
from sharedmem.runtime.concurrency import Background, ProcessBound

TakeoverPolicy = Literal["never", "takeover"]
_POLICIES = ("never", "takeover")
_RECENT = 20
_PAGE = 500
_STARTED, _REFUSED = (metric_key("execution_claims", outcome=outcome) for outcome in ("started", "refused"))
# Fields that a running execution does not have yet.
_UNFINISHED_FIELDS: dict[str, object] = {
    "status": "",
    "executed": False,
    "order_id": "",
    "order_size_usdt": 0.0,
    "error": "",
}


class ExecutionLog:
    """Claims, records and counts executions."""

    def __init__(self, sessions: DecisionSessions) -> None:
        self._sessions = sessions
        background = sessions.names.context.background
        self._batcher = WriteBatcher[SessionKeys, ExecutionBegin](self._begin_together, background, split_replies)

    async def begin_execution(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> ExecutionClaim:
        """As `Decisions.begin_execution`."""
        sessions = self._sessions
        found = sessions.keys(session, "write")
        if policy not in _POLICIES:
            raise InvalidError("policy", policy, "give 'never' or 'takeover'")
        claiming = ExecutionBegin(check_plan(plan_hash), check_lease_ms(lease), policy)
        # Where callers wait for the durable tier, a refused one does not: it has a call of its own.
        call = (
            self._begin_together(found, [claiming]) if sessions.waits_for_tier else self._batcher.put(found, claiming)
        )
        claim = _parse_claim(await sessions.changed(found, call), found, session, plan_hash)
        counters = sessions.names.context.counters
        counters.add_to(_STARTED if claim.started else _REFUSED, 1)
        return claim

    def _begin_together(self, session: SessionKeys, claims: Sequence[ExecutionBegin]) -> Awaitable[bytes]:
        sessions = self._sessions
        return sessions.scripts.execution_begin(
            session.space, session.begin, sessions.actor, events=session.events, claims=claims, keep=session.keep
        )

    async def renew(self, session: str, plan_hash: str, fence: int, *, lease: float = 30.0) -> ExecutionClaim:
        """As `Decisions.renew`."""
        found = self._sessions.keys(session, "write")
        claim = check_plan(plan_hash), check_fence(fence), check_lease_ms(lease)
        reply = await self._renewed(found, *claim)
        # A renewal is not history, so it is not sent to the tier; but the execution may have to be restored from there.
        if reply == b"absent" and await self._sessions.restore(found):
            reply = await self._renewed(found, *claim)
        if reply == b"lost":
            raise ClaimLostError("plan", plan_hash, fence)
        return _parse_claim(reply, found, session, plan_hash)

    async def finish(
        self,
        session: str,
        plan_hash: str,
        fence: int,
        **outcome: Unpack[OutcomeFields],
    ) -> ExecutionRecord:
        """As `Decisions.finish`."""
        checked = check_outcome(**outcome)
        ending = ExecutionEnd(
            "finish", check_plan(plan_hash), str(check_fence(fence)), checked.state, b"", *checked[1:], b""
        )
        return await self._record(session, ending, fence)

    async def mark_executed(
        self,
        session: str,
        plan_hash: str,
        plan: tuple[str, str, float],
        *,
        fence: int | None,
        **outcome: Unpack[OutcomeFields],
    ) -> ExecutionRecord:
        """As `Decisions.mark_executed`; `plan` is its symbol, action and confidence."""
        symbol, action, confidence = plan
        done = {
            "symbol": check_word("symbol", symbol),
            "action": check_word("action", action),
            "confidence": check_confidence(confidence),
        }
        checked = check_outcome(**outcome)
        token = "" if fence is None else str(check_fence(fence))
        ending = ExecutionEnd(
            "mark", check_plan(plan_hash), token, checked.state, encode_json_fields(done), *checked[1:], b""
        )
        return await self._record(session, ending, fence or 0)

    async def resolve(
        self,
        session: str,
        plan_hash: str,
        **outcome: Unpack[OutcomeFields],
    ) -> ExecutionRecord:
        """As `Decisions.resolve`."""
        checked = check_outcome(**outcome)
        ending = ExecutionEnd("resolve", check_plan(plan_hash), "", checked.state, b"", *checked[1:], b"")
        return await self._record(session, ending, 0)

    async def check_executed(self, session: str, plan_hash: str) -> tuple[bool, ExecutionRecord | None]:
        """As `Decisions.check_executed`."""
        sessions = self._sessions
        found, plan = sessions.keys(session, "read"), check_plan(plan_hash)
        reply = cast(
            "bytes",
            await sessions.look(
                found, lambda cold: sessions.scripts.execution_check(found.executions, plan=plan, cold=cold)
            ),
        )
        if reply == b"absent":
            raise _plan_not_found(session, plan_hash)
        if reply == b"none":
            return False, None
        _, state, text = reply.split(b" ", 2)
        return True, parse_execution(found.executions.executions, text, state)

    async def get_execution_stats(self, session: str, symbol: str | None = None) -> ExecutionStats:
        """As `Decisions.get_execution_stats`."""
        sessions = self._sessions
        found = sessions.keys(session, "read")
        if symbol is not None:
            check_word("symbol", symbol)
        wanted = encode_json_text(symbol)

        def look(cold: int) -> Awaitable[Reply]:
            return sessions.scripts.execution_stats(found.stats, symbol=wanted, limit=_RECENT, cold=cold)

        reply = as_list(await sessions.look(found, look))
        with decoding(found.stats.stats):
            succeeded, failed, unknown, prevented = (int(cast("bytes", number)) for number in reply[:4])
        total = succeeded + failed + unknown
        return ExecutionStats.model_construct(
            total_executions=total,
            successful_executions=succeeded,
            failed_executions=failed,
            win_rate=succeeded / total if total else 0.0,
            duplicates_prevented=prevented,
            recent_executions=[
                parse_execution(found.executions.executions, text) for text in reply[4:] if isinstance(text, bytes)
            ],
        )

    async def get_open_executions(self, session: str) -> list[ExecutionRecord]:
        """As `Decisions.get_open_executions`."""
        sessions = self._sessions
        found = sessions.keys(session, "read")
        records: dict[str, ExecutionRecord] = {}
        cursor = b"0"

        def look(cold: int) -> Awaitable[Reply]:
            return sessions.scripts.execution_open(found.executions, cursor=cursor, limit=_PAGE, cold=cold)

        while True:
            position, *page = cast("list[bytes]", await sessions.look(found, look))
            for state, _, text in (entry.partition(b" ") for entry in page):
                record = parse_execution(found.executions.executions, text, state)
                records[record.plan_id] = record
            cursor = position
            if cursor == b"0":
                return sorted(records.values(), key=lambda record: record.plan_id)

    async def _renewed(self, session: SessionKeys, plan: str, fence: int, lease_ms: int) -> bytes:
        sessions = self._sessions
        call = sessions.scripts.execution_renew(
            session.space, session.executions, sessions.actor, plan=plan, fence=fence, lease_ms=lease_ms
        )
        return await sessions.names.explained(session.target, call)

    async def _record(self, session: str, ending: ExecutionEnd, fence: int) -> ExecutionRecord:
        sessions = self._sessions
        found = sessions.keys(session, "write")
        ending = ending._replace(events=found.events, history=int(sessions.settings.decision_history))
        call = sessions.scripts.execution_record(found.space, found.end, sessions.actor, ending, keep=found.keep)
        word, _, rest = (await sessions.changed(found, call)).partition(b" ")
        if word in {b"recorded", b"same"}:
            record = parse_execution(found.executions.executions, rest)
            if word == b"recorded":
                sessions.names.context.counters.increment("executions", state=record.state)
            return record
        raise _ending_error(word.decode(), rest.decode(), session, ending.plan, fence)


def parse_execution(key: bytes, text: bytes, state: bytes | None = None) -> ExecutionRecord:
    """Return the record of an execution from its stored form.

    Args:
        key: the key of the session.
        text: its JSON.
        state: the present state, if the reply contains it.
    """
    with decoding(key):
        body: dict[str, Any] = _UNFINISHED_FIELDS | orjson.loads(text)
        body.pop("lease_ms", None)
        body["lease_ends_ms"] = body.pop("lease_ends_us", 0) // 1000
        if state is not None:
            body["state"] = state.decode()
        return of_checked(ExecutionRecord, body)


def _parse_claim(reply: bytes, found: SessionKeys, session: str, plan: str) -> ExecutionClaim:
    """Return the claim of a reply `<started|renewed|refused> <ms left> <state> <JSON>`."""
    if reply == b"absent":
        raise _plan_not_found(session, plan)
    word, remaining_ms, state, text = reply.split(b" ", 3)
    execution = parse_execution(found.executions.executions, text, state)
    is_ours = word != b"refused"
    return of_checked(
        ExecutionClaim,
        {
            "started": is_ours,
            # A refused caller must not finish the execution of another executor by mistake.
            "fence": execution.fence if is_ours else 0,
            "state": execution.state,
            "attempt": execution.attempt,
            "plan_id": execution.plan_id,
            "remaining_ms": int(remaining_ms),
            "execution": execution,
        },
    )


def _ending_error(word: str, rest: str, session: str, plan: str, fence: int) -> SharedMemoryError:
    """Return why an ending was not recorded."""
    match word:
        case "absent":
            return _plan_not_found(session, plan)
        case "unbegun":
            return NotFoundError("execution", plan, f"no execution of that plan of session {session!r} was begun")
        case "already":
            return AlreadyExecutedError(session, plan, rest)
        case "lost":
            return ClaimLostError("plan", plan, fence)
        case "busy":
            return ConflictError(
                f"plan {plan!r} of session {session!r} is being executed, for up to {int(rest) / 1000:g} s more unless"
                " that is prolonged; resolve it when its lease has expired"
            )
    return InternalError(f"execution_record returned {word!r}")


def _plan_not_found(session: str, plan: str) -> NotFoundError:
    return NotFoundError("plan", plan, f"session {session!r} has no plan with that hash or id, or no longer")


# -- claims that a block holds -------------------------------------------------------------------


_RENEWALS_A_LEASE = 3
_MARGIN = 0.1
_LARGEST_MARGIN_S = 1.0
_CANCELLED_EARLY = "its executor was cancelled before the block began: nothing was executed"
_logger = get_logger("decisions")


@dataclass
class _ClaimState:
    """How long a claim is surely valid, and the outcome of the execution."""

    until: float
    record: ExecutionRecord | None = None
    is_over: bool = False
    """Whether an outcome is recorded, even if it is unknown here."""


class ExecutionClaimer(Protocol):
    """An object that claims executions, renews claims and records outcomes: the library, or a network client."""

    async def begin_execution(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> ExecutionClaim:
        """As `Decisions.begin_execution`."""

    async def renew(self, session: str, plan_hash: str, fence: int, *, lease: float = 30.0) -> ExecutionClaim:
        """As `Decisions.renew`."""

    async def finish(
        self,
        session: str,
        plan_hash: str,
        fence: int,
        **outcome: Unpack[OutcomeFields],
    ) -> ExecutionRecord:
        """As `Decisions.finish`."""


class Execution(ProcessBound):
    """One execution in progress; created by `Decisions.executing`."""

    def __init__(
        self,
        executions: ExecutionClaimer,
        clock: Clock,
        background: Background,
        session: str,
        claim: ExecutionClaim,
        hold: _ClaimState,
    ) -> None:
        self._executions = executions
        self._background = background
        self._clock = clock
        self._session = session
        self._claim = claim
        self._hold = hold

    @property
    def claim(self) -> ExecutionClaim:
        """The claim that `begin_execution` returned."""
        return self._claim

    @property
    def started(self) -> bool:
        """Whether this caller must execute the plan."""
        return self._claim.started

    @property
    def record(self) -> ExecutionRecord | None:
        """The record of the outcome; None until it is recorded."""
        return self._hold.record

    def is_held(self) -> bool:
        """Return whether the claim is surely still valid: check before each step that cannot be undone."""
        return self.started and not self._hold.is_over and self._clock.monotonic() < self._hold.until

    async def finish(
        self,
        *,
        status: str,
        executed: bool | None = None,
        order_id: str = "",
        order_size_usdt: float = 0.0,
        error: str = "",
    ) -> ExecutionRecord:
        """Record the outcome, as `Decisions.finish`. One round trip.

        Args:
            status: `success`; `error` or `failed`; `unknown` or `timeout`.
            executed: whether an order was placed; None: if it was a success.
            order_id: id of the order at the exchange.
            order_size_usdt: 0 or more.
            error: error text.

        Raises:
            ClaimLostError: the claim was refused, or has been lost.
            AlreadyExecutedError, InvalidError, UnavailableError, DurabilityPendingError: as `Decisions.finish`.
        """
        if not self.started:
            raise ClaimLostError("plan", self._claim.plan_id, 0)
        report = partial(
            self._executions.finish,
            self._session,
            self._claim.plan_id,
            self._claim.fence,
            status=status,
            executed=executed,
            order_id=order_id,
            order_size_usdt=order_size_usdt,
            error=error,
        )
        try:
            record = await report()
        except DurabilityPendingError:
            self._hold.is_over = True
            raise
        except asyncio.CancelledError:
            # The outcome is known: it must not become `unknown` because of a cancellation in this moment.
            self._hold.is_over = True
            self._background.start_last_call(f"finish execution {self._claim.plan_id}", report)
            raise
        self._hold.record, self._hold.is_over = record, True
        return record

    def __repr__(self) -> str:
        state = self.record.state if self.record else self._claim.state
        return f"<Execution of plan {self._claim.plan_id}, {state}, attempt {self._claim.attempt}>"


@asynccontextmanager
async def hold_execution(
    claims: ExecutionClaimer,
    clock: Clock,
    background: Background,
    session: str,
    plan_hash: str,
    *,
    lease: float,
    policy: TakeoverPolicy,
) -> AsyncIterator[Execution]:
    """Hold an execution for the length of the block: `Decisions.executing` for any claimer."""
    asked = clock.monotonic()

    async def end_unbegun(claim: ExecutionClaim) -> None:
        # With `takeover`, it is begun again when the lease has ended.
        if claim.started and policy == "never":
            await claims.finish(session, claim.plan_id, claim.fence, status="error", error=_CANCELLED_EARLY)

    claim = await background.result_or_undone(
        f"end execution of {plan_hash}",
        claims.begin_execution(session, plan_hash, lease=lease, policy=policy),
        end_unbegun,
    )
    hold = _ClaimState(safe_lease_end(asked, lease))
    execution = Execution(claims, clock, background, session, claim, hold)
    if not claim.started:
        yield execution
        return
    keeping = _renew_until_lost(claims, clock, session, claim, hold, lease)
    renewal = background.start(f"renew execution {claim.plan_id}", keeping)
    try:
        yield execution
    except BaseException as error:
        await renewal.stop()
        await _record_unknown_outcome(execution, hold, f"{type(error).__name__}: {error}")
        raise
    await renewal.stop()
    await _record_unknown_outcome(execution, hold, "the block ended without an outcome")


async def _renew_until_lost(
    claims: ExecutionClaimer, clock: Clock, session: str, claim: ExecutionClaim, hold: _ClaimState, lease: float
) -> None:
    """Renew the claim until it is lost or the block ends."""
    while True:
        await clock.sleep(lease / _RENEWALS_A_LEASE)
        asked = clock.monotonic()
        try:
            await claims.renew(session, claim.plan_id, claim.fence, lease=lease)
        except (ClaimLostError, NotFoundError):
            if not hold.is_over:
                _logger.warning("the claim on plan %s was lost during its execution", claim.plan_id)
            hold.until = asked
            return
        except UnavailableError:
            continue  # a later renewal may succeed before the lease expires
        hold.until = safe_lease_end(asked, lease)


async def _record_unknown_outcome(execution: Execution, hold: _ClaimState, why: str) -> None:
    """Record the outcome `unknown` if the block did not record one."""
    if hold.is_over:
        return
    try:
        await execution.finish(status="unknown", error=why)
    except SharedMemoryError as error:
        # The block's own failure is more important; without a record the execution becomes orphaned.
        _logger.warning("could not record that the outcome of plan %s is unknown: %s", execution.claim.plan_id, error)


def safe_lease_end(asked: float, lease: float) -> float:
    """Return until when, on the monotonic clock, a lease requested at `asked` has surely not expired at the server."""
    return asked + lease - min(lease * _MARGIN, _LARGEST_MARGIN_S)
