"""Other memory stores with the same turns, questions and embedder: LangGraph's store, which finds by vectors alone.

Each conversation is a namespace of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.memory import InMemoryStore
from retrieval_data import Conversations, Question

from sharedmem import Settings
from sharedmem.clock import SystemClock
from sharedmem.providers.factory import open_embedder
from sharedmem.providers.protocol import Embedder, Purpose
from sharedmem.runtime import Counters

T = TypeVar("T")

Found = list[tuple[Question, list[str]]]
"""Each question with the ids that were found, best first."""


class SharedEmbedder(Embeddings):
    """The embedder of a run in the form that the store takes."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._runner = asyncio.Runner()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts that are stored."""
        return self._run(self._vectors(texts, "document"))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self._run(self._vectors([text], "query"))[0]

    async def _vectors(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        rows: list[list[float]] = (await self._embedder.embed(texts, purpose=purpose)).vectors.tolist()
        return rows

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


def langgraph_answers(data: Conversations, embedder: Embedder, limit: int) -> Found:
    """Return what LangGraph's store finds."""
    index: Any = {"dims": embedder.dimension, "embed": SharedEmbedder(embedder), "fields": ["text"]}
    store = InMemoryStore(index=index)
    for group, turns in data.turns.items():
        for turn in turns:
            store.put((group,), turn.id, {"text": turn.text})
    found = []
    for question in data.questions:
        items = store.search((question.group,), query=question.text, limit=limit)
        found.append((question, [item.key for item in items]))
    return found


RIVALS: dict[str, Callable[[Conversations, Embedder, int], Found]] = {"LangGraph's store": langgraph_answers}


def rival_answers(name: str, data: Conversations, embedder: str, limit: int) -> Found:
    """Return what a store finds with an embedder, as settings name it.

    Raises:
        ValueError: the name stands for no embedder.
    """
    opened = open_embedder(Settings(embedder=embedder), SystemClock(), Counters())
    if opened is None:
        raise ValueError(f"{embedder} makes no vectors")
    return RIVALS[name](data, opened, limit)
