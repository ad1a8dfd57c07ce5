"""Typed callers of the scripts for task queues."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple, cast

from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor
from sharedmem.redis.service_keys import decoding


class PutKeys(NamedTuple):
    """The keys of `queue_put`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    waiters: bytes


class TaskPayload(NamedTuple):
    """The encoded payload of a new task."""

    payload: bytes

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.payload)


class OfferKeys(NamedTuple):
    """The keys of `queue_offer` that do not depend on the deduplication id."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    waiters: bytes
    dedup: bytes


class ClaimKeys(NamedTuple):
    """The keys of `queue_claim`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    paused: bytes
    waiters: bytes


class MoveKeys(NamedTuple):
    """The keys of scripts that take tasks from their workers."""

    queue: bytes
    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    dead: bytes
    counts: bytes
    followers: bytes
    waiters: bytes


class RenewKeys(NamedTuple):
    """The keys of `queue_renew`."""

    claimed: bytes
    claims: bytes


class AckKeys(NamedTuple):
    """The keys of `queue_ack` that do not depend on the task."""

    claimed: bytes
    tasks: bytes
    claims: bytes
    dedup: bytes
    counts: bytes
    followers: bytes


class DoneTask(NamedTuple):
    """A task that is done."""

    id: str
    token: int
    outcome: bytes

    @property
    def size(self) -> int:
        """Bytes of the result."""
        return len(self.outcome)


class ReleaseKeys(NamedTuple):
    """The keys of `queue_release`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    waiters: bytes


class LeaveKeys(NamedTuple):
    """The keys of `queue_leave`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    waiters: bytes


class PauseKeys(NamedTuple):
    """The keys of `queue_pause`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    waiters: bytes
    paused: bytes


class RedriveKeys(NamedTuple):
    """The keys of `queue_redrive`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    dead: bytes
    waiters: bytes


class DiscardKeys(NamedTuple):
    """The keys of `queue_discard`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    dead: bytes
    dedup: bytes
    counts: bytes
    followers: bytes


class BuryKeys(NamedTuple):
    """The keys of `queue_bury`."""

    queue: bytes
    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    dead: bytes
    counts: bytes
    followers: bytes


class ShowKeys(NamedTuple):
    """The keys of `queue_show`."""

    line: bytes
    tasks: bytes
    claims: bytes


class FollowKeys(NamedTuple):
    """The keys of `queue_follow`."""

    tasks: bytes
    dead: bytes
    followers: bytes


class OutcomeKeys(NamedTuple):
    """The keys of `queue_outcome` that do not depend on the task."""

    delayed: bytes
    claimed: bytes
    tasks: bytes
    claims: bytes
    dead: bytes


class StatsKeys(NamedTuple):
    """The keys of `queue_stats`."""

    ready: bytes
    delayed: bytes
    claimed: bytes
    tasks: bytes
    dead: bytes
    counts: bytes
    paused: bytes
    waiters: bytes


class PutTerms(NamedTuple):
    """The settings of new tasks."""

    priority: int
    delay_ms: int
    max_attempts: int


class QueueScripts:
    """Works on task queues for the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    # -- producers

    async def queue_put(
        self, space: Space, keys: PutKeys, actor: bytes, *, terms: PutTerms, payloads: Sequence[bytes]
    ) -> int:
        """Return the id of the first task; the others have the next numbers."""
        args: list[Argument] = [*terms, *payloads]
        return int(await self._sender.mutate("queue_put", space, keys, actor, args, large=_size(payloads)))

    async def queue_offer(
        self,
        space: Space,
        keys: OfferKeys,
        recent: bytes,
        actor: bytes,
        *,
        terms: PutTerms,
        unique: str,
        window_ms: int,
        payload: bytes,
    ) -> tuple[str, bool]:
        """Return (id, whether it is new)."""
        args: list[Argument] = [*terms, unique, window_ms, payload]
        reply = await self._sender.mutate("queue_offer", space, (*keys, recent), actor, args, large=len(payload))
        task_id, _, is_new = reply.decode().partition(" ")
        return task_id, is_new == "1"

    # -- claims and their outcomes

    async def queue_claim(
        self, space: Space, keys: ClaimKeys, actor: bytes, *, count: int, visibility_ms: int, waiter: str
    ) -> bytes:
        """Return the tasks, `overdue`, or `none` (see the script)."""
        return await self._sender.mutate("queue_claim", space, keys, actor, (count, visibility_ms, waiter))

    async def queue_recover(self, space: Space, keys: MoveKeys, actor: bytes, *, most: int) -> tuple[int, int]:
        """Return (number of tasks that are ready again, number of new dead letters)."""
        back, buried = (await self._sender.mutate("queue_recover", space, keys, actor, (most,))).split()
        return int(back), int(buried)

    async def queue_renew(self, keys: RenewKeys, *, id_: str, token: int, visibility_ms: int) -> bool:
        """Return whether the claim is valid."""
        return await self._sender.run("queue_renew", keys, (id_, token, visibility_ms)) == 1

    def queue_ack(
        self,
        space: Space,
        keys: AckKeys,
        results: Sequence[bytes],
        actor: bytes,
        *,
        keep_result_ms: int,
        acks: Sequence[DoneTask],
    ) -> Awaitable[bytes]:
        """Return a line for each task: `1`, or `0` if the claim is lost."""
        args: list[Argument] = [keep_result_ms]
        for id_, token, outcome in acks:
            args += (id_, token, outcome)
        return self._sender.mutate(
            "queue_ack", space, (*keys, *results), actor, args, large=sum([ack.size for ack in acks])
        )

    async def queue_retry(
        self, space: Space, keys: MoveKeys, actor: bytes, *, id_: str, token: int, delay_ms: int, reason: str
    ) -> str:
        """Return `again`, `dead` or `lost`."""
        args = (id_, token, delay_ms, reason)
        return (await self._sender.mutate("queue_retry", space, keys, actor, args)).decode()

    async def queue_release(self, space: Space, keys: ReleaseKeys, actor: bytes, *, id_: str, token: int) -> bool:
        """Return whether the claim was valid."""
        return await self._sender.mutate("queue_release", space, keys, actor, (id_, token)) == b"1"

    async def queue_leave(self, space: Space, keys: LeaveKeys, actor: bytes, *, waiter: str) -> bool:
        """Return whether the waiter was in the queue."""
        return await self._sender.mutate("queue_leave", space, keys, actor, (waiter,)) == b"1"

    # -- the whole queue

    async def queue_pause(self, space: Space, keys: PauseKeys, actor: bytes, *, rest: bool) -> bool:
        """Return whether the state has changed."""
        return await self._sender.mutate("queue_pause", space, keys, actor, (int(rest),)) == b"1"

    async def queue_redrive(self, space: Space, keys: RedriveKeys, actor: bytes, *, id_: str, most: int) -> int:
        """Return the number of dead letters that are tried again."""
        return int(await self._sender.mutate("queue_redrive", space, keys, actor, (id_, most)))

    async def queue_discard(self, space: Space, keys: DiscardKeys, actor: bytes, *, id_: str) -> bool:
        """Return whether the task existed."""
        return await self._sender.mutate("queue_discard", space, keys, actor, (id_,)) == b"1"

    async def queue_follow(
        self, space: Space, keys: FollowKeys, actor: bytes, *, id_: str, follower: str, stays: bool
    ) -> bool:
        """Return whether the follower will be notified."""
        return await self._sender.mutate("queue_follow", space, keys, actor, (id_, follower, int(stays))) == b"1"

    async def queue_outcome(self, keys: OutcomeKeys, result: bytes, *, id_: str) -> tuple[str, bytes, bytes]:
        """Return (state, encoded result, claim)."""
        state, outcome, claim = _texts(await self._sender.run("queue_outcome", (*keys, result), (id_,)))
        return state.decode(), outcome, claim

    async def queue_bury(self, space: Space, keys: BuryKeys, actor: bytes, *, id_: str, reason: str) -> bool:
        """Return whether the task is a dead letter only now."""
        return await self._sender.mutate("queue_bury", space, keys, actor, (id_, reason)) == b"1"

    async def queue_show(
        self, keys: ShowKeys, *, count: int, after_score: str = "", after_id: str = ""
    ) -> list[tuple[str, int, bytes, bytes]]:
        """Return (id, score, task, claim) of each task."""
        flat = _texts(await self._sender.run("queue_show", keys, (count, after_score, after_id)))
        rows = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
        with decoding(keys.line):
            return [(id_.decode(), round(float(score)), task, claim) for id_, score, task, claim in rows]

    async def queue_stats(self, keys: StatsKeys, *, levels: int) -> list[int]:
        """Return the figures in the order of the script."""
        return cast("list[int]", await self._sender.run("queue_stats", keys, (levels,)))


def _texts(reply: Reply) -> list[bytes]:
    return cast("list[bytes]", reply)


def _size(payloads: Sequence[bytes]) -> int:
    return sum(map(len, payloads))
