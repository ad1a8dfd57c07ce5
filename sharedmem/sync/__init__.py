"""Shared memory without `await`: the same names over one event loop in a thread of its own.

    from sharedmem.sync import Hub

    with Hub.open() as hub:
        store = hub.store("research", actor="ada")
        store.write("topic", "tides")

Any number of threads may use one hub. A hub does not survive a fork: open it in the process that uses it.
"""

from sharedmem.sync._generated import (
    Access,
    Barrier,
    Candidacy,
    ClaimedTask,
    Consumer,
    Conversations,
    Decisions,
    Episodes,
    Execution,
    Hub,
    Lease,
    Presence,
    RateLimit,
    ReadWriteLock,
    SharedMemoryStore,
    Subscription,
    TaskQueue,
)

__all__ = [
    "Access",
    "Barrier",
    "Candidacy",
    "ClaimedTask",
    "Consumer",
    "Conversations",
    "Decisions",
    "Episodes",
    "Execution",
    "Hub",
    "Lease",
    "Presence",
    "RateLimit",
    "ReadWriteLock",
    "SharedMemoryStore",
    "Subscription",
    "TaskQueue",
]
