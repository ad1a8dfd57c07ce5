"""Search in this process, over a mirror of a namespace's records."""

from sharedmem.search.exact.index import ExactIndex

__all__ = ["ExactIndex"]
