"""The semantic cache: stored answers, returned for the same prompt or one that means the same."""

from sharedmem.cache.repository import CACHE_RECORDS
from sharedmem.cache.semantic_cache import SemanticCache

__all__ = ["CACHE_RECORDS", "SemanticCache"]
