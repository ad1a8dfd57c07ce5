"""The typed callers of the scripts that bring records back from the durable tier: one method a file of `lua/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.wire.keys import KeySpace, Space
from sharedmem.wire.replies import Argument
from sharedmem.wire.sender import Sender
from sharedmem.wire.tier import Remembered

_MEMORY = "memory"
_NOBODY = b"-"


class RestoreKeys(NamedTuple):
    """What all memories of a namespace share; the records and their threads come behind."""

    kept: bytes
    log: bytes
    digests: bytes
    endings: bytes
    authors: bytes
    pending: bytes
    place: bytes


class Turn(NamedTuple):
    """The right to bring a namespace's records back."""

    token: str
    lease_ms: int
    """How long its holder may be silent."""


def restore_keys(keyspace: KeySpace, namespace: str) -> RestoreKeys:
    """Those of a namespace."""
    parts = (keyspace.record_part(_MEMORY, namespace, name) for name in RestoreKeys._fields[1:])
    return RestoreKeys(keyspace.kept(namespace), *parts)


class Bringing:
    """Brings memories, graphs and notes back into Redis."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def records_gather(self, kept: bytes, *, anew: Sequence[bytes], token: str, lease_ms: int, done: int) -> str:
        """Returns `whole`, `load`, `wait <ms>`, `lost` or `overtaken`."""
        return _text(await self._sender.run("records_gather", [kept, *anew], [token, lease_ms, done]))

    async def memory_restore(
        self, keys: RestoreKeys, *, keys_: Sequence[bytes], token: str, lease_ms: int, restores: Sequence[Remembered]
    ) -> int | None:
        """Returns how many are here now that were not; None when somebody else brings them back."""
        args: list[Argument] = [token, lease_ms]
        for one in restores:
            args += one[:-1]
            args.append(len(one.fields) // 2)
            args += one.fields
        reply = _text(await self._sender.run("memory_restore", [*keys, *keys_], args))
        return None if reply == "overtaken" else int(reply.split()[1])

    async def graph_restore(
        self,
        space: Space,
        kept: bytes,
        *,
        keys: Sequence[bytes],
        group: str,
        token: str,
        lease_ms: int,
        words: Sequence[Argument],
    ) -> str:
        """Returns `restored <how many>`, `changed` or `overtaken`."""
        args: list[Argument] = [group, token, lease_ms, *words]
        large = sum(8 if isinstance(word, int | float) else len(word) for word in words)
        reply = await self._sender.mutate("graph_restore", space, [kept, *keys], _NOBODY, args, large=large)
        return reply.decode()

    async def note_restore(
        self,
        kept: bytes,
        *,
        keys: Sequence[bytes],
        app: str,
        token: str,
        lease_ms: int,
        words: Sequence[Argument],
    ) -> int | None:
        """Returns how many are here now that were not; None when somebody else brings them back."""
        reply = _text(await self._sender.run("note_restore", [kept, *keys], [app, token, lease_ms, *words]))
        return None if reply == "overtaken" else int(reply.split()[1])


def _text(reply: object) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)
