"""Adapters: other frameworks' interfaces of memory, on sharedmem. Each is a package of its own with an extra of its name."""
