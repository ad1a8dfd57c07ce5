"""Typed callers of the scripts on plans and executions."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version

COLD = b"COLD"
"""What is answered where nothing was found, and the session may lie in the durable tier alone."""


class PlanSaveKeys(NamedTuple):
    """What saving a plan touches."""

    plans: bytes
    session: bytes
    order: bytes
    duplicates: bytes
    ages: bytes
    executions: bytes
    finished: bytes
    stats: bytes
    sessions: bytes


class PlanWrite(NamedTuple):
    """A plan to be saved, as the script takes it."""

    window_ms: int
    digest: bytes
    plan_hash: bytes
    symbol: bytes
    merits: bytes
    body: bytes
    most: int
    events: bytes


class ExecutionClaimKeys(NamedTuple):
    """What beginning an execution touches, and recording its end."""

    plans: bytes
    session: bytes
    order: bytes
    executions: bytes
    finished: bytes
    stats: bytes


class ExecutionEnd(NamedTuple):
    """How an execution ended, as the script takes it."""

    verb: str
    plan: str
    fence: str
    state: str
    given: bytes
    outcome: bytes
    details: bytes
    events: bytes


class SessionForgetKeys(NamedTuple):
    """All that belongs to a session."""

    plans: bytes
    session: bytes
    order: bytes
    duplicates: bytes
    ages: bytes
    executions: bytes
    finished: bytes
    stats: bytes
    sessions: bytes


class PlanKeys(NamedTuple):
    """Plans, and their order."""

    plans: bytes
    order: bytes


class DuplicateKeys(NamedTuple):
    """Plans by id and by digest."""

    plans: bytes
    duplicates: bytes


class ExecutionKeys(NamedTuple):
    """Plans, and executions."""

    plans: bytes
    executions: bytes


class ExecutionStatsKeys(NamedTuple):
    """Plans, counts, and what was executed last."""

    plans: bytes
    stats: bytes
    finished: bytes
    executions: bytes


class DecisionScripts:
    """Keeps plans and executions for the actors of one hub.

    Where a durable tier stands behind, changes take how the session is kept in it (the key of its plans stands for
    it), and looks take `cold=1`, so that they answer `COLD` instead of nothing when the session is not in Redis.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def plan_save(
        self, space: Space, keys: PlanSaveKeys, actor: bytes, plan: PlanWrite, *, keep: DurabilityModes | None = None
    ) -> bytes:
        """Returns `saved <id>` or `duplicate <ms since> <id> <confidence> <method>`."""
        return await self._sender.mutate("plan_save", space, keys, actor, plan, large=len(plan.body), keep=keep)

    async def plan_list(self, keys: PlanKeys, *, symbol: bytes, limit: int, cold: int) -> Reply:
        """Returns the JSON of plans, newest first."""
        return await self._sender.run("plan_list", keys, [symbol, limit, cold])

    async def plan_check(self, keys: DuplicateKeys, *, digest: bytes, cold: int) -> Reply:
        """Returns `<ms since> <id> <confidence> <method>`, or nothing."""
        return await self._sender.run("plan_check", keys, [digest, cold])

    async def execution_begin(
        self,
        space: Space,
        keys: ExecutionClaimKeys,
        actor: bytes,
        *,
        plan: str,
        lease_ms: int,
        policy: str,
        events: bytes,
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Returns `started|refused <ms left> <state> <JSON>`, or `absent`."""
        args: list[Argument] = [plan, lease_ms, policy, events]
        return await self._sender.mutate("execution_begin", space, keys, actor, args, keep=keep)

    async def execution_renew(
        self, space: Space, keys: ExecutionKeys, actor: bytes, *, plan: str, fence: int, lease_ms: int
    ) -> bytes:
        """Returns `renewed <ms left> <state> <JSON>`, `lost` or `absent`."""
        return await self._sender.mutate("execution_renew", space, keys, actor, [plan, fence, lease_ms])

    async def execution_record(
        self,
        space: Space,
        keys: ExecutionClaimKeys,
        actor: bytes,
        ending: ExecutionEnd,
        *,
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Returns `recorded|same <JSON>`, `already <state>`, `busy <ms left>`, `lost`, `unbegun` or `absent`."""
        large = len(ending.details)
        return await self._sender.mutate("execution_record", space, keys, actor, ending, large=large, keep=keep)

    async def execution_check(self, keys: ExecutionKeys, *, plan: str, cold: int) -> Reply:
        """Returns `<ms left> <state> <JSON>`, `none` or `absent`."""
        return await self._sender.run("execution_check", keys, [plan, cold])

    async def execution_open(self, keys: ExecutionKeys, *, cursor: bytes, limit: int, cold: int) -> Reply:
        """Returns the next cursor, and `<state> <JSON>` of each execution of the page that is open."""
        return await self._sender.run("execution_open", keys, [cursor, limit, cold])

    async def execution_stats(self, keys: ExecutionStatsKeys, *, symbol: bytes, limit: int, cold: int) -> Reply:
        """Returns four counts, and the JSON of the last executions."""
        return await self._sender.run("execution_stats", keys, [symbol, limit, cold])

    async def session_forget(
        self, space: Space, keys: SessionForgetKeys, actor: bytes, *, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Returns (version or 0, how many plans were removed)."""
        return split_version(await self._sender.mutate("session_forget", space, keys, actor, [], keep=keep))
