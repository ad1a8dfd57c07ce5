"""The hub: a connection to a server, and the only place where the parts are assembled."""

from sharedmem.hub.composition import LAYOUT_VERSION, Connect, Connection
from sharedmem.hub.hub import Hub

__all__ = ["LAYOUT_VERSION", "Connect", "Connection", "Hub"]
