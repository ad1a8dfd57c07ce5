"""LangGraph on sharedmem: a checkpointer (`SharedMemSaver`). Needs the extra `langgraph`.

Nothing here needs a search module of the server.
"""

from __future__ import annotations

from importlib.util import find_spec

from sharedmem.errors import UnsupportedError

if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
    raise UnsupportedError("LangGraph", "pip install 'sharedmem-hub[langgraph]'")

from sharedmem.integrations.langgraph.saver import SharedMemSaver

__all__ = ["SharedMemSaver"]
