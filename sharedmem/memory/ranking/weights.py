"""The weights of the ranking, as measured (docs/retrieval.md describes how)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Fusion = Literal["weighted", "rrf"]


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """All weights of the ranking. A factor of 1 or a weight of 0 takes a signal out."""

    fusion: Fusion = "weighted"
    """`rrf`: by ranks alone, right where words and vectors are equally strong."""
    text: float = 0.6
    """Weight of BM25, divided by the best hit's."""
    vector: float = 0.4
    """Weight of the cosine similarity, stretched so that the hits fill 0 to 1."""
    rrf_k: int = 60
    author: float = 2.0
    """Factor for what somebody said whom the query names."""
    previous: tuple[float, ...] = (0.5, 0.25)
    """How much of its score the turn before lends, the one before that, and so on."""
    following: tuple[float, ...] = (0.4, 0.2)
    """How much the turn behind lends, and so on."""
    answer: float = 1.5
    """Factor for what a turn that asks lends to those behind it."""
    talkative: float = 80.0
    """Words at which a turn lends half, and takes half; long turns speak for themselves."""
    thread: float = 0.25
    """What a turn gains in the thread in which most was found, as a share of its score; less in other threads."""
    question: float = 0.85
    """Factor for turns that ask."""
    date: float = 1.5
    """Factor for what was said in the month or on the day that the query names."""
    recency: float = 0.0
    """What a memory of this moment gains, as a share of its score; older ones gain less."""
    half_life_s: float = 2_592_000.0
    """Age in seconds at which it gains half of that."""
    importance: dict[str, float] = field(default_factory=dict)
    """Factors by importance (`low`, `medium`, `high`, `critical`); 1 for those left out."""
