"""Knowledge graphs in the FalkorDB module of the server (extra `falkordb`)."""

from sharedmem.graph.backends.falkordb.backend import FalkorBackend

__all__ = ["FalkorBackend"]
