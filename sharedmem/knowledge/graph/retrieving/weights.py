"""How much each signal weighs in the context for a question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal adds to a score at most; 0 takes it out."""

    words: float = 0.6
    """First place by BM25. More than meaning, as measured for memories (docs/retrieval.md): names and ids decide."""
    meaning: float = 0.4
    """First place by cosine similarity."""
    rrf_k: int = 10
    """Of the reciprocal ranks. With the usual 60, meant for lists of a thousand, the last of 50 hits keeps more than
    half of what the first has, and what stands in both lists anywhere beats the best of either."""
    near: float = 0.4
    """A fact that touches an entity which the question names; half of it or less one step away. As much as the best
    meaning: twice that, and all facts of an entity come before the one episode that answers."""
    answer: float = 0.6
    """A fact that touches such an entity in the very relation that the question asks for. As much as the best words,
    as the words of a relation (`lives_in`) rarely stand in the text of an episode."""
    mention: float = 0.3
    """An episode that mentions every entity which the question names; less for some of them. Below `near`, as a fact
    says more of them in fewer words."""
    stranger: float = 0.8
    """Share of words and meaning that is lost by what has nothing to do with those whom the question names: it mostly
    has a part of their names in common with them. With less, what lies two steps away drowns in namesakes."""
    fresh: float = 0.1
    """What has just begun or happened; it decides among equals."""
    recent: float = 0.2
    """An episode of just now, told in its own words."""
    distant: float = 0.2
    """A summary of what is long past; with `recent` it lets summaries win where raw episodes have faded."""
    half_life_s: float = 30 * 86_400.0
    """Age at which what is fresh and recent has lost half; from there on a summary stands for what it sums up."""
