"""The typed callers of the scripts that keep track of who is here: one method a file of `lua/`."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.wire.changes import as_list, text_of
from sharedmem.wire.keys import Space
from sharedmem.wire.sender import Sender
from sharedmem.wire.service_keys import decoding

MORE = b"more"


class PresenceKeys(NamedTuple):
    """Where the actors of a namespace, and what is known of them, lie."""

    presence: bytes
    facts: bytes


class Sighting(NamedTuple):
    """An actor who is here."""

    actor: str
    left_us: int
    since: int
    seen: int
    about: bytes


class Attending:
    """Tells of the comings and goings of the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def presence_beat(
        self, space: Space, keys: PresenceKeys, actor: bytes, *, ttl_ms: int, about: bytes
    ) -> bytes:
        """Returns since when it has been here, or `MORE` when it has to be called again."""
        return await self._sender.mutate("presence_beat", space, keys, actor, (ttl_ms, about))

    async def presence_leave(self, space: Space, keys: PresenceKeys, actor: bytes) -> bytes:
        """Returns `1` if it was here, `0`, or `MORE` when it has to be called again."""
        return await self._sender.mutate("presence_leave", space, keys, actor, ())

    async def presence_lapse(self, space: Space, keys: PresenceKeys, actor: bytes) -> bytes:
        """Returns `0`, or `MORE` when it has to be called again."""
        return await self._sender.mutate("presence_lapse", space, keys, actor, ())

    async def presence_look(self, keys: PresenceKeys) -> tuple[int, list[Sighting]]:
        """(how many have lapsed and were not told of, who is here)."""
        found = as_list(await self._sender.run("presence_look", keys, ()))
        lapsed, rest = found[0], found[1:]
        with decoding(keys.facts):
            seen = [_sighting(*(_blob(part) for part in rest[i : i + 3])) for i in range(0, len(rest), 3)]
        return (lapsed if isinstance(lapsed, int) else 0), [sighting for sighting in seen if sighting is not None]


def _sighting(actor: bytes, left_us: bytes, facts: bytes) -> Sighting | None:
    since, _, rest = facts.partition(b" ")
    seen, _, about = rest.partition(b" ")
    # Somebody who is cleared away in this moment has no facts any more.
    return Sighting(text_of(actor), int(left_us), int(since), int(seen), about) if seen else None


def _blob(part: object) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()
