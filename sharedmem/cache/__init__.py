"""The semantic cache: what was answered before is not paid for twice."""

from sharedmem.cache.repository import CACHE_RECORDS
from sharedmem.cache.semantic_cache import SemanticCache

__all__ = ["CACHE_RECORDS", "SemanticCache"]
