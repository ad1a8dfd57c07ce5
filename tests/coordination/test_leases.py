"""One suite for leases everywhere, and what only the async face and a turned clock can show."""

from __future__ import annotations

import pytest
from conformance.coordination.leases import LeaseSuite
from support.backends import OnFakeredis, ThroughTheSyncFace


class TestLeasesOnFakeredis(OnFakeredis, LeaseSuite):
    """Every promise, on fakeredis."""


class TestLeasesOnRedis(LeaseSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestLeasesThroughTheSyncFace(ThroughTheSyncFace, LeaseSuite):
    """Every promise, through the sync face."""
