"""Operations of the decision log: plans, their executions, and statistics of executions."""

from __future__ import annotations

from sharedmem.api.operation import Operation
from sharedmem.decisions.executions import TakeoverPolicy
from sharedmem.models import ExecutionClaim, ExecutionRecord, ExecutionStats, PlanRecord, Record, SaveResult
from sharedmem.store import SharedMemoryStore

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class DecisionsRequest(Record):
    """All sessions of the namespace."""


class DecisionSessionRequest(Record):
    """A session."""

    session: str


class PlanRequest(DecisionSessionRequest):
    """A plan by its hash or id."""

    plan_hash: str


class PlanSave(DecisionSessionRequest):
    """A plan to save."""

    symbol: str
    action: str
    confidence: float
    reasoning: str
    method: str = ""


class PlanSaveIfNew(PlanSave):
    """A plan to save unless it is a duplicate."""

    time_window_sec: float = 300.0


class PlanList(DecisionSessionRequest):
    """Which plans to list."""

    symbol: str | None = None
    limit: int = 10


class PlanCheck(DecisionSessionRequest):
    """A plan that may be a duplicate."""

    symbol: str
    action: str
    reasoning: str
    time_window_sec: float = 300.0


class ExecutionBegin(PlanRequest):
    """An execution to claim."""

    lease: float = 30.0
    policy: TakeoverPolicy = "never"


class ExecutionRenew(PlanRequest):
    """A claim to prolong."""

    fence: int
    lease: float = 30.0


class ExecutionResolve(PlanRequest):
    """How an execution ended."""

    status: str
    executed: bool | None = None
    order_id: str = ""
    order_size_usdt: float = 0.0
    error: str = ""


class ExecutionFinish(ExecutionResolve):
    """How a claimed execution ended."""

    fence: int


class ExecutionMark(PlanRequest):
    """How an execution without a claim ended, or one with a fence."""

    symbol: str
    action: str
    confidence: float
    status: str
    executed: bool
    order_id: str = ""
    order_size_usdt: float = 0.0
    error: str = ""
    fence: int | None = None


class ExecutionStatsRequest(DecisionSessionRequest):
    """Whose statistics."""

    symbol: str | None = None


# -- answers of two parts -------------------------------------------------------------------------


class Duplicate(Record):
    """Whether a plan is a duplicate, and of which."""

    is_duplicate: bool
    plan: PlanRecord | None


class Executed(Record):
    """Whether a plan was or is being executed, and how that went."""

    executed: bool
    execution: ExecutionRecord | None


async def _duplicate(store: SharedMemoryStore, ask: PlanCheck) -> Duplicate:
    is_duplicate, plan = await store.decisions.check_duplicate(
        ask.session, ask.symbol, ask.action, ask.reasoning, ask.time_window_sec
    )
    return Duplicate(is_duplicate=is_duplicate, plan=plan)


async def _executed(store: SharedMemoryStore, ask: PlanRequest) -> Executed:
    executed, execution = await store.decisions.check_executed(ask.session, ask.plan_hash)
    return Executed(executed=executed, execution=execution)


async def _finish(store: SharedMemoryStore, ask: ExecutionFinish) -> ExecutionRecord:
    return await store.decisions.finish(
        ask.session,
        ask.plan_hash,
        ask.fence,
        status=ask.status,
        executed=ask.executed,
        order_id=ask.order_id,
        order_size_usdt=ask.order_size_usdt,
        error=ask.error,
    )


async def _mark(store: SharedMemoryStore, ask: ExecutionMark) -> ExecutionRecord:
    return await store.decisions.mark_executed(
        ask.session,
        ask.plan_hash,
        ask.symbol,
        ask.action,
        ask.confidence,
        ask.status,
        ask.executed,
        ask.order_id,
        ask.order_size_usdt,
        ask.error,
        fence=ask.fence,
    )


async def _resolve(store: SharedMemoryStore, ask: ExecutionResolve) -> ExecutionRecord:
    return await store.decisions.resolve(
        ask.session,
        ask.plan_hash,
        status=ask.status,
        executed=ask.executed,
        order_id=ask.order_id,
        order_size_usdt=ask.order_size_usdt,
        error=ask.error,
    )


# -- rows -----------------------------------------------------------------------------------------

PLAN_SAVE = Operation(
    "plan.save",
    "Save a plan in any case, and tell its hash.",
    "write",
    PlanSave,
    str,
    lambda store, ask: store.decisions.save_plan(
        ask.session, ask.symbol, ask.action, ask.confidence, ask.reasoning, ask.method
    ),
)
PLAN_SAVE_IF_NEW = Operation(
    "plan.save_if_new",
    "Save a plan unless the same one was saved in the time window; of racing planners one saves.",
    "write",
    PlanSaveIfNew,
    SaveResult,
    lambda store, ask: store.decisions.save_if_new(
        ask.session, ask.symbol, ask.action, ask.confidence, ask.reasoning, ask.method, ask.time_window_sec
    ),
)
PLAN_LIST = Operation(
    "plan.list",
    "The newest plans of a session, newest first.",
    "read",
    PlanList,
    list[PlanRecord],
    lambda store, ask: store.decisions.get_recent_plans(ask.session, ask.symbol, ask.limit),
)
PLAN_CHECK = Operation(
    "plan.check", "Whether the same plan was saved in the time window.", "read", PlanCheck, Duplicate, _duplicate
)
PLAN_SESSIONS = Operation(
    "plan.sessions",
    "The sessions that have plans, sorted.",
    "read",
    DecisionsRequest,
    list[str],
    lambda store, _: store.decisions.sessions(),
)
PLAN_FORGET = Operation(
    "plan.forget",
    "Remove all that a session has decided, and tell how many plans it had.",
    "write",
    DecisionSessionRequest,
    int,
    lambda store, ask: store.decisions.forget(ask.session),
)
EXECUTION_BEGIN = Operation(
    "execution.begin",
    "Claim the execution of a plan; of racing executors one gets it.",
    "write",
    ExecutionBegin,
    ExecutionClaim,
    lambda store, ask: store.decisions.begin_execution(ask.session, ask.plan_hash, lease=ask.lease, policy=ask.policy),
)
EXECUTION_RENEW = Operation(
    "execution.renew",
    "Prolong a claim.",
    "write",
    ExecutionRenew,
    ExecutionClaim,
    lambda store, ask: store.decisions.renew(ask.session, ask.plan_hash, ask.fence, lease=ask.lease),
)
EXECUTION_FINISH = Operation(
    "execution.finish", "Record how a claimed execution ended.", "write", ExecutionFinish, ExecutionRecord, _finish
)
EXECUTION_MARK = Operation(
    "execution.mark",
    "Record the one execution of a plan, also without a claim; the first to mark it wins.",
    "write",
    ExecutionMark,
    ExecutionRecord,
    _mark,
)
EXECUTION_RESOLVE = Operation(
    "execution.resolve",
    "Say how an orphaned or unknown execution ended.",
    "write",
    ExecutionResolve,
    ExecutionRecord,
    _resolve,
)
EXECUTION_CHECK = Operation(
    "execution.check", "Whether a plan was or is being executed.", "read", PlanRequest, Executed, _executed
)
EXECUTION_OPEN = Operation(
    "execution.open",
    "The executions that wait for an end: running, orphaned and unknown ones.",
    "read",
    DecisionSessionRequest,
    list[ExecutionRecord],
    lambda store, ask: store.decisions.get_open_executions(ask.session),
)
EXECUTION_STATS = Operation(
    "execution.stats",
    "How the executions of a session went.",
    "read",
    ExecutionStatsRequest,
    ExecutionStats,
    lambda store, ask: store.decisions.get_execution_stats(ask.session, ask.symbol),
)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
