"""The typed callers of the scripts that put back what was kept elsewhere: one method a file of `lua/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.errors import InternalError
from sharedmem.wire.replies import Argument
from sharedmem.wire.sender import Sender

LOST = "lost"
"""What the scripts answer where Redis may lack what the durable tier has: join the namespace first."""


class RestoreKeys(NamedTuple):
    """What restoring in a namespace touches of its service keys."""

    clock: bytes
    changes: bytes
    kept: bytes


class RestoreTerms(NamedTuple):
    """How keys are restored: see the script."""

    cap: int
    replace: int
    joined: int


class Restoring:
    """Puts keys back with the versions that they had.

    Args:
        sender: sends the scripts; each may be repeated.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def key_restore(
        self, owner: RestoreKeys, keys: Sequence[bytes], actor: bytes, terms: RestoreTerms, rows: Sequence[Argument]
    ) -> str:
        """Returns a letter for each pair of keys, or `lost`."""
        return _text(await self._sender.run("key_restore", [*owner, *keys], [actor, *terms, *rows]))

    async def version_take(self, owner: RestoreKeys, *, count: int, above: int, joined: int) -> int | None:
        """The first of so many versions; None when the namespace has to be joined."""
        reply = _text(await self._sender.run("version_take", owner, [count, above, joined]))
        return None if reply == LOST else int(reply)


def _text(reply: object) -> str:
    if isinstance(reply, bytes):
        return reply.decode()
    raise InternalError(f"a script answered {reply!r} where it promises text")
