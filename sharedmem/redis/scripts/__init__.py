"""Loading, sending and typed callers of the Lua scripts."""
