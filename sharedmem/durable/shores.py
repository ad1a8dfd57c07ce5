"""Both shores: Redis here and the durable tier there, and what those who go between them need."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.clock import Clock
from sharedmem.durable.protocol import Durable
from sharedmem.tasks import Background
from sharedmem.telemetry import Counters
from sharedmem.wire.keeping import Keeping
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.line import Line


class Shores(NamedTuple):
    """What a part that moves keys between Redis and the tier is made of."""

    line: Line
    keyspace: KeySpace
    keeping: Keeping
    durable: Durable
    clock: Clock
    background: Background
    counters: Counters
