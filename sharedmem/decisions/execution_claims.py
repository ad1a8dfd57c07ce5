"""Execution claims: hold and renew the claim on a plan while a block runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, Unpack

from sharedmem.clock import Clock
from sharedmem.decisions.executions import TakeoverPolicy
from sharedmem.decisions.validation import OutcomeFields
from sharedmem.errors import ClaimLostError, DurabilityPendingError, NotFoundError, SharedMemoryError, UnavailableError
from sharedmem.models import ExecutionClaim, ExecutionRecord
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import Background
from sharedmem.runtime.process_bound import ProcessBound

_RENEWALS_A_LEASE = 3
_MARGIN = 0.1
_LARGEST_MARGIN_S = 1.0
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
        self, executions: ExecutionClaimer, clock: Clock, session: str, claim: ExecutionClaim, hold: _ClaimState
    ) -> None:
        self._executions = executions
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
        try:
            record = await self._executions.finish(
                self._session,
                self._claim.plan_id,
                self._claim.fence,
                status=status,
                executed=executed,
                order_id=order_id,
                order_size_usdt=order_size_usdt,
                error=error,
            )
        except DurabilityPendingError:
            self._hold.is_over = True
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
    claim = await claims.begin_execution(session, plan_hash, lease=lease, policy=policy)
    hold = _ClaimState(safe_lease_end(asked, lease))
    execution = Execution(claims, clock, session, claim, hold)
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
