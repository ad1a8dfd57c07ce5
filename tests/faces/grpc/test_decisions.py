"""The decision log through gRPC: the suite of the library, sent over a wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from conformance.decisions import DecisionSuite
from support.backends import OnFakeredis

from sharedmem import Hub
from sharedmem.clock import new_id
from sharedmem.decisions.decisions import Decisions
from sharedmem.faces.auth import Bearer
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer


class _OverTheWire(DecisionSuite):
    @pytest.fixture
    async def decisions(self, hub: Hub) -> AsyncIterator[Decisions]:
        namespace = f"suite-{new_id(8)}"
        everyone = Bearer(namespace=namespace, actor="ada")
        async with (
            MemoryServer(hub, GrpcAddress(port=0), everyone=everyone, grace_s=1) as server,
            MemoryClient(server.target) as memory,
        ):
            yield cast("Decisions", memory.decisions)
        await hub.store(namespace).clear()


@pytest.mark.nightly
class TestDecisionsThroughGrpcOnFakeredis(OnFakeredis, _OverTheWire):
    """Every promise, on fakeredis."""


class TestDecisionsThroughGrpc(_OverTheWire):
    pass
