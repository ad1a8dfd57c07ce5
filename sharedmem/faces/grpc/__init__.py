"""The gRPC face: a server that shares decisions, episodes, messages and changes with agents in any language.

`sharedmem serve grpc` starts it; `MemoryClient` is the same memory from the other end, for agents in Python.

Raises (when imported):
    UnsupportedError: grpc is not installed.
"""

from sharedmem.errors import UnsupportedError

try:
    import grpc_health.v1.health  # noqa: F401  # the door: each of the two is a package of its own, and brings grpc
    import grpc_reflection.v1alpha.reflection  # noqa: F401  # likewise
except ImportError as error:
    raise UnsupportedError("the gRPC face", "pip install 'sharedmem-hub[grpc]'") from error

from sharedmem.faces.grpc.client import MemoryClient
from sharedmem.faces.grpc.server import GrpcAddress, MemoryServer

__all__ = ["GrpcAddress", "MemoryClient", "MemoryServer"]
