"""Sends scripts: with an operation id those that change something, without one those that only look.

Every mutation carries an operation id (`wire.ledger`), so that a repeat after a lost reply is answered
like the first and not done again. Each is one round trip and one atomic step at the server.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.errors import InternalError
from sharedmem.wire.keys import Space
from sharedmem.wire.ledger import Ledger
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Argument, Reply
from sharedmem.wire.scripts import scripts
from sharedmem.wire.tier import Keep

ASIDE_BYTES = 65_536
_FIXED_KEYS = 3


class Sender:
    """How the typed callers of one hub reach their scripts.

    Args:
        line: the way to the server.
        ledger: gives each mutation its operation id.
        change_log_length: approximate length to which change streams are kept.
    """

    def __init__(self, line: Line, ledger: Ledger, *, change_log_length: int) -> None:
        self._line = line
        self._ledger = ledger
        self._cap = change_log_length
        # Bytes go out as they are; text would be encoded at every call.
        self._digests = {name: script.digest.encode() for name, script in scripts().items()}

    async def mutate(
        self,
        script: str,
        space: Space,
        keys: Sequence[bytes],
        actor: bytes,
        args: Sequence[Argument],
        *,
        large: int = 0,
        keep: Keep | None = None,  # noqa: ARG002  # nothing stands behind this sender (see KeptSender)
    ) -> bytes:
        """Run a script that begins with `lua/include/mutation.lua`.

        Args:
            script: its name.
            space: the service keys that come before its own.
            keys: its own keys.
            actor: who does it.
            args: its own arguments.
            large: bytes of the arguments, if they may be many: what is large takes another connection.
            keep: how the first of its own keys are kept, where a durable tier stands behind.
        """
        operations = space.operations
        slot, number, keep_ms = self._ledger.take(operations)
        call = self._line.call_aside if large > ASIDE_BYTES else self._line.call
        try:
            reply = await call(
                b"EVALSHA",
                self._digests[script],
                _FIXED_KEYS + len(keys),
                space.clock,
                space.changes,
                operations,
                *keys,
                slot,
                number,
                keep_ms,
                actor,
                self._cap,
                *args,
            )
        finally:
            self._ledger.give_back(operations, slot)
        return _bytes(reply)

    async def tell(self, script: str, operations: bytes, args: Sequence[Argument], *, large: int = 0) -> bytes:
        """Run a script that changes nothing but the ledger, once however often it is repeated."""
        slot, number, keep_ms = self._ledger.take(operations)
        call = self._line.call_aside if large > ASIDE_BYTES else self._line.call
        try:
            reply = await call(b"EVALSHA", self._digests[script], 1, operations, slot, number, keep_ms, *args)
        finally:
            self._ledger.give_back(operations, slot)
        return _bytes(reply)

    async def run(self, script: str, keys: Sequence[bytes], args: Sequence[Argument]) -> Reply:
        """Run a script that may be repeated: it only looks, or does the same again."""
        return await self._line.call(b"EVALSHA", self._digests[script], len(keys), *keys, *args)


def parted(reply: bytes) -> tuple[int, bytes]:
    """(version, result) of a reply `<version> <result>`."""
    version, _, result = reply.partition(b" ")
    return int(version), result


def _bytes(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return reply
    raise InternalError(f"a script answered {reply!r} where it promises text")
