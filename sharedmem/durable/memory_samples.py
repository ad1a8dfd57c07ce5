"""Run sample queries on the memories of a durable store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sharedmem.clock import Clock
from sharedmem.durable.liveness import has_expired
from sharedmem.durable.memory_scan import TierMemory, open_collector, parse_memory
from sharedmem.durable.protocol import Durable
from sharedmem.durable.samples import NativeAnswer, NativeSamples, SampleRequest, SampleRow, check_sample
from sharedmem.models import SampleResult

_MEMORY = "memory"


class MemorySamples:
    """Runs sample queries.

    Args:
        store: the store with the documents.
        clock: decides which memories have expired.
    """

    def __init__(self, store: Durable, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self, name: str, namespace: str, **given: Any) -> SampleResult:
        """Run a sample query; see `DurableAdmin.run_sample`."""
        now_ms = round(self._clock.now().timestamp() * 1000)
        request = check_sample(name, namespace, now_ms, given)
        native = await self._store.sample_memories(request) if isinstance(self._store, NativeSamples) else None
        if native is None:
            native = NativeAnswer(await self._read(request), "")
        return SampleResult(name=name, namespace=namespace, rows=tuple(native.rows), query=native.query)

    async def _read(self, request: SampleRequest) -> list[SampleRow]:
        found = open_collector(request)
        async for memory in self._memories(request):
            found.take(memory)
        return found.rows()

    async def _memories(self, request: SampleRequest) -> AsyncIterator[TierMemory]:
        async for page in self._store.iterate(request.namespace, heads_only=True):
            for record in page:
                if record.type != _MEMORY or record.deleted or has_expired(record, request.now_ms):
                    continue
                memory = parse_memory(record)
                if memory is not None and request.thread_id in {None, memory.row["thread_id"]}:
                    yield memory
