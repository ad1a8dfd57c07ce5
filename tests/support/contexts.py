"""The one place where tests reach into a hub or a store: to look at the server, or to build one part on its own."""

from __future__ import annotations

from typing import Any

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.clock import SystemClock
from sharedmem.context import HubContext, ServerContext
from sharedmem.durable.tier import DurableTier
from sharedmem.hub.composition import OpenHub
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.client import Driver, RedisClient, Transport
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.executor import OperationLedger, ScriptExecutor
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import Background
from sharedmem.sync.faces import Face
from sharedmem.sync.portal import Portal


def parts_of(hub: Hub) -> OpenHub:
    """What an open hub consists of."""
    return hub._require_open()


def context_of(opened: Hub | SharedMemoryStore) -> HubContext:
    """What a hub shares with its stores."""
    return opened._context if isinstance(opened, SharedMemoryStore) else parts_of(opened).context


def server_context(line: RedisClient, keyspace: KeySpace, settings: Settings) -> ServerContext:
    """A server, as the parts of a hub see it, without a hub."""
    clock, counters = SystemClock(), Counters()
    return ServerContext(
        client=line,
        keyspace=keyspace,
        executor=ScriptExecutor(line, OperationLedger(clock, retry_for_s=5), change_log_length=1000),
        background=Background(counters),
        counters=counters,
        clock=clock,
        settings=settings,
    )


def client_of(hub: Hub) -> RedisClient:
    """The client of a hub's server."""
    return parts_of(hub).connection.client


def transport_and_driver_of(line: RedisClient) -> tuple[Transport, Driver]:
    """What a client sends with: a test puts its own transport between the two."""
    return line._transport, line._driver


def async_twin_of(face: Face[Any]) -> Any:
    """The object of the async library that an object of the sync face calls."""
    return face._async


def portal_of(face: Face[Any]) -> Portal:
    """The thread with an event loop in which a sync hub works."""
    return face._portal


def tier_of(hub: Hub) -> DurableTier:
    """The durable tier behind a hub, which it must have."""
    tier = parts_of(hub).tier
    assert tier is not None, "this hub has no durable tier"
    return tier


def knowledge_of(opened: Hub | SharedMemoryStore) -> KnowledgeContext:
    """The context of the memory, cache, graphs and synthesis of a hub or store."""
    return opened._knowledge_context()


def scope_of(store: SharedMemoryStore) -> Scope:
    """The keys and the identity of a store."""
    return store._scope
