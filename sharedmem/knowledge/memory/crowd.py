"""The crowd: who speaks in a namespace, as this process knows it."""

from __future__ import annotations

from sharedmem.wire.line import Line


class Crowd:
    """The authors of one namespace; all searches of a hub share what they know.

    Args:
        line: the way to the server.
        key: the hash of authors.
    """

    def __init__(self, line: Line, key: bytes) -> None:
        self._line = line
        self._key = key
        self.names: tuple[str, ...] = ()
        self.is_known = False

    async def look(self) -> None:
        """Ask who speaks. One round trip."""
        (reply,) = await self._line.read_each([("HKEYS", self._key)])
        names = reply if isinstance(reply, list) else []
        self.names = tuple(name.decode(errors="replace") for name in names if isinstance(name, bytes))
        self.is_known = True
