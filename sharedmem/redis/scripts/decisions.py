"""Typed callers of the scripts on plans and executions."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version

COLD = b"COLD"
"""The reply if nothing was found and the session may be in the durable tier only."""


class PlanSaveKeys(NamedTuple):
    """The keys for saving a plan."""

    plans: bytes
    session: bytes
    order: bytes
    duplicates: bytes
    ages: bytes
    executions: bytes
    finished: bytes
    stats: bytes
    sessions: bytes
    refusals: bytes


class PlanTerms(NamedTuple):
    """What the plans of a session have in common."""

    most: int
    events: bytes
    history: int = 0


class PlanWrite(NamedTuple):
    """A plan to save, in the form of the script."""

    window_ms: int
    digest: bytes
    plan_hash: bytes
    symbol: bytes
    merits: bytes
    body: bytes
    similar: str = ""
    seen: str = ""

    @property
    def size(self) -> int:
        """Bytes of the plan."""
        return len(self.body)


class ExecutionBegin(NamedTuple):
    """A claim of an execution, in the form of the script."""

    plan: str
    lease_ms: int
    policy: str

    @property
    def size(self) -> int:
        """Bytes of the claim, which are few."""
        return len(self.plan)


class ExecutionBeginKeys(NamedTuple):
    """The keys for beginning an execution."""

    plans: bytes
    session: bytes
    order: bytes
    executions: bytes
    finished: bytes
    stats: bytes
    refusals: bytes


class ExecutionEndKeys(NamedTuple):
    """The keys for recording the outcome of an execution."""

    plans: bytes
    session: bytes
    order: bytes
    executions: bytes
    finished: bytes
    stats: bytes


class ExecutionEnd(NamedTuple):
    """The outcome of an execution, in the form of the script."""

    verb: str
    plan: str
    fence: str
    state: str
    given: bytes
    outcome: bytes
    details: bytes
    events: bytes
    history: int = 0


class SessionForgetKeys(NamedTuple):
    """All keys of a session."""

    plans: bytes
    session: bytes
    order: bytes
    duplicates: bytes
    ages: bytes
    executions: bytes
    finished: bytes
    stats: bytes
    sessions: bytes
    refusals: bytes


class PlanKeys(NamedTuple):
    """The keys of plans and of their order."""

    plans: bytes
    order: bytes


class DuplicateKeys(NamedTuple):
    """The keys of plans by id and by digest."""

    plans: bytes
    duplicates: bytes


class ExecutionKeys(NamedTuple):
    """The keys of plans and executions."""

    plans: bytes
    executions: bytes


class ExecutionStatsKeys(NamedTuple):
    """The keys of plans, counts and the last executions."""

    plans: bytes
    stats: bytes
    finished: bytes
    executions: bytes


class DecisionScripts:
    """Stores plans and executions for the actors of one hub.

    With a durable tier, changes take the durability mode of the session (by the key of its plans), and reads take
    `cold=1`, so that they return `COLD` instead of an empty reply if the session is not in Redis.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    def plan_save(
        self,
        space: Space,
        keys: PlanSaveKeys,
        actor: bytes,
        terms: PlanTerms,
        *,
        saves: Sequence[PlanWrite],
        keep: DurabilityModes | None = None,
    ) -> Awaitable[bytes]:
        """Return `saved <id>`, `duplicate <ms since> <id> ...`, `similar <ms since> <id>` or `behind`.

        The replies of several plans are in one text: see `split_replies`.
        """
        args: list[Argument] = [*terms]
        for plan in saves:
            args += plan
        large = sum([plan.size for plan in saves])
        return self._sender.mutate("plan_save", space, keys, actor, args, large=large, keep=keep)

    async def plan_list(self, keys: PlanKeys, *, symbol: bytes, limit: int, cold: int) -> Reply:
        """Return the JSON of plans, newest first."""
        return await self._sender.run("plan_list", keys, [symbol, limit, cold])

    async def plan_check(self, keys: DuplicateKeys, *, digest: bytes, cold: int) -> Reply:
        """Return `<ms since> <id> <confidence> <method>`, or empty."""
        return await self._sender.run("plan_check", keys, [digest, cold])

    def execution_begin(
        self,
        space: Space,
        keys: ExecutionBeginKeys,
        actor: bytes,
        *,
        events: bytes,
        claims: Sequence[ExecutionBegin],
        keep: DurabilityModes | None = None,
    ) -> Awaitable[bytes]:
        """Return `started|refused <ms left> <state> <JSON>`, or `absent`.

        The replies of several claims are in one text: see `split_replies`.
        """
        args: list[Argument] = [events]
        for claim in claims:
            args += claim
        return self._sender.mutate("execution_begin", space, keys, actor, args, keep=keep)

    async def execution_renew(
        self, space: Space, keys: ExecutionKeys, actor: bytes, *, plan: str, fence: int, lease_ms: int
    ) -> bytes:
        """Return `renewed <ms left> <state> <JSON>`, `lost` or `absent`."""
        return await self._sender.mutate("execution_renew", space, keys, actor, [plan, fence, lease_ms])

    async def execution_record(
        self,
        space: Space,
        keys: ExecutionEndKeys,
        actor: bytes,
        ending: ExecutionEnd,
        *,
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return `recorded|same <JSON>`, `already <state>`, `busy <ms left>`, `lost`, `unbegun` or `absent`."""
        large = len(ending.details)
        return await self._sender.mutate("execution_record", space, keys, actor, ending, large=large, keep=keep)

    async def execution_check(self, keys: ExecutionKeys, *, plan: str, cold: int) -> Reply:
        """Return `<ms left> <state> <JSON>`, `none` or `absent`."""
        return await self._sender.run("execution_check", keys, [plan, cold])

    async def execution_open(self, keys: ExecutionKeys, *, cursor: bytes, limit: int, cold: int) -> Reply:
        """Return the next cursor, and `<state> <JSON>` of each execution of the page that is open."""
        return await self._sender.run("execution_open", keys, [cursor, limit, cold])

    async def execution_stats(self, keys: ExecutionStatsKeys, *, symbol: bytes, limit: int, cold: int) -> Reply:
        """Return four counts, and the JSON of the last executions."""
        return await self._sender.run("execution_stats", keys, [symbol, limit, cold])

    async def session_forget(
        self, space: Space, keys: SessionForgetKeys, actor: bytes, *, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, number of deleted plans)."""
        return split_version(await self._sender.mutate("session_forget", space, keys, actor, [], keep=keep))
