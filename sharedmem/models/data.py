"""Results of calls on shared data: entries, changes, messages, usage, capabilities, health."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.models.record import Record


class Entry(Record):
    """A value with its version, actor, times and ttl."""

    key: str
    value: Any
    version: int
    """Hybrid-clock version, also the time of the write in microseconds; 0 for a foreign string."""
    actor: str
    created: datetime | None
    updated: datetime | None
    ttl: float | None
    """Seconds until the key expires; None if it never expires."""


class Change(Record):
    """One mutation, as an entry of the change feed."""

    key: str
    operation: str
    version: int
    actor: str
    at: datetime
    cursor: str
    """Cursor behind this change: pass it as `since` to continue there."""


class Gap(Change):
    """An entry in place of changes that were trimmed before this watcher read them.

    `cursor` is the last one that was read; a watcher that needs the lost changes must read the keys again.
    """


class Message(Record):
    """One message of a channel."""

    channel: str
    value: Any


class Missed(Message):
    """A notice that messages of this channel may have been lost just before; `value` is the reason."""


class KeyInfo(Record):
    """A key as a listing shows it, without its content."""

    key: str
    type: str
    """Type in Redis: `string` (values and counters), `list`, `hash`, `set`, or what another client has made."""
    ttl: float | None
    """Seconds until it expires; None: never."""
    bytes: int
    """Size in Redis; of a value in the blob store that of its record."""


class KeyPage(Record):
    """Keys of a namespace, in no order."""

    keys: list[KeyInfo]
    cursor: str | None
    """Where the next page begins; None after the last."""


class TypeUsage(Record):
    """Number and size of the keys of one Redis type."""

    keys: int
    bytes: int


class Usage(Record):
    """Number and size of the keys of a namespace."""

    namespace: str
    keys: int
    bytes: int
    types: dict[str, TypeUsage]


class Powers(Record):
    """Features of the server in use; `missing` says how to get each missing feature."""

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
    """Whether the server answers, and its state."""

    ok: bool
    latency_ms: float
    server: str
    version: str
    used_memory_bytes: int
    connected_clients: int
    uptime_s: int
