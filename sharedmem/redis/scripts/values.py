"""The typed caller of the script that writes values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.redis.codec import JSON
from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor

_ANY = "*"


class KeyWrite(NamedTuple):
    """A value to write."""

    target: Target
    expect: str
    """`*`: any; empty: absent; `x`: a string without a header; otherwise the exact version."""
    ttl_ms: int
    codec: bytes
    body: bytes
    mode: str = ""
    """Durability mode (see `redis.durability`); empty without a durable tier."""

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.body)


class ValueScripts:
    """Writes values for the actors of one hub."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    async def value_write(
        self, space: Space, actor: bytes, records: Sequence[KeyWrite], *, together: bool
    ) -> list[bytes]:
        """Write records of one namespace; return one reply line for each (see `lua/value_write.lua`)."""
        args: list[Argument] = [int(together)]
        keys: list[bytes] = []
        size = 0
        for target, expect, ttl_ms, codec, body, _ in records:
            keys.append(target.physical)
            usual = expect == _ANY and not ttl_ms and codec == JSON
            args += (b"" if usual else f"{expect} {ttl_ms} {codec.decode()}", body)
            size += len(body)
        keep = None
        if modes := "".join([record.mode for record in records]):
            is_repeatable = all(record.expect == _ANY for record in records)
            keep = DurabilityModes(tuple([record.target for record in records]), modes, is_repeatable)
        reply = await self._executor.mutate("value_write", space, keys, actor, args, large=size, keep=keep)
        return reply.split(b"\n")
