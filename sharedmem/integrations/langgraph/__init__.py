"""LangGraph on sharedmem: a checkpointer, a long-term store, a cache of nodes. Needs the extra `langgraph`.

Nothing here needs a search module of the server.
"""

from __future__ import annotations

from sharedmem.errors import UnsupportedError

try:
    import langgraph.checkpoint.base  # noqa: F401  # other distributions fill the package `langgraph`, too
except ModuleNotFoundError as error:
    raise UnsupportedError("LangGraph", "pip install 'sharedmem-hub[langgraph]'") from error

from sharedmem.integrations.langgraph.cache import SharedMemCache
from sharedmem.integrations.langgraph.saver import SharedMemSaver
from sharedmem.integrations.langgraph.store import SharedMemStore

__all__ = ["SharedMemCache", "SharedMemSaver", "SharedMemStore"]
