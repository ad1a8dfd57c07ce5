"""The dependencies shared by the parts that move keys between Redis and the durable store."""

from __future__ import annotations

from dataclasses import dataclass

from sharedmem.context import ServerContext
from sharedmem.durable.protocol import Durable
from sharedmem.redis.scripts.durable import DurableScripts


@dataclass(frozen=True, kw_only=True)
class DurableContext(ServerContext):
    """What every part needs that moves keys between Redis and the durable store."""

    scripts: DurableScripts
    durable: Durable
