"""The tools, by profile: each is a function over operations of the table."""

from sharedmem.faces.mcp.tools import context, coordination, graph, memory, notes, reference

TOOLS = (*memory.TOOLS, *coordination.TOOLS, *graph.TOOLS, *notes.TOOLS, *context.TOOLS, *reference.TOOLS)
"""All tools, with what clients may know of them."""

__all__ = ["TOOLS"]
