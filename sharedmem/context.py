"""The dependencies that a hub shares with its stores: the server, the services in front of it, the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from sharedmem.blobs.blobs import BlobGarbageCollector, Blobs
from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.models import Powers
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import Lifetimes, Tier
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.pubsub import PubSubHub, WaitNotifier
from sharedmem.redis.scripts.executor import ScriptExecutor
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import Background

T = TypeVar("T")
C = TypeVar("C", bound="ServerContext")


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """The server of a hub, with the objects that every user of the server needs."""

    client: RedisClient
    keyspace: KeySpace
    executor: ScriptExecutor
    """Runs scripts. From `HubContext` on, scripts on keys of the durable tier also write changes to the outbox."""
    background: Background
    counters: Counters
    clock: Clock
    settings: Settings

    def extended(self, kind: type[C], **more: Any) -> C:
        """Return a larger context with the same parts.

        Args:
            kind: the class of the larger context, derived from this one.
            more: the fields that `kind` adds or replaces.
        """
        return kind(**{each.name: getattr(self, each.name) for each in fields(self)} | more)


@dataclass(frozen=True, kw_only=True)
class HubContext(ServerContext):
    """The dependencies that a hub shares with its stores."""

    listener: PubSubHub
    wait_notifier: WaitNotifier
    blobs: Blobs
    blob_gc: BlobGarbageCollector
    lifetimes: Lifetimes
    powers: Powers
    tier: Tier | None = None
    """The durable tier, if the hub has one."""
    clear_hooks: list[Callable[[str], Awaitable[None]]] = field(default_factory=list, repr=False)
    """Each is called with a cleared namespace, before clients can write to it again."""
    sweep_hooks: list[Callable[[str, bool], Awaitable[int]]] = field(default_factory=list, repr=False)
    """Each counts the expired data of a namespace, and deletes it if the second argument is true."""
    _shared: dict[tuple[type, str], object] = field(default_factory=dict, repr=False)

    def shared(self, kind: type[T], namespace: str, make: Callable[[], T]) -> T:
        """Return the one object of a class that all stores of a namespace share in this hub.

        Args:
            kind: the class of the object.
            namespace: the namespace of the object; empty for an object of the hub.
            make: creates the object on its first use.
        """
        found = self._shared.get((kind, namespace))
        if found is None:
            found = self._shared[kind, namespace] = make()
        return cast("T", found)

    def settings_of(self, namespace: str) -> Settings:
        """Return the settings that hold in a namespace (`namespace_settings`)."""
        if not self.settings.namespace_settings:
            return self.settings
        return self.shared(Settings, namespace, lambda: self.settings.for_namespace(namespace))
