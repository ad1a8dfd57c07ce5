"""One suite of queues for every way to a store; and what only a clock that a test turns can show."""

from __future__ import annotations

import pytest
from conformance.coordination.queues import QueueSuite
from support.backends import OnFakeredis, ThroughTheSyncFace


class TestQueueOnFakeredis(OnFakeredis, QueueSuite):
    """Every promise, on fakeredis."""


class TestQueueOnARealServer(QueueSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestQueueThroughTheSyncFace(ThroughTheSyncFace, QueueSuite):
    """Every promise, through the sync face."""
