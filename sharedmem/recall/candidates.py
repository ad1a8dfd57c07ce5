"""What the parts of a store found for a question, and how much each has to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from sharedmem.models.memory import StandingKind
from sharedmem.models.recall import RecallSource
from sharedmem.providers.thresholds import EmbedderThresholds
from sharedmem.text.analysis import document_terms, query_terms
from sharedmem.text.attributes import asked_by, best_match
from sharedmem.text.sentences import sentence_spans

RELATED = 0.38
"""Least evidence of the best record for an answer at all."""
_TOUCHING = 0.12
"""Least evidence of any record of an answer."""
_NAMED = 0.3
"""What it counts that a record of the graph is about an entity that the question names."""
_FITTING = 0.4
"""What it counts that a record is about what a question about a person asks for: alone enough for an answer."""
_WINDOW = 3
"""Consecutive sentences in which words of a question count together."""
_FLATTENING = 10
"""How little the first places of a part stand out: lower than between searches for the same records."""


class Sentence(NamedTuple):
    """A sentence of a text."""

    text: str
    terms: frozenset[str]
    """Its significant words, as stems."""


@dataclass(frozen=True)
class Candidate:
    """A record that a part of the store has found."""

    source: RecallSource
    id: str
    text: str
    place: int
    """Rank among the records of its part, from 0."""
    at: datetime | None = None
    until: datetime | None = None
    author: str | None = None
    """The speaker, or else the actor that wrote it."""
    spoken: bool = False
    """Whether the author is the speaker: then the name counts as part of the text."""
    similarity: float | None = None
    """Cosine similarity to the question; None if it was not computed."""
    named: bool = False
    """Whether the question names an entity that it is about."""
    beside: bool = False
    """Whether it was found as a neighbour of what answers."""
    asked: bool = False
    """Whether the caller has asked for this very record."""
    standing: StandingKind | None = None
    """Whether it is a standing instruction or preference of the user who asks."""

    @property
    def name(self) -> str:
        """Source and id, as in the text."""
        return f"{self.source} {self.id}"

    @cached_property
    def plain_text(self) -> str:
        """Its text with single blanks, in small letters, without the full stop."""
        return " ".join(self.text.split()).casefold().rstrip(".")

    @cached_property
    def sentences(self) -> list[Sentence]:
        """Its sentences."""
        spans = sentence_spans(self.text)
        pieces = (self.text[begin:end].strip() for begin, end in spans)
        return [Sentence(piece, frozenset(document_terms(piece))) for piece in pieces if piece]

    @cached_property
    def terms(self) -> frozenset[str]:
        """Its significant words, as stems."""
        return frozenset[str]().union(*(sentence.terms for sentence in self.sentences))

    def most_in_common(self, terms: frozenset[str]) -> int:
        """Return how many of these words it has within a few sentences: a long text has any word somewhere."""
        speaker = document_terms(self.author) if self.author and self.spoken else ()
        found = [terms.intersection(sentence.terms) for sentence in self.sentences]
        windows = (found[at : at + _WINDOW] for at in range(max(len(found) - _WINDOW, 0) + 1))
        return max((len(terms.intersection(speaker).union(*window)) for window in windows), default=0)


class RatedCandidate(NamedTuple):
    """A candidate, how much it has to do with the question, and its place among those of all parts."""

    candidate: Candidate
    evidence: float
    score: float


def rate(
    question: str, parts: Sequence[Sequence[Candidate]], scale: EmbedderThresholds, *, least: float
) -> list[RatedCandidate]:
    """Return the candidates of all parts that have to do with the question, best first.

    The order within a part stays: each part has ranked its records by more than can be seen here. Parts are interleaved
    by reciprocal ranks, with more weight for a part whose best record has more to do with the question.

    Args:
        question: the question.
        parts: the records of each part, best first.
        scale: what similarities of the embedder mean.
        least: least evidence of the best record; without it nothing is returned but what the caller has asked for.
    """
    terms = frozenset(query_terms(question))
    rated = []
    best = 0.0
    for part in parts:
        evidence = [_evidence(question, terms, candidate, scale) for candidate in part]
        strongest = max(evidence, default=0.0)
        best = max(best, strongest)
        weight = 0.5 + 0.5 * min(strongest, 1.0)
        rated += [
            RatedCandidate(candidate, found, weight * (_FLATTENING + 1) / (_FLATTENING + 1 + candidate.place))
            for candidate, found in zip(part, evidence, strict=True)
        ]
    touching = min(_TOUCHING, least)
    kept = [
        one
        for one in rated
        if one.candidate.asked or (best >= least and (one.candidate.beside or one.evidence >= touching))
    ]
    # What was asked for has room before all others.
    return sorted(kept, key=lambda one: (not one.candidate.asked, -one.score, one.candidate.source, one.candidate.id))


def _evidence(question: str, terms: frozenset[str], candidate: Candidate, scale: EmbedderThresholds) -> float:
    share = candidate.most_in_common(terms) / len(terms) if terms else 0.0
    fit = 0.0
    if asked_by(question).is_personal:
        fit = _FITTING * best_match(question, candidate.text, speaker=candidate.author or "")
    similar = 0.0 if candidate.similarity is None else scale.slope * max(candidate.similarity - scale.noise, 0.0)
    return share + similar + fit + _NAMED * candidate.named
