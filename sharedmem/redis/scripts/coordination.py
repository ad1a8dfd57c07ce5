"""Typed callers of the scripts for leases, rate limits, run-once, barriers and presence."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from sharedmem.errors import InternalError
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Reply, ServerError
from sharedmem.redis.scripts.executor import ScriptExecutor
from sharedmem.redis.service_keys import ReadCommands, corruption_error, decoding, find_first_damage


class LeaseKeys(NamedTuple):
    """The keys of the holders and waiters of one name."""

    holders: bytes
    waiters: bytes


class NamedLeaseKeys(NamedTuple):
    """The same, and the key of its name."""

    holders: bytes
    waiters: bytes
    name: bytes


class LeaseTerms(NamedTuple):
    """The terms of a lease."""

    capacity: int
    weight: int
    lease_ms: int
    gain: bytes = b""
    """The operation on the change feed when the lease is acquired."""


class LeaseScripts:
    """Acquires, renews and releases leases for the actors of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._mutate = sender.mutate

    def lease_acquire(
        self,
        space: Space,
        keys: Sequence[NamedLeaseKeys],
        actor: bytes,
        terms: LeaseTerms,
        *,
        waits: int,
        askers: Sequence[str],
    ) -> Awaitable[bytes]:
        """Return a line for each asker: `got <token>`, `wait <ms> <rank>` or `E <error>`."""
        flat = [key for one in keys for key in one]
        return self._mutate("lease_acquire", space, flat, actor, [*terms, waits, *askers])

    async def lease_renew(self, space: Space, holders: bytes, actor: bytes, *, holder: bytes, lease_ms: int) -> bool:
        """Return whether the lease is still held."""
        return await self._mutate("lease_renew", space, (holders,), actor, (holder, lease_ms)) == b"kept"

    def lease_release(
        self, space: Space, keys: Sequence[LeaseKeys], actor: bytes, *, holders: Sequence[bytes]
    ) -> Awaitable[bytes]:
        """Return a line for each lease: `released`, `gone` or `E <error>`."""
        return self._mutate("lease_release", space, [key for one in keys for key in one], actor, holders)

    async def lease_leave(self, space: Space, places: LeaseKeys, actor: bytes, *, asker: str) -> None:
        """Remove a waiter."""
        await self._mutate("lease_leave", space, places, actor, (asker,))

    async def lease_revoke(
        self, space: Space, contest: NamedLeaseKeys, actor: bytes, *, token: int, change: str
    ) -> bool:
        """Return whether a holder had the token until now."""
        return await self._mutate("lease_revoke", space, contest, actor, (token, change)) == b"revoked"


class LimitDecision(NamedTuple):
    """The decision of a script."""

    allowed: bool
    remaining: int
    retry_us: int


class LimitRequest(NamedTuple):
    """A cost that is requested of a limit."""

    key: bytes
    numbers: tuple[int, ...]
    """What the algorithm needs, as `RateLimitScripts` says."""
    size: int = 0


_REFUSED = b"E "


class RateLimitScripts:
    """Applies rate limits for the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    def limit_window_take(self, space: Space, actor: bytes, requests: Sequence[LimitRequest]) -> Awaitable[bytes]:
        """Admit costs, each if its window has room: a line for each, see `read_decision`.

        The numbers of a request are the limit, the length of the window in microseconds, and the cost.
        """
        return self._take("limit_window_take", space, actor, requests)

    async def limit_window_look(self, log: bytes, *, limit: int, window_us: int) -> LimitDecision:
        """Return the decision for a cost of one, without admitting it."""
        return _parse_look(await self._sender.run("limit_window_look", (log,), (limit, window_us)))

    def limit_bucket_take(self, space: Space, actor: bytes, requests: Sequence[LimitRequest]) -> Awaitable[bytes]:
        """Take tokens, each from its bucket if that has enough: a line for each, see `read_decision`.

        The numbers of a request are the tokens of a full bucket, the parts of a token, the parts that each microsecond
        adds, and the cost.
        """
        return self._take("limit_bucket_take", space, actor, requests)

    def _take(self, script: str, space: Space, actor: bytes, requests: Sequence[LimitRequest]) -> Awaitable[bytes]:
        keys = [request.key for request in requests]
        return self._sender.mutate(script, space, keys, actor, [n for request in requests for n in request.numbers])

    async def limit_bucket_look(self, bucket: bytes, *, burst: int, unit: int, rate: int) -> LimitDecision:
        """Return the decision for a cost of one, without admitting it."""
        return _parse_look(await self._sender.run("limit_bucket_look", (bucket,), (burst, unit, rate)))

    async def limit_usage(self, limit: bytes) -> tuple[str, int, int] | None:
        """Return (algorithm, used cost, milliseconds until nothing is used), or None if nothing is."""
        reply = await self._sender.run("limit_usage", (limit,), ())
        if not isinstance(reply, bytes):
            raise InternalError(f"limit_usage returned {reply!r} instead of text")
        if not reply:
            return None
        with decoding(limit):
            algorithm, used, left_ms = reply.split()
            return algorithm.decode(), int(used), int(left_ms)


async def read_decision(ask: ReadCommands, key: bytes, reply: bytes) -> LimitDecision:
    """Return the decision of one request from its line.

    Args:
        ask: sends reading commands, if the server refused this request.
        key: the key of the limit.
        reply: the line.

    Raises:
        ServerError: the key belongs to another algorithm.
        CorruptionError: another client has written to it.
    """
    if reply.startswith(_REFUSED):
        refusal = ServerError(reply.removeprefix(_REFUSED).decode(errors="replace"))
        if refusal.code == "WRONGTYPE":
            raise refusal
        raise await find_first_damage(ask, (key,)) or corruption_error(key, refusal.text)
    allowed, remaining, retry_us = reply.split()
    return LimitDecision(allowed == b"1", int(remaining), int(retry_us))


def _parse_look(reply: Reply) -> LimitDecision:
    if not isinstance(reply, bytes):
        raise InternalError(f"a script returned {reply!r} instead of text")
    remaining, retry_us = map(int, reply.split())
    return LimitDecision(remaining > 0, remaining, retry_us)


class OnceKeys(NamedTuple):
    """The keys of a piece of work and of its waiters."""

    once: bytes
    waiters: bytes


class OnceRequest(NamedTuple):
    """A piece of work that is claimed."""

    keys: OnceKeys
    name: str
    """The caller's name as waiter and as runner."""
    waits: int
    lease_ms: int
    ttl_ms: int

    @property
    def size(self) -> int:
        """Requests are short: their bytes do not count."""
        return 0


class OnceEnd(NamedTuple):
    """The result of a piece of work."""

    keys: OnceKeys
    token: int
    """The token of its runner."""
    ttl_ms: int
    result: bytes

    @property
    def size(self) -> int:
        """The bytes that count in a shared call."""
        return len(self.result)


class OnceScripts:
    """Begins and ends pieces of work for the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    def once_begin(self, space: Space, actor: bytes, requests: Sequence[OnceRequest]) -> Awaitable[bytes]:
        """Return a reply for each request, those of several as `split_replies` takes them apart.

        A reply is `done <result>`, `yours <token> <attempt>`, `running <milliseconds left> <1|0>`, `E <error>`, or
        `again` if the result is too large for a shared reply.
        """
        keys = [key for request in requests for key in request.keys]
        args = [arg for request in requests for arg in request[1:]]
        return self._sender.mutate("once_begin", space, keys, actor, args)

    async def once_renew(
        self, space: Space, once: bytes, actor: bytes, *, token: int, lease_ms: int, ttl_ms: int
    ) -> bool:
        """Return whether the runner still has the claim."""
        return await self._sender.mutate("once_renew", space, (once,), actor, (token, lease_ms, ttl_ms)) == b"1"

    def once_finish(self, space: Space, actor: bytes, ends: Sequence[OnceEnd]) -> Awaitable[bytes]:
        """Return a line for each result: `1` if it is stored; `0` if its runner has lost the claim, or `E <error>`."""
        keys = [key for end in ends for key in end.keys]
        args = [arg for end in ends for arg in (end.token, end.ttl_ms, end.result)]
        return self._sender.mutate("once_finish", space, keys, actor, args, large=sum(end.size for end in ends))

    async def once_release(self, space: Space, keys: OnceKeys, actor: bytes, *, token: int, ttl_ms: int) -> bool:
        """Return whether the runner still had the claim; then the work is free again."""
        return await self._sender.mutate("once_release", space, keys, actor, (token, ttl_ms)) == b"1"

    async def once_leave(self, space: Space, keys: OnceKeys, actor: bytes, *, name: str) -> None:
        """Remove a name as waiter and runner."""
        await self._sender.mutate("once_leave", space, keys, actor, (name,))

    async def once_forget(self, space: Space, once: bytes, actor: bytes) -> bool:
        """Return whether there was a result."""
        return await self._sender.mutate("once_forget", space, (once,), actor, ()) == b"1"

    async def once_look(self, once: bytes) -> bytes:
        """Return `<none|running|done> <token> <attempt> <milliseconds left> <actor>`, or empty."""
        reply = await self._sender.run("once_look", (once,), ())
        if isinstance(reply, bytes):
            return reply
        raise InternalError(f"once_look returned {reply!r} instead of text")


class BarrierKeys(NamedTuple):
    """The keys of the arrived parties, and of the parties that have passed."""

    barrier: bytes
    opened: bytes


class BarrierScripts:
    """Operates barriers for the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def barrier_arrive(
        self, space: Space, keys: BarrierKeys, actor: bytes, *, waiter: str, parties: int, lease_ms: int
    ) -> bytes:
        """Return `opened <generation> <position>`, `waiting <arrival>` or `parties <n>`."""
        return await self._sender.mutate("barrier_arrive", space, keys, actor, (waiter, parties, lease_ms))

    async def barrier_stay(
        self, space: Space, keys: BarrierKeys, actor: bytes, *, waiter: str, arrival: bytes, lease_ms: int
    ) -> bytes:
        """Return `opened <generation> <position>`, `waiting <arrival>` or `gone`."""
        return await self._sender.mutate("barrier_stay", space, keys, actor, (waiter, arrival, lease_ms))

    async def barrier_leave(self, space: Space, keys: BarrierKeys, actor: bytes, *, waiter: str) -> bytes:
        """Return `opened <generation> <position>`, or `left <how many still wait>`."""
        return await self._sender.mutate("barrier_leave", space, keys, actor, (waiter,))

    async def barrier_look(self, barrier: bytes) -> int:
        """Return the number of waiting parties."""
        reply = await self._sender.run("barrier_look", (barrier,), ())
        return reply if isinstance(reply, int) else 0


class NameScripts:
    """Maintains the index of the names in use.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def names_drop(self, names: bytes, *, gone: Sequence[str]) -> None:
        """Remove names from the index, unless they are in use again."""
        await self._sender.run("names_drop", (names,), gone)


CALL_AGAIN = b"more"


class PresenceKeys(NamedTuple):
    """The keys of the present actors of a namespace, and of their data."""

    presence: bytes
    facts: bytes


class PresentActor(NamedTuple):
    """An actor that is present."""

    actor: str
    left_us: int
    since: int
    seen: int
    about: bytes


class PresenceScripts:
    """Records the presence of the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def presence_beat(
        self, space: Space, keys: PresenceKeys, actor: bytes, *, ttl_ms: int, about: bytes
    ) -> bytes:
        """Return since when the actor is present, or `CALL_AGAIN` if the script must be called again."""
        return await self._sender.mutate("presence_beat", space, keys, actor, (ttl_ms, about))

    async def presence_leave(self, space: Space, keys: PresenceKeys, actor: bytes) -> bytes:
        """Return `1` if the actor was present, else `0`, or `CALL_AGAIN` if the script must be called again."""
        return await self._sender.mutate("presence_leave", space, keys, actor, ())

    async def presence_lapse(self, space: Space, keys: PresenceKeys, actor: bytes) -> bytes:
        """Return `0`, or `CALL_AGAIN` if the script must be called again."""
        return await self._sender.mutate("presence_lapse", space, keys, actor, ())

    async def presence_look(self, keys: PresenceKeys) -> tuple[int, list[PresentActor]]:
        """Return (number of lapsed actors that were not announced yet, present actors)."""
        found = as_list(await self._sender.run("presence_look", keys, ()))
        lapsed, rest = found[0], found[1:]
        with decoding(keys.facts):
            seen = [
                _parse_present_actor(*(_to_bytes(part) for part in rest[i : i + 3])) for i in range(0, len(rest), 3)
            ]
        return (lapsed if isinstance(lapsed, int) else 0), [sighting for sighting in seen if sighting is not None]


def _parse_present_actor(actor: bytes, left_us: bytes, facts: bytes) -> PresentActor | None:
    since, _, rest = facts.partition(b" ")
    seen, _, about = rest.partition(b" ")
    # An actor that is being removed has no data any more.
    return PresentActor(text_of(actor), int(left_us), int(since), int(seen), about) if seen else None


def _to_bytes(part: object) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()
