"""What semantic memory has to do on every server and with every index, as tests that a backend's test file inherits."""

from conformance.memory.reads import MemoryReadTests
from conformance.memory.scope import MemoryScopeTests
from conformance.memory.search import MemorySearchTests
from conformance.memory.subscriptions import MemorySubscriptionTests
from conformance.memory.threads import MemoryThreadTests
from conformance.memory.transfer import MemoryTransferTests
from conformance.memory.usage import MemoryUsageTests


class MemorySuite(
    MemoryReadTests,
    MemorySearchTests,
    MemoryScopeTests,
    MemoryUsageTests,
    MemoryThreadTests,
    MemorySubscriptionTests,
    MemoryTransferTests,
):
    """All of it; a backend's test class gives the fixture `hub`, an open `Hub` with an embedder."""


__all__ = [
    "MemoryReadTests",
    "MemoryScopeTests",
    "MemorySearchTests",
    "MemorySubscriptionTests",
    "MemorySuite",
    "MemoryThreadTests",
    "MemoryTransferTests",
    "MemoryUsageTests",
]
