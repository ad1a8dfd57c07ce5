"""The semantic cache: what was answered before is not paid for twice."""

from sharedmem.cache.entries import cache_family
from sharedmem.cache.semantic_cache import SemanticCache

__all__ = ["SemanticCache", "cache_family"]
