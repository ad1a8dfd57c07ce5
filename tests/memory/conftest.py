"""What the tests of memory share."""

from __future__ import annotations

import pytest

from sharedmem import Hub
from sharedmem.memory.memories import Memories


@pytest.fixture
def memory(hub: Hub, namespace: str) -> Memories:
    """The memory of an actor in the test's namespace."""
    return hub.store(namespace, actor="ann").memory
