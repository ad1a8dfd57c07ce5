"""Reading memories, on both indexes; what expires."""

from __future__ import annotations

from conformance.memory import MemoryReadTests
from support.backends import OnFakeredis


class TestReadingOnFakeredis(OnFakeredis, MemoryReadTests):
    """Every promise, on fakeredis."""


class TestReadingOnARealServer(MemoryReadTests):
    """Every promise, on a real server."""
