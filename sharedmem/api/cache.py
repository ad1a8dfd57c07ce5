"""Operations of the semantic cache: look up, store and invalidate replies of a model."""

from __future__ import annotations

from sharedmem.api.operation import Facet
from sharedmem.cache.semantic_cache import SemanticCache

_cache = Facet("cache", lambda store, _: store.cache)

_cache.operation("cache.check", SemanticCache.check, "POST /cache/check", needs="read", answer="hit")
_cache.operation("cache.put", SemanticCache.put, "POST /cache", created=201, answer="id")
_cache.operation(
    "cache.delete",
    SemanticCache.delete,
    "POST /cache/delete",
    answer="deleted",
    bulk=True,
    formerly=["cache.invalidate", "POST /cache/invalidate"],
)
_cache.operation("cache.clear", SemanticCache.clear, "DELETE /cache", answer="deleted", bulk=True)
_cache.operation(
    "cache.report",
    SemanticCache.report_false_hit,
    "POST /cache/answers/{id}/report",
    needs="read",
    names={"id_": "id"},
    gives=None,
)
_cache.operation("cache.list", SemanticCache.list, "GET /cache")
_cache.operation("cache.stats", SemanticCache.stats, "GET /cache/stats")

FACETS = (_cache,)
