"""Knowledge graphs in Redis itself: hashes that are indexed for search, and sorted sets beside them."""

from sharedmem.graph.backends.redis.backend import RedisBackend

__all__ = ["RedisBackend"]
