"""Results of calls on shared data: entries, changes, messages, usage, capabilities, health."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.models.record import Record


class Entry(Record):
    """A value with all that is known of it."""

    key: str
    value: Any
    version: int
    """Hybrid-clock version, also the time of the write in microseconds; 0 for a foreign string."""
    actor: str
    created: datetime | None
    updated: datetime | None
    ttl: float | None
    """Seconds until the key expires; None when it does not."""


class Change(Record):
    """One mutation, as the change stream tells it."""

    key: str
    operation: str
    version: int
    actor: str
    at: datetime
    cursor: str
    """Pass it as `since` to go on after this change."""


class Gap(Change):
    """Stands where changes were trimmed before this watcher could read them.

    `cursor` is the last one that was read; whoever needs the lost changes reads the keys again.
    """


class Message(Record):
    """One message of a channel."""

    channel: str
    value: Any


class Missed(Message):
    """Says that messages of this channel may have been lost just before; `value` is the reason."""


class TypeUsage(Record):
    """What the keys of one Redis type use."""

    keys: int
    bytes: int


class Usage(Record):
    """What a namespace uses."""

    namespace: str
    keys: int
    bytes: int
    types: dict[str, TypeUsage]


class Powers(Record):
    """What the server in use can do; `missing` says what each absent power takes to get."""

    server: str
    """`redis`, `valkey` or `fakeredis`."""
    version: str
    mode: str
    """`standalone`, `sentinel` or `cluster`."""
    search: bool
    json_documents: bool
    graph: bool
    vector_sets: bool
    persistence: str
    """`everysec`, `always`, `no` (append-only file) or `unknown`."""
    missing: dict[str, str]


class Health(Record):
    """Whether the server answers, and how it is."""

    ok: bool
    latency_ms: float
    server: str
    version: str
    used_memory_bytes: int
    connected_clients: int
    uptime_s: int
