"""Adapters: other frameworks' interfaces of memory, on sharedmem, one package a framework."""
