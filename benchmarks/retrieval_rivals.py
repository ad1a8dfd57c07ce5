"""Other memory stores with the same turns, questions and embedder: LangGraph's store, and mem0 where it is installed.

pip install mem0ai    for mem0, which stores each turn as it is (`infer=False`), so that no language model takes part

Both find by vectors alone. Each conversation is a namespace of LangGraph's store, and a user of mem0.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from importlib.util import find_spec
from pathlib import Path
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
LANGGRAPH, MEM0 = "LangGraph's store", "mem0"

Found = list[tuple[Question, list[str]]]
"""Each question with the ids that were found, best first."""


class SharedEmbedder(Embeddings):
    """The embedder of a run in the form that both stores take."""

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


def mem0_answers(data: Conversations, embedder: Embedder, limit: int) -> Found:
    """Return what mem0 finds, with vectors in Qdrant within this process."""
    os.environ["MEM0_TELEMETRY"] = "False"
    from mem0 import Memory  # noqa: PLC0415  often not installed

    with tempfile.TemporaryDirectory(prefix="sm-mem0-") as folder:
        store = Path(folder)
        memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {"path": str(store / "vectors"), "embedding_model_dims": embedder.dimension},
                },
                "embedder": {"provider": "langchain", "config": {"model": SharedEmbedder(embedder)}},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": str(store / "history.db"),
            }
        )
        for group, turns in data.turns.items():
            for turn in turns:
                memory.add(turn.text, user_id=group, metadata={"turn": turn.id}, infer=False)
        found = []
        for question in data.questions:
            hits = memory.search(question.text, filters={"user_id": question.group}, top_k=limit)["results"]
            found.append((question, [hit["metadata"]["turn"] for hit in hits]))
        return found


RIVALS: dict[str, Callable[[Conversations, Embedder, int], Found]] = {LANGGRAPH: langgraph_answers}
"""The stores that are installed."""
if find_spec("mem0") is not None:
    RIVALS[MEM0] = mem0_answers


def rival_answers(name: str, data: Conversations, embedder: str, limit: int) -> Found:
    """Return what a store finds with an embedder, as settings name it.

    Raises:
        ValueError: the name stands for no embedder.
    """
    opened = open_embedder(Settings(embedder=embedder), SystemClock(), Counters())
    if opened is None:
        raise ValueError(f"{embedder} makes no vectors")
    return RIVALS[name](data, opened, limit)
