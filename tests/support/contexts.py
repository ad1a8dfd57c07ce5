"""The services behind a hub, for tests that look at the server or build one part on its own."""

from __future__ import annotations

from sharedmem import Hub
from sharedmem.knowledge_context import KnowledgeContext


def knowledge_of(hub: Hub) -> KnowledgeContext:
    """The context of a hub's memory, cache, graphs and synthesis."""
    return hub._knowledge_context()
