"""Results of calls on plans and executions."""

from __future__ import annotations

from typing import Literal

from sharedmem.models.record import Record

ExecutionState = Literal["none", "running", "succeeded", "failed", "unknown", "orphaned"]
"""`none`: never begun. `orphaned`: its lease has expired and no outcome was reported. `unknown`: a caller reported
that the outcome cannot be determined."""


class PlanRecord(Record):
    """A decision to execute an action."""

    plan_id: str
    """Unique id; its digits are also the time of saving in microseconds."""
    plan_hash: str
    """Eight digits computed from symbol, action and reasoning; in a session they identify the newest such plan."""
    session_id: str
    symbol: str
    action: str
    confidence: float
    """From 0 to 1."""
    reasoning: str
    method: str
    timestamp_ms: int
    """Time of saving, by the server's clock."""
    time_since_ms: int | None = None
    """Milliseconds since it was saved; set only in reports of a duplicate."""
    similarity: float | None = None
    """Cosine similarity of the reasonings; set only where plans were compared by meaning."""


class SaveResult(Record):
    """Whether a plan was saved, or the earlier plan that it would have duplicated."""

    saved: bool
    plan: PlanRecord
    """The valid plan: the new one, or the earlier one."""
    time_since_ms: int
    """Milliseconds since that plan was saved; 0 for a new one."""


class RefusedDuplicate(Record):
    """A plan or an execution that was refused in favour of an earlier one."""

    what: Literal["plan", "execution"]
    plan_id: str
    """The plan in favour of which it was refused."""
    symbol: str
    actor: str
    """The actor that was refused."""
    timestamp_ms: int
    """When, by the server's clock."""


class PlanKind(Record):
    """Plans with the same symbol and action."""

    symbol: str
    action: str


class PlanPattern(Record):
    """How often plans of one kind were followed by plans of another kind."""

    first: PlanKind
    then: PlanKind
    times: int
    """Plans of the first kind that were followed by one of the other kind within the time."""
    share: float
    """Among all plans of the first kind."""
    lift: float
    """`share` divided by the same share among all plans: above 1, the first kind makes the other more likely."""
    ended: int
    """Of the plans that followed, those whose execution has succeeded or failed."""
    succeeded: int


class ExecutionRecord(Record):
    """The one execution of a plan."""

    plan_id: str
    plan_hash: str
    session_id: str
    symbol: str
    action: str
    confidence: float
    status: str
    """The outcome in the executor's own words; empty while it runs."""
    executed: bool
    order_id: str
    order_size_usdt: float
    timestamp_ms: int
    """When it was recorded, or begun if it still runs, by the server's clock."""
    error: str
    state: ExecutionState
    fence: int
    """Fencing token: rises with every claim; the resource that the executor writes to should reject lower ones."""
    attempt: int
    actor: str
    """The actor that recorded it last."""
    lease_ends_ms: int = 0
    """When its lease ends or has ended, by the server's clock; 0 if it has an outcome."""


class PastDecision(Record):
    """An earlier plan, and how its execution went."""

    plan: PlanRecord
    execution: ExecutionRecord | None
    """None if it was never begun."""


class ExecutionClaim(Record):
    """Whether the caller may execute a plan."""

    started: bool
    """True: execute the plan. False: do not execute it; `state` gives the reason."""
    fence: int
    """Fencing token for renewing and finishing the claim; 0 if the claim was refused."""
    state: ExecutionState
    attempt: int
    """1 for the first claim of the plan, one more for each takeover."""
    plan_id: str
    remaining_ms: int
    """Milliseconds until the lease of the present executor expires; 0 without an executor."""
    execution: ExecutionRecord | None = None


class ExecutionStats(Record):
    """Statistics of the executions of a session, or of one of its symbols."""

    total_executions: int
    """Executions that have ended: succeeded, failed or unknown."""
    successful_executions: int
    failed_executions: int
    win_rate: float
    """Share of successful executions among the ended ones; 0 if none has ended."""
    duplicates_prevented: int
    """Plans that `save_if_new` and executions that `begin_execution` refused."""
    recent_executions: list[ExecutionRecord]
    """Newest first, at most 20."""


class Duplicate(Record):
    """Whether a plan is a duplicate, and the earlier plan."""

    is_duplicate: bool
    plan: PlanRecord | None


class Executed(Record):
    """Whether the execution of a plan was begun, and its record."""

    executed: bool
    execution: ExecutionRecord | None
