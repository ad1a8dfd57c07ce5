"""How likely a hit is relevant: the calibrated probability that a search returns as `Hit.score`.

A rank value says which of two hits of one search is better, and nothing about whether any of them answers the query. A
logistic model turns it into a probability. The model reads few numbers, which mean the same in a small and in a large
namespace:

`share`     natural logarithm of the hit's rank value divided by the best one's
`place`     1 divided by the place of the hit
`lead`      how far the best rank value is above the tenth, as a share of the best
`length`    natural logarithm of the number of significant words in the query
`words`     most of these words that one of the first three hits contains, as a share
`cosine`    the highest cosine similarity to the query
`both`      `words` times `cosine`

Only `share` and `place` differ between the hits of a search, so the probability never rises along the order of ranks.
Coefficients are measured by `benchmarks/learn_ranking.py` for each embedder and mode, and kept in `learned.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sharedmem.memory.ranking import RankingWeights

RelevanceModel = Literal["hybrid", "semantic", "similar", "words", "keywords"]
"""Which search the coefficients are for: `similar` has no query, and `words` is a hybrid search without a vector."""
Coefficients = Mapping[str, float]
WEIGHTS = "weights"
"""The part of a table with the weights of the ranking."""
OTHER = "other"
"""The table of embedders that were not measured: it does not read cosine similarities."""
WITHOUT_EMBEDDER = "none"
FIRST_HITS = 3
"""Best hits whose texts are compared with the words of the query."""
_TENTH = 9
_LEAST_SHARE = 1e-3
_FILE = Path(__file__).with_name("learned.toml")


class SearchEvidence(NamedTuple):
    """What a search as a whole says about the relevance of its hits."""

    values: Sequence[float]
    """The rank values of all that was found, highest first."""
    terms: Sequence[str]
    """Significant words of the query, as stems."""
    words: float
    """Most of these words that one of the first hits contains, as a share."""
    cosine: float
    """The highest cosine similarity to the query; 0 without vectors."""


@cache
def learned_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return what was measured, by embedder and model."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def embedder_table(embedder: str) -> str:
    """Return the name of the table for an embedder: its own, else that of embedders that were not measured."""
    return next((name for name in learned_tables() if embedder.startswith(name)), OTHER)


@cache
def learned_weights(embedder: str | None) -> RankingWeights:
    """Return the weights of the ranking that were measured for an embedder, or for none."""
    table = learned_tables()[WITHOUT_EMBEDDER if embedder is None else embedder_table(embedder)]
    found: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.get(WEIGHTS, {}).items()
    }
    return replace(RankingWeights(), **found)


def relevance_coefficients(embedder: str | None, model: RelevanceModel) -> Coefficients:
    """Return the coefficients for a search.

    Args:
        embedder: name of the embedder; None if no vectors were compared.
        model: the kind of search.
    """
    is_by_words = embedder is None or model in {"words", "keywords"}
    table = WITHOUT_EMBEDDER if is_by_words else embedder_table(embedder or "")
    found: Coefficients = learned_tables()[table][model]
    return found


def relevance_features(evidence: SearchEvidence, value: float) -> dict[str, float]:
    """Return the numbers that the model reads for a hit with this rank value."""
    values = evidence.values
    best, tenth = values[0], values[min(_TENTH, len(values) - 1)]
    is_positive = best > 0
    return {
        "share": log(max(value / best, _LEAST_SHARE)) if is_positive else 0.0,
        "place": 1 / _place(values, value),
        "lead": min((best - tenth) / best, 1.0) if is_positive else 0.0,
        "length": log(max(len(evidence.terms), 1)),
        "words": evidence.words,
        "cosine": evidence.cosine,
        "both": evidence.words * evidence.cosine,
    }


def relevance(coefficients: Coefficients, features: Mapping[str, float]) -> float:
    """Return the probability, from 0 to 1, that a hit with these features is relevant."""
    weights = ((name, weight) for name, weight in coefficients.items() if name != "constant")
    total = coefficients["constant"] + sum(weight * features[name] for name, weight in weights)
    return 1 / (1 + exp(-max(min(total, 50.0), -50.0)))


def _place(values: Sequence[float], value: float) -> int:
    """Return the place, from 1, of the first hit with this rank value or a lower one."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] > value:
            low = middle + 1
        else:
            high = middle
    return low + 1
