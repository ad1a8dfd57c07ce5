"""Results of calls on plans and executions."""

from __future__ import annotations

from typing import Literal

from sharedmem.models.record import Record

ExecutionState = Literal["none", "running", "succeeded", "failed", "unknown", "orphaned"]
"""`none`: never begun. `orphaned`: its lease is over and nobody said how it ended. `unknown`: somebody said that
nobody knows how it ended."""


class PlanRecord(Record):
    """A decision to do something."""

    plan_id: str
    """Names this plan alone; its digits are also the time of the saving in microseconds."""
    plan_hash: str
    """Eight digits made of symbol, action and reasoning; within a session they name the newest such plan."""
    session_id: str
    symbol: str
    action: str
    confidence: float
    """From 0 to 1."""
    reasoning: str
    method: str
    timestamp_ms: int
    """When it was saved, by the server's clock."""
    time_since_ms: int | None = None
    """How long ago that was; set where a duplicate is told of."""


class SaveResult(Record):
    """Whether a plan was saved, or which earlier one it would have repeated."""

    saved: bool
    plan: PlanRecord
    """The plan that counts: the new one, or the one there was."""
    time_since_ms: int
    """How long ago that was saved; 0 for a new one."""


class ExecutionRecord(Record):
    """What is known of the one execution of a plan."""

    plan_id: str
    plan_hash: str
    session_id: str
    symbol: str
    action: str
    confidence: float
    status: str
    """The executor's word for how it ended; empty while it runs."""
    executed: bool
    order_id: str
    order_size_usdt: float
    timestamp_ms: int
    """When it was recorded, or begun when it still runs, by the server's clock."""
    error: str
    state: ExecutionState
    fence: int
    """Rises with every claim; what the executor writes to should refuse lower ones."""
    attempt: int
    actor: str
    """Who recorded it last."""


class ExecutionClaim(Record):
    """Whether the execution of a plan is the caller's to do."""

    started: bool
    """True: go ahead. False: do not execute; `state` says why."""
    fence: int
    """What shows the claim when it is renewed and finished; 0 when it was refused."""
    state: ExecutionState
    attempt: int
    """1 for the first claim of the plan, one more for each takeover."""
    plan_id: str
    remaining_ms: int
    """Until the lease of whoever has it ends; 0 when nobody is at it."""
    execution: ExecutionRecord | None = None


class ExecutionStats(Record):
    """How the executions of a session, or of one of its symbols, went."""

    total_executions: int
    """Those that have ended: succeeded, failed or unknown."""
    successful_executions: int
    failed_executions: int
    win_rate: float
    """Successful of all that have ended; 0 when there are none."""
    duplicates_prevented: int
    """Plans that `save_if_new` and executions that `begin_execution` refused."""
    recent_executions: list[ExecutionRecord]
    """Newest first, at most 20."""


class Duplicate(Record):
    """Whether a plan is a duplicate, and of which."""

    is_duplicate: bool
    plan: PlanRecord | None


class Executed(Record):
    """Whether a plan was or is being executed, and how that went."""

    executed: bool
    execution: ExecutionRecord | None
