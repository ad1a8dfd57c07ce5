"""The semantic cache: what was answered before is not paid for twice."""

from sharedmem.knowledge.cache.questions import cache_family
from sharedmem.knowledge.cache.semantic import SemanticCache

__all__ = ["SemanticCache", "cache_family"]
