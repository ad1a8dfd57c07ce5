"""Typed callers of the scripts on objects of users' models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version

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
