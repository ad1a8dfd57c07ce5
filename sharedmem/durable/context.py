"""The dependencies shared by the parts that move keys between Redis and the durable store."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.clock import Clock
from sharedmem.durable.protocol import Durable
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.scripts.durable import DurableScripts
from sharedmem.runtime import Counters
from sharedmem.runtime.background import Background


class DurableContext(NamedTuple):
    """What a part that moves keys between Redis and the tier is made of."""

    line: RedisClient
    keyspace: KeySpace
    keeping: DurableScripts
    durable: Durable
    clock: Clock
    background: Background
    counters: Counters
