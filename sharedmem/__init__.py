"""Shared memory and coordination for teams of AI agents, on Redis."""

from sharedmem.config import Kind, Settings
from sharedmem.errors import (
    AccessDeniedError,
    ConfigError,
    ConflictError,
    InternalError,
    InvalidError,
    LimitedError,
    NotFoundError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
    VersionConflictError,
    WrongTypeError,
)
from sharedmem.hub import Hub
from sharedmem.models import Change, Entry, Gap, Health, Message, Missed, Powers, TypeUsage, Usage
from sharedmem.store import SharedMemoryStore
from sharedmem.wire.access import Grant

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedError",
    "Change",
    "ConfigError",
    "ConflictError",
    "Entry",
    "Gap",
    "Grant",
    "Health",
    "Hub",
    "InternalError",
    "InvalidError",
    "Kind",
    "LimitedError",
    "Message",
    "Missed",
    "NotFoundError",
    "Powers",
    "Settings",
    "SharedMemoryError",
    "SharedMemoryStore",
    "TypeUsage",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
    "VersionConflictError",
    "WrongTypeError",
]
