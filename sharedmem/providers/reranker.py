"""Rerankers of Cohere and Jina over HTTP, and of services that have the API of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from sharedmem.providers.http_client import GarbledError, Json, ModelHttpClient
from sharedmem.runtime import Counters

_LONGEST_TEXT = 16_000
"""Characters of a text that are sent: about the 4,096 tokens that Cohere reads of each text."""
_COHERE = "cohere"


class _Judgement(NamedTuple):
    scores: list[float]
    tokens: int
    units: int
    """What Cohere charges for: one for a query with up to a hundred texts."""


class HttpReranker:
    """Scores over HTTP; one request for all texts.

    Args:
        service: client of the service.
        counters: count `rerank_tokens` and `rerank_search_units` by model, as far as the service reports them.
    """

    def __init__(self, service: ModelHttpClient, *, counters: Counters) -> None:
        self._service = service
        self._counters = counters

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._service.endpoint.name

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score texts, see `Reranker.score`."""
        if not texts:
            return []
        judged = await self._service.ask(self._body(query, texts), lambda answer: _read(answer, len(texts)))
        self._counters.add("rerank_tokens", judged.tokens, model=self.name)
        self._counters.add("rerank_search_units", judged.units, model=self.name)
        return judged.scores

    async def close(self) -> None:
        """Close connections; may be called again."""
        await self._service.close()

    def _body(self, query: str, texts: Sequence[str]) -> Json:
        endpoint = self._service.endpoint
        body: dict[str, object] = {
            "model": endpoint.model,
            "query": query,
            "documents": [text[:_LONGEST_TEXT] for text in texts],
            "top_n": len(texts),
        }
        # Cohere has no such field: it never returns the texts.
        return body if endpoint.provider == _COHERE else {**body, "return_documents": False}

    def __repr__(self) -> str:
        return f"<HttpReranker {self.name} at {self._service.endpoint.host}>"


def _read(answer: object, count: int) -> _Judgement:
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(results, list):
        raise GarbledError("it has no list `results`")
    scores: dict[int, float] = {}
    for result in results:
        found = _mapping(result)
        index, score = found.get("index"), found.get("relevance_score")
        if not isinstance(index, int) or not isinstance(score, int | float) or not isfinite(score):
            raise GarbledError("a result has no `index` or no finite `relevance_score`")
        scores[index] = float(score)
    if scores.keys() != set(range(count)):
        raise GarbledError(f"it has scores for {len(scores)} of {count} texts")
    usage, meta = _mapping(answer.get("usage")), _mapping(answer.get("meta"))
    billed, tokens = _mapping(meta.get("billed_units")), _mapping(meta.get("tokens"))
    return _Judgement(
        scores=[scores[index] for index in range(count)],
        tokens=_count(usage.get("total_tokens")) or _count(tokens.get("input_tokens")),
        units=_count(billed.get("search_units")),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and isfinite(value) and value > 0 else 0
