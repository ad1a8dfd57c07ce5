"""Threads of memory and memories on the move, on both indexes."""

from __future__ import annotations

from conformance.memory import MemoryThreadTests, MemoryTransferTests
from support.backends import OnFakeredis


class TestThreadsOnFakeredis(OnFakeredis, MemoryThreadTests):
    """Every promise, on fakeredis."""


class TestThreadsOnARealServer(MemoryThreadTests):
    """Every promise, on a real server."""


class TestMovingOnFakeredis(OnFakeredis, MemoryTransferTests):
    """Every promise, on fakeredis."""


class TestMovingOnARealServer(MemoryTransferTests):
    """Every promise, on a real server."""
