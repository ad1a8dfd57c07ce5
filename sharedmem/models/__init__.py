"""The records that calls answer with: frozen, typed, the same on every face."""

from sharedmem.models.barriers import Arrival
from sharedmem.models.decisions import (
    ExecutionClaim,
    ExecutionRecord,
    ExecutionState,
    ExecutionStats,
    PlanRecord,
    SaveResult,
)
from sharedmem.models.durable import (
    Charges,
    DeadLetter,
    Difference,
    DurableLag,
    DurableRecord,
    DurableStatus,
    Outcome,
    Put,
    Verification,
)
from sharedmem.models.episodes import EpisodeEvent
from sharedmem.models.leases import Holder, LeaseState
from sharedmem.models.limits import LimitState, Permit
from sharedmem.models.once import OnceState
from sharedmem.models.presence import Present
from sharedmem.models.record import Record
from sharedmem.models.shared import Change, Entry, Gap, Health, Message, Missed, Powers, TypeUsage, Usage
from sharedmem.models.tasks import Backoff, PutResult, QueueCounters, QueuedTask, QueueStats, Receipt, Task, TaskOutcome

__all__ = [
    "Arrival",
    "Backoff",
    "Change",
    "Charges",
    "DeadLetter",
    "Difference",
    "DurableLag",
    "DurableRecord",
    "DurableStatus",
    "Entry",
    "EpisodeEvent",
    "ExecutionClaim",
    "ExecutionRecord",
    "ExecutionState",
    "ExecutionStats",
    "Gap",
    "Health",
    "Holder",
    "LeaseState",
    "LimitState",
    "Message",
    "Missed",
    "OnceState",
    "Outcome",
    "Permit",
    "PlanRecord",
    "Powers",
    "Present",
    "Put",
    "PutResult",
    "QueueCounters",
    "QueueStats",
    "QueuedTask",
    "Receipt",
    "Record",
    "SaveResult",
    "Task",
    "TaskOutcome",
    "TypeUsage",
    "Usage",
    "Verification",
]
