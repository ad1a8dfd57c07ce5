"""Typed callers of the scripts for other libraries: LangGraph's checkpoints and items, and objects of users' models.

A thread of checkpoints is a hash; items are a hash for each namespace, and there is a set of their namespaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version

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


# -- items of a store of LangGraph ---------------------------------------------------------------


class ItemWrite(NamedTuple):
    """One item to set, or to delete."""

    field: str
    ttl_ms: int | None
    """0: it never expires; None: delete it."""
    payload: bytes


class ItemScripts:
    """Changes and reads items for the actors of one hub."""

    def __init__(self, runner: ScriptExecutor) -> None:
        self._runner = runner

    async def item_put(
        self,
        items_: Target,
        namespaces: bytes,
        actor: bytes,
        *,
        member: bytes,
        most: int,
        items: Sequence[ItemWrite],
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return the version, 0 if nothing was changed."""
        args: list[Argument] = [member, most]
        for item in items:
            args += (item.field, "" if item.ttl_ms is None else item.ttl_ms, item.payload)
        size = sum([len(item.payload) for item in items])
        keys = [items_.physical, namespaces]
        return await self._runner.mutate("item_put", items_.space, keys, actor, args, large=size, keep=keep)

    async def item_sweep(
        self, items: Target, namespaces: bytes, actor: bytes, *, member: bytes, keep: DurabilityModes | None = None
    ) -> int:
        """Return how many items were deleted."""
        keys = [items.physical, namespaces]
        return int(await self._runner.mutate("item_sweep", items.space, keys, actor, [member], keep=keep))

    async def item_look(self, items: bytes, *, renews: bool, fields: Sequence[str]) -> Reply:
        """Return the reply (see `lua/item_look.lua`)."""
        return await self._runner.run("item_look", [items], [int(renews), *fields], aside=len(fields) > 1)


# -- objects of users' models --------------------------------------------------------------------


ObjectForm = Literal["hash", "json"]
WriteCondition = Literal["", "nx", "xx"]


class ObjectScripts:
    """Changes the objects that the actors of one hub store."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    async def object_write(
        self,
        object_: Target,
        actor: bytes,
        *,
        ttl_ms: int,
        condition: WriteCondition,
        form: ObjectForm,
        content: Sequence[Argument],
    ) -> int:
        """Return the version of the object, or 0 if the condition is not met."""
        args: list[Argument] = [ttl_ms, condition, form, *content]
        size = sum(len(part) for part in content if isinstance(part, bytes | str))
        keys = [object_.physical]
        reply = await self._executor.mutate("object_write", object_.space, keys, actor, args, large=size)
        return split_version(reply)[0]

    async def object_delete(self, space: Space, objects: Sequence[bytes], actor: bytes) -> int:
        """Return the number of deleted objects."""
        return int(split_version(await self._executor.mutate("object_delete", space, objects, actor, []))[1])
