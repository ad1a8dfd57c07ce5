"""Typed callers of the scripts on threads of checkpoints, which are hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor

Pairs = Sequence[tuple[str, bytes]]
"""Fields of a thread and their contents."""
CheckpointName = tuple[str, str]
"""The namespace and the id of a checkpoint."""


class CheckpointScripts:
    """Changes and reads threads of checkpoints for the actors of one hub."""

    def __init__(self, runner: ScriptExecutor) -> None:
        self._runner = runner

    async def checkpoint_put(
        self,
        thread: Target,
        actor: bytes,
        *,
        ttl_ms: int,
        most: int,
        parent: str,
        names: Sequence[CheckpointName],
        pairs: Pairs,
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return the reply (see `lua/checkpoint_put.lua`)."""
        args: list[Argument] = [ttl_ms, most, parent, "\r".join(map("\n".join, names)), *_flat(pairs)]
        return await self._mutate("checkpoint_put", thread, actor, args, pairs=pairs, keep=keep)

    async def checkpoint_write(
        self,
        thread: Target,
        actor: bytes,
        *,
        ttl_ms: int,
        most: int,
        name: CheckpointName,
        replaces: bool,
        pairs: Pairs,
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return the reply (see `lua/checkpoint_write.lua`)."""
        args: list[Argument] = [ttl_ms, most, "\n".join(name), int(replaces), *_flat(pairs)]
        return await self._mutate("checkpoint_write", thread, actor, args, pairs=pairs, keep=keep)

    async def checkpoint_drop(
        self,
        thread: Target,
        actor: bytes,
        *,
        mode: Literal["old", "runs"],
        runs: Sequence[str] = (),
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return the reply (see `lua/checkpoint_drop.lua`)."""
        return await self._mutate("checkpoint_drop", thread, actor, [mode, *runs], keep=keep)

    async def checkpoint_look(self, thread: bytes, names: Sequence[CheckpointName]) -> Reply:
        """Return the reply (see `lua/checkpoint_look.lua`)."""
        joined = list(map("\n".join, names))
        return await self._runner.run("checkpoint_look", [thread], joined, aside=len(names) > 1)

    async def checkpoint_list(self, thread: bytes) -> Reply:
        """Return the reply (see `lua/checkpoint_list.lua`)."""
        return await self._runner.run("checkpoint_list", [thread], [])

    async def _mutate(
        self,
        script: str,
        thread: Target,
        actor: bytes,
        args: Sequence[Argument],
        *,
        pairs: Pairs = (),
        keep: DurabilityModes | None,
    ) -> bytes:
        size = sum([len(content) for _, content in pairs])
        return await self._runner.mutate(script, thread.space, [thread.physical], actor, args, large=size, keep=keep)


def _flat(pairs: Pairs) -> list[Argument]:
    return [part for pair in pairs for part in pair]
