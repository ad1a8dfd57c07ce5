"""Questions about conversations with all that a ranking reads, computed in this process without a server.

It finds what the exact index finds: BM25 of the same terms, cosine similarity of the same vectors in half precision,
100 hits each, and the turns around them. Vectors are kept in a folder, since a sentence model takes minutes for them.
Beside its own questions each conversation is asked questions that it cannot answer: of other conversations, of other
sets, and about general knowledge. They show which scores mean nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from retrieval_data import UNANSWERABLE, Conversations, Question, Turn

from sharedmem import Settings
from sharedmem.clock import SystemClock
from sharedmem.memory.ranking import NeighbourTurns, remove_speakers
from sharedmem.memory.serialization import RankingFeatures, indexed_text, ranking_features
from sharedmem.providers.factory import open_embedder
from sharedmem.providers.protocol import Purpose
from sharedmem.runtime import Counters
from sharedmem.search.protocol import IndexHit, IndexResult
from sharedmem.search.scoring import inverse_document_frequency, term_score
from sharedmem.text.analysis import document_terms, query_terms

CANDIDATES = 100
"""Hits of each search, as the setting `search_candidates` has it."""
_AROUND = 2
"""Turns on either side that a hit adds to; as many as the weights have shares."""
_FOREIGN = 8
_BATCH = 64
SEED = 7
GENERAL = (
    "What is the boiling point of tungsten?",
    "How do I configure a VLAN trunk on a switch?",
    "Who won the 1954 football world cup?",
    "asdf qwer zxcv",
    "What is the airspeed of an unladen swallow?",
    "Which enzyme unwinds the DNA helix?",
    "How many moons does Neptune have?",
    "Explain the Treaty of Westphalia.",
    "What is the syntax of a Haskell monad transformer?",
    "Which pharaoh built the great pyramid?",
    "When was the Byzantine empire conquered?",
    "derivative of the arctangent",
)
"""Questions that no conversation answers."""


class LabQuestion(NamedTuple):
    """A question to one conversation, with what an index finds for it."""

    data: str
    group: str
    kind: str
    """`own`, or where a question that the conversation cannot answer comes from: `set`, `conversation`, `general`."""
    category: str
    text: str
    terms: tuple[str, ...]
    relevant: frozenset[str]
    found: IndexResult
    neighbours: NeighbourTurns


class Lab(NamedTuple):
    """All questions for one embedder."""

    embedder: str
    questions: list[LabQuestion]
    turns: Mapping[str, Turn]


class VectorFolder:
    """Vectors of an embedder, kept in a folder between runs.

    Args:
        name: the embedder, as settings name it.
        folder: where the vectors are kept.
    """

    def __init__(self, name: str, folder: Path) -> None:
        opened = open_embedder(Settings(embedder=name), SystemClock(), Counters())
        if opened is None:
            raise ValueError(f"{name} makes no vectors")
        self.embedder = opened
        self._folder = folder / sha256(opened.name.encode()).hexdigest()[:12]

    def of(self, texts: Sequence[str], purpose: Purpose = "document") -> NDArray[np.float32]:
        """Return the vectors of some texts as searches compare them."""
        digest = sha256("\0".join([purpose, *texts]).encode(errors="replace")).hexdigest()
        file = self._folder / f"{digest[:24]}.npy"
        if not file.is_file():
            batches = [texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH)]
            made = [asyncio.run(self.embedder.embed(batch, purpose=purpose)).vectors for batch in batches]
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, np.concatenate(made).astype(np.float16))
        kept: NDArray[np.float32] = np.load(file).astype(np.float32)
        return kept


class _Conversation:
    """One conversation, indexed."""

    def __init__(self, turns: Sequence[Turn], vectors: NDArray[np.float32]) -> None:
        items = [turn.as_turn() for turn in turns]
        self.vectors = vectors
        self.ids = [item.id for item in items]
        self.features = [ranking_features(item, turn.position) for item, turn in zip(items, turns, strict=True)]
        self.facts = [features.encoded() for features in self.features]
        self.authors = sorted({turn.speaker for turn in turns})
        self.places = {(one.thread, one.position): at for at, one in enumerate(self.features)}
        documents = [Counter(document_terms(indexed_text(item))) for item in items]
        self.lengths = np.array([document.total() for document in documents], dtype=np.float64)
        self.postings: dict[str, list[tuple[int, int]]] = {}
        for at, document in enumerate(documents):
            for term, count in document.items():
                self.postings.setdefault(term, []).append((at, count))

    def by_words(self, terms: Sequence[str], within: frozenset[str] | None) -> list[IndexHit]:
        """Return the hits by words."""
        scores = np.zeros(len(self.ids))
        for term in terms:
            posting = self.postings.get(term)
            if posting:
                holders, counts = np.array([at for at, _ in posting]), np.array([float(count) for _, count in posting])
                rarity = inverse_document_frequency(len(self.ids), len(holders))
                scores[holders] += rarity * term_score(counts, self.lengths[holders], float(self.lengths.mean()))
        return self._best(scores, scores > 0, within)

    def by_meaning(self, vector: NDArray[np.float32], within: frozenset[str] | None) -> list[IndexHit]:
        """Return the hits by meaning."""
        if not vector.any():
            return []
        scores = (self.vectors @ vector).astype(np.float64)
        return self._best(scores, np.asarray(self.vectors.any(axis=1)), within)

    def around(self, found: IndexResult) -> dict[tuple[str, int], list[tuple[str, RankingFeatures]]]:
        """Return the turns around the hits."""
        at = {id_: place for place, id_ in enumerate(self.ids)}
        centres = {at[hit.id] for hits in (found.text, found.vector) for hit in hits}
        near: dict[tuple[str, int], list[tuple[str, RankingFeatures]]] = {}
        for centre in sorted(centres):
            thread, position = self.features[centre].thread, self.features[centre].position
            for turn in ((thread, position + step) for step in range(-_AROUND, _AROUND + 1)):
                if turn not in near and (place := self.places.get(turn)) is not None:
                    near[turn] = [(self.ids[place], self.features[place])]
        return near

    def _best(
        self, scores: NDArray[np.float64], matches: NDArray[np.bool_], within: frozenset[str] | None
    ) -> list[IndexHit]:
        places = [at for at in np.flatnonzero(matches) if within is None or self.features[at].thread in within]
        places.sort(key=lambda at: (-scores[at], self.ids[at]))
        return [IndexHit(self.ids[at], float(scores[at]), self.facts[at]) for at in places[:CANDIDATES]]


def prepare(sets: Sequence[Conversations], vectors: VectorFolder, *, small: bool = True) -> Lab:
    """Return the questions of all sets, and what is found for each.

    Args:
        sets: conversations and questions.
        vectors: the embedder.
        small: whether each question is asked a second time of one thread alone, as of a namespace with few memories.
    """
    chance = random.Random(SEED)
    prepared: list[LabQuestion] = []
    for data in sets:
        for group, turns in data.turns.items():
            conversation = _Conversation(turns, vectors.of([turn.text for turn in turns]))
            asked = list(_asked(data, group, sets, chance))
            bare = [remove_speakers(question.text, conversation.authors) for _, question, _ in asked]
            embedded = vectors.of(bare, "query")
            sessions = {turn.id: turn.session for turn in turns}
            for (kind, question, relevant), vector in zip(asked, embedded, strict=True):
                threads = sorted({sessions[id_] for id_ in relevant}) or [chance.choice(turns).session]
                for within in (None, frozenset(threads[:1])) if small else (None,):
                    one = _found(data.name, group, conversation, question, vector, within)
                    kept = frozenset(id_ for id_ in relevant if within is None or sessions[id_] in within)
                    prepared.append(one._replace(kind=kind if within is None else f"{kind}, small", relevant=kept))
    return Lab(
        vectors.embedder.name,
        prepared,
        {turn.id: turn for data in sets for turns in data.turns.values() for turn in turns},
    )


def _found(
    data: str,
    group: str,
    conversation: _Conversation,
    question: Question,
    vector: NDArray[np.float32],
    within: frozenset[str] | None,
) -> LabQuestion:
    terms = query_terms(question.text)
    found = IndexResult(conversation.by_words(terms, within), conversation.by_meaning(vector, within), 0, 0)
    around = conversation.around(found)
    near = {turn: held for turn, held in around.items() if within is None or turn[0] in within}
    return LabQuestion(data, group, "", question.category, question.text, terms, frozenset(), found, near)


def _asked(
    data: Conversations, group: str, sets: Sequence[Conversations], chance: random.Random
) -> Iterator[tuple[str, Question, frozenset[str]]]:
    """Yield each question to a conversation: where it comes from, and what answers it."""
    nothing = frozenset[str]()
    for question in data.questions:
        if question.group == group and question.category != UNANSWERABLE:
            yield "own", question, question.relevant
    for other in sets:
        if other.name != data.name:
            for question in chance.sample(other.questions, _FOREIGN):
                yield "set", question, nothing
    rest = [question for question in data.questions if question.group != group]
    for question in chance.sample(rest, min(_FOREIGN, len(rest))):
        yield "conversation", question, nothing
    for text in GENERAL:
        yield "general", Question("", group, "general", text, nothing), nothing
