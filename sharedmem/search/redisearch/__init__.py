"""The index of servers with a query engine: RediSearch, as in Redis 8 and Redis Stack."""

from sharedmem.search.redisearch.index import RediSearchIndex

__all__ = ["RediSearchIndex"]
