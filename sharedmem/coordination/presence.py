"""Presence: which actors are present, and in what role."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property

from sharedmem.clock import from_microseconds
from sharedmem.coordination.names import LONGEST_LEASE_S, NameAccess, check_seconds
from sharedmem.errors import InvalidError, UnavailableError, UsageError
from sharedmem.models.coordination import Present
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.keys import SHARED_SCOPE, Target
from sharedmem.redis.scripts.coordination import CALL_AGAIN, PresenceKeys, PresenceScripts, PresentActor
from sharedmem.redis.service_keys import decoding
from sharedmem.runtime.concurrency import ProcessBound

SHORTEST_TTL_S = 0.3
MOST_BYTES = 8192
MOST_ROLE_BYTES = 128


class Presences:
    """Presence: which actors are present, and in what role."""

    def __init__(self, names: NameAccess) -> None:
        self._presence_names = names

    @cached_property
    def presence(self) -> Presence:
        """The actors of this namespace that are present."""
        return Presence(self._presence_names)


class Presence(ProcessBound):
    """The actors of a namespace that are present. The property `presence` of a store.

    The change feed announces `presence.join`, `presence.leave` and `presence.lapse`, each with the key
    `<namespace>:$presence:<actor>`: `store.watch("<namespace>:$presence:*")` yields them.
    """

    def __init__(self, names: NameAccess) -> None:
        self._names = names
        self._scripts = PresenceScripts(names.context.executor)

    @asynccontextmanager
    async def here(self, *, role: str = "", info: object = None, ttl: float = 15.0) -> AsyncIterator[Presence]:
        """Be present while the block runs. One round trip now, one every `ttl` / 3 seconds, one at the end.

        An actor that lapsed (its process hung, or its server was unreachable) joins again with its next heartbeat. If
        two processes use one name, the others see the last heartbeat of both, and the first process to leave removes
        the name until the other sends a heartbeat: give each process its own name.

        Args:
            role: role of the actor, up to 128 bytes.
            info: any value, up to 8 KiB encoded.
            ttl: seconds after which the actor lapses without a heartbeat; 0.3 to a day.

        Yields:
            This object.

        Raises:
            InvalidError: an argument is invalid, or the store has no actor.
            UnavailableError: as `write`.
        """
        await self.announce(role=role, info=info, ttl=ttl)
        beats = self._names.context.background.start(
            f"heartbeat {self._require_actor()}", self._send_heartbeats(role, info, ttl)
        )
        try:
            yield self
        finally:
            await beats.stop()
            with suppress(UnavailableError, UsageError):  # its hub was closed: the actor lapses
                await self.leave()

    async def announce(self, *, role: str = "", info: object = None, ttl: float = 15.0) -> None:
        """Be present for the next `ttl` seconds: one heartbeat, for callers that send their own.

        One round trip; it first announces the actors that have lapsed.

        Raises:
            InvalidError, UnavailableError: as `here`.
        """
        self._require_actor()
        about = _encode_info(role, info)
        ttl_ms = check_seconds("ttl", ttl, least=SHORTEST_TTL_S, most=LONGEST_LEASE_S)
        target, keys = self._target, self._keys
        while True:
            beat = self._scripts.presence_beat(target.space, keys, self._names.actor, ttl_ms=ttl_ms, about=about)
            if await self._names.explained(target, beat) != CALL_AGAIN:
                return

    async def leave(self) -> bool:
        """Stop being present; return whether this actor was present. One round trip.

        Raises:
            InvalidError: the store has no actor.
            UnavailableError: as `write`.
        """
        self._require_actor()
        while True:
            call = self._scripts.presence_leave(self._target.space, self._keys, self._names.actor)
            reply = await self._names.explained(self._target, call)
            if reply != CALL_AGAIN:
                return reply == b"1"

    def __repr__(self) -> str:
        return f"<Presence in {self._names.scope.identity.namespace}>"

    @cached_property
    def _target(self) -> Target:
        return self._names.scope.common(f"{self._names.scope.identity.namespace}:{SHARED_SCOPE}", "write")

    @cached_property
    def _keys(self) -> PresenceKeys:
        return PresenceKeys(
            self._names.part(self._target, "presence"), self._names.part(self._target, "presence.facts")
        )

    def _require_actor(self) -> str:
        actor = self._names.scope.identity.actor
        if actor is None:
            raise InvalidError("actor", actor, "open the store with actor=, presence needs the name of an actor")
        return actor

    async def _send_heartbeats(self, role: str, info: object, ttl: float) -> None:
        while True:
            await self._names.context.clock.sleep(ttl / 3)
            with suppress(UnavailableError):  # it joins again when the server is back
                await self.announce(role=role, info=info, ttl=ttl)

    # The last method: a method named like a type hides the type in later annotations.
    async def list(self, role: str | None = None) -> builtins.list[Present]:
        """List the present actors, in the order in which they joined. One round trip, two if an actor has lapsed.

        Args:
            role: only actors with this role; None: all.

        Raises:
            UnavailableError: as `read`.
        """
        names = self._names
        target, keys = self._target, self._keys
        lapsed, found = await names.explained(target, self._scripts.presence_look(keys))
        while lapsed:
            call = self._scripts.presence_lapse(target.space, keys, names.actor)
            lapsed = await names.explained(target, call) == CALL_AGAIN
        with decoding(keys.facts):
            everybody = sorted((_parse_present(sighting) for sighting in found), key=lambda present: present.since)
        return [present for present in everybody if role is None or present.role == role]


def _encode_info(role: str, info: object) -> bytes:
    if not isinstance(role, str) or len(role.encode()) > MOST_ROLE_BYTES:
        raise InvalidError("role", role, f"give a text of at most {MOST_ROLE_BYTES} bytes")
    about = encode_member([role, info])
    if len(about) > MOST_BYTES:
        advice = f"it takes {len(about)} bytes, presence may take {MOST_BYTES}; store it as a value and name its key"
        raise InvalidError("info", "...", advice)
    return about


def _parse_present(sighting: PresentActor) -> Present:
    role, info = decode_member(sighting.about)
    return Present(
        actor=sighting.actor,
        role=role,
        info=info,
        since=from_microseconds(sighting.since),
        last_seen=from_microseconds(sighting.seen),
        remaining=sighting.left_us / 1_000_000,
    )
