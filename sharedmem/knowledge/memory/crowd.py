"""The crowd: who speaks in a namespace, as this process knows it."""

from __future__ import annotations

from sharedmem.wire.line import Line
from sharedmem.wire.replies import Command, Reply

_UNKNOWN = -1


class Crowd:
    """The authors of one namespace; all searches of a hub share what they know.

    Args:
        line: the way to the server.
        key: the hash of authors.
    """

    def __init__(self, line: Line, key: bytes) -> None:
        self._line = line
        self._version = _UNKNOWN
        self.names: tuple[str, ...] = ()
        self.question: Command = ("HKEYS", key)
        """What to ask the server."""

    @property
    def is_known(self) -> bool:
        """Whether anything was ever heard."""
        return self._version != _UNKNOWN

    def is_current(self, version: int) -> bool:
        """Whether nothing has changed since it was heard who speaks: `version` is that of the newest change."""
        return self._version == version

    def hear(self, reply: Reply, version: int) -> None:
        """Learn who speaks.

        Args:
            reply: to the question.
            version: of a change that was there before it was asked.
        """
        names = reply if isinstance(reply, list) else []
        self.names = tuple([name.decode(errors="replace") for name in names if isinstance(name, bytes)])
        self._version = version

    async def look(self, version: int = 0) -> None:
        """Ask who speaks. One round trip."""
        (reply,) = await self._line.read_each([self.question])
        self.hear(reply, version)
