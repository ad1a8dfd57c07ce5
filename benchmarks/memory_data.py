"""The data of the benchmark of semantic memory: texts and vectors that cost nothing to create."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from sharedmem import Hub, MemoryItem, Settings
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.vectors import Vector

DIMENSION = 256
USERS = 10
QUERIES = 64
SMALL_VOCABULARY = 45
_VOCABULARY = 5_000
_WORDS = 24
_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo", "ke", "ha")


class TableEmbedder:
    """Vectors as if they were cached: looked up in a table by the text, so that only the store is measured."""

    name = "bench:table"
    dimension = DIMENSION
    is_remote = False

    def __init__(self) -> None:
        rows = np.random.default_rng(7).normal(size=(4096, DIMENSION)).astype(np.float32)
        self._rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) / np.sqrt(2)

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  # both alike
        """Return a vector for each text."""
        return Embeddings(np.stack([self.vector(text) for text in texts]), 0)

    def vector(self, text: str) -> Vector:
        """Return the sum of two rows, about orthogonal to each other: few texts share both."""
        number = crc32(text.encode())
        found: Vector = self._rows[number % 4096] + self._rows[number // 4096 % 4096]
        return found

    async def close(self) -> None:
        """Do nothing: there are no connections."""


def words() -> list[str]:
    """Return a vocabulary."""
    chosen = random.Random(3)
    return ["".join(chosen.choices(_SYLLABLES, k=chosen.randint(2, 4))) for _ in range(_VOCABULARY)]


def text_of(number: int, vocabulary: Sequence[str]) -> str:
    """Return a unique text for a number; few words are common, most are rare."""
    chosen = random.Random(number)
    chosen_words = [vocabulary[min(int(chosen.paretovariate(0.6)), _VOCABULARY) - 1] for _ in range(_WORDS)]
    return f"{' '.join(chosen_words)} n{number}"


def english_words() -> list[str]:
    """Return a vocabulary of English words, for embedders that know words: those of short statements."""
    found = set(re.findall(r"[a-z]{3,}", (Path(__file__).parent / "short_facts.jsonl").read_text().lower()))
    vocabulary = sorted(found)
    random.Random(3).shuffle(vocabulary)
    return vocabulary


def short_item(number: int, vocabulary: Sequence[str]) -> MemoryItem:
    """Return a memory of 20 words, as `item_of` does."""
    chosen = random.Random(number)
    drawn = [vocabulary[min(int(chosen.paretovariate(0.6)), len(vocabulary)) - 1] for _ in range(19)]
    return _labelled(" ".join([*drawn, f"n{number}"]), number)


def small_item(number: int, vocabulary: Sequence[str]) -> MemoryItem:
    """Return a memory of twelve of few words, each of which very many memories contain."""
    drawn = random.Random(number).choices(vocabulary[:SMALL_VOCABULARY], k=12)
    return MemoryItem(memory=f"{' '.join(drawn)} n{number}", user_id=f"user-{number % USERS}")


def item_of(number: int, vocabulary: Sequence[str]) -> MemoryItem:
    """Return a memory of one of ten users."""
    return _labelled(text_of(number, vocabulary), number)


def _labelled(text: str, number: int) -> MemoryItem:
    return MemoryItem(
        memory=text,
        user_id=f"user-{number % USERS}",
        thread_id=f"thread-{number % 100}",
        category="note",
        tags=("bench",),
    )


def queries(vocabulary: Sequence[str]) -> list[str]:
    """Return questions of a few words each."""
    chosen = random.Random(11)
    return [" ".join(chosen.choices(vocabulary[:800], k=8)) for _ in range(QUERIES)]


def settings_of(url: str, size: int) -> Settings:
    """Return the settings of every side of a contest; the kind of index does not change while it is measured."""
    hnsw_above = 20_000 if size > 40_000 else 1_000_000
    return Settings(redis_url=url, durable_url="none", hnsw_above=hnsw_above)


async def fill(url: str, namespace: str, count: int) -> None:
    """Put memories into a namespace, which gets the index that fits its size."""
    vocabulary = words()
    async with Hub.open(settings=settings_of(url, count), embedder=TableEmbedder()) as hub:
        memory = hub.store(namespace).memory
        for first in range(0, count, 5_000):
            numbers = range(first, min(first + 5_000, count))
            await memory.add_many([item_of(number, vocabulary) for number in numbers], dedup=False)
        if count > hub.settings.promote_above:
            await hub.index.promote(namespace)
