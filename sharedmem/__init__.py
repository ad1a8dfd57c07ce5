"""Shared memory and coordination for teams of AI agents, on Redis."""

from sharedmem.actor import Context
from sharedmem.config import Kind, Settings
from sharedmem.coordination.barriers import Barrier
from sharedmem.coordination.leader import Candidacy
from sharedmem.coordination.lease import Lease
from sharedmem.coordination.limits import RateLimit
from sharedmem.coordination.presence import Presence
from sharedmem.coordination.queues import TaskQueue
from sharedmem.coordination.rwlock import ReadWriteLock
from sharedmem.coordination.worker import TaskInHand
from sharedmem.errors import (
    AccessDeniedError,
    AlreadyExecutedError,
    BarrierError,
    ClaimLostError,
    ConfigError,
    ConflictError,
    InternalError,
    InvalidError,
    LimitedError,
    LockHeldError,
    LockLostError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
    VersionConflictError,
    WrongTypeError,
)
from sharedmem.hub import Hub
from sharedmem.knowledge.decisions import Decisions
from sharedmem.knowledge.episodes import Episodes
from sharedmem.knowledge.executing import Execution
from sharedmem.models import (
    Arrival,
    Backoff,
    Change,
    Entry,
    EpisodeEvent,
    ExecutionClaim,
    ExecutionRecord,
    ExecutionStats,
    Gap,
    Health,
    Holder,
    LeaseState,
    LimitState,
    Message,
    Missed,
    OnceState,
    Permit,
    PlanRecord,
    Powers,
    Present,
    PutResult,
    QueueCounters,
    QueuedTask,
    QueueStats,
    Receipt,
    SaveResult,
    Task,
    TaskOutcome,
    TypeUsage,
    Usage,
)
from sharedmem.store import SharedMemoryStore
from sharedmem.wire.access import Grant

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedError",
    "AlreadyExecutedError",
    "Arrival",
    "Backoff",
    "Barrier",
    "BarrierError",
    "Candidacy",
    "Change",
    "ClaimLostError",
    "ConfigError",
    "ConflictError",
    "Context",
    "Decisions",
    "Entry",
    "EpisodeEvent",
    "Episodes",
    "Execution",
    "ExecutionClaim",
    "ExecutionRecord",
    "ExecutionStats",
    "Gap",
    "Grant",
    "Health",
    "Holder",
    "Hub",
    "InternalError",
    "InvalidError",
    "Kind",
    "Lease",
    "LeaseState",
    "LimitState",
    "LimitedError",
    "LockHeldError",
    "LockLostError",
    "Message",
    "Missed",
    "NotFoundError",
    "OnceState",
    "Permit",
    "PlanRecord",
    "Powers",
    "Presence",
    "Present",
    "PutResult",
    "QueueCounters",
    "QueueStats",
    "QueuedTask",
    "RateLimit",
    "ReadWriteLock",
    "Receipt",
    "SaveResult",
    "Settings",
    "SharedMemoryError",
    "SharedMemoryStore",
    "Task",
    "TaskInHand",
    "TaskOutcome",
    "TaskQueue",
    "TypeUsage",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
    "VersionConflictError",
    "WrongTypeError",
]
