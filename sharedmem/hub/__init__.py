"""The hub: a connection, and the only place where parts are put together."""

from sharedmem.hub.composition import LAYOUT_VERSION, Connect, Connection
from sharedmem.hub.hub import Hub

__all__ = ["LAYOUT_VERSION", "Connect", "Connection", "Hub"]
