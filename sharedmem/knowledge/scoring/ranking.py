"""The ranking: one order out of what words found, what meaning found, and who said it when to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from sharedmem.knowledge.scoring.factors import Factors
from sharedmem.knowledge.scoring.facts import Facts, decode_facts
from sharedmem.knowledge.scoring.reasons import Reasons
from sharedmem.knowledge.scoring.recipe import Recipe
from sharedmem.models import Signal
from sharedmem.search.fusion import shares_by_best, shares_by_rank, shares_stretched, summed
from sharedmem.search.protocol import Found

Neighbours = Mapping[tuple[str, int], Sequence[tuple[str, Facts]]]
"""The memories at a turn of a thread, by thread and turn index."""


class Ranked(NamedTuple):
    """A memory in its place."""

    id: str
    score: float
    signals: tuple[Signal, ...]
    """Why, when that was asked; what they contributed adds up to the score."""


_unexplained = partial(tuple.__new__, Ranked)
"""One of its parts, in a third of the time: there are hundreds a search."""


def wanted_neighbours(found: Found, recipe: Recipe) -> dict[str, list[tuple[int, int]]]:
    """Which turns around those that were found the ranking wants to know.

    Returns:
        For each thread, closed ranges of turn indexes, rising and apart.
    """
    before, behind = len(recipe.following), len(recipe.previous)
    positions: dict[str, set[int]] = {}
    known = map(decode_facts, [hit[2] for hits in (found.vector, found.text) for hit in hits])
    for turn in [facts for facts in known if facts.author is not None]:
        positions.setdefault(turn.thread, set()).add(turn.position)
    return {
        thread: _merged((max(0, at - before), at + behind) for at in sorted(places))
        for thread, places in positions.items()
        if before or behind
    }


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in ranges:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], high
        else:
            merged.append((low, high))
    return merged


def rank(
    query: str,
    found: Found,
    neighbours: Neighbours,
    recipe: Recipe,
    *,
    now_ms: int,
    limit: int | None = None,
    explain: bool = False,
) -> list[Ranked]:
    """Put in order what was found, and the neighbours that gain by it.

    Args:
        query: what was asked, whole.
        found: what the index answered.
        neighbours: the turns that `wanted_neighbours` named, as far as they are there.
        recipe: the weights.
        now_ms: milliseconds since 1970, for the recency.
        limit: how many are told; None for all.
        explain: whether to tell every signal.

    Returns:
        Best first; ties by id. Takes about a millisecond for 200 hits and their neighbours.
    """
    facts = _facts_by_id(found)
    text, vector = _shares(found, recipe)
    own = summed(vector, text)
    lent = _lent(own, facts, recipe)
    for turn in lent:
        for id_, known in neighbours.get(turn, ()):
            facts.setdefault(id_, known)
    threads = _by_thread(own, facts)
    factors = Factors(query, threads, recipe, now_ms)
    if threads or not factors.touch_only_turns:
        scored = [
            (-(own.get(id_, 0.0) + _gained(known, lent, recipe)) * factors.product(known), id_)
            for id_, known in facts.items()
        ]
    else:
        scored = [(-score, id_) for id_, score in own.items()]
    order = sorted(scored)[:limit]
    if not explain:
        return [_unexplained((id_, -score, ())) for score, id_ in order]
    reasons = Reasons(found, text, vector, recipe)
    return [
        Ranked(id_, -score, reasons.of(id_, _gained(facts[id_], lent, recipe), factors.each(facts[id_])))
        for score, id_ in order
    ]


def _facts_by_id(found: Found) -> dict[str, Facts]:
    encoded = {id_: facts for id_, _, facts in found.vector}
    encoded.update([(id_, facts) for id_, _, facts in found.text])
    return dict(zip(encoded, map(decode_facts, encoded.values()), strict=True))


def _shares(found: Found, recipe: Recipe) -> tuple[dict[str, float], dict[str, float]]:
    """What words and meaning contribute, by id."""
    if recipe.fusion == "rrf":
        by_rank = partial(shares_by_rank, k=recipe.rrf_k)
        return by_rank(found.text, recipe.text), by_rank(found.vector, recipe.vector)
    return shares_by_best(found.text, recipe.text), shares_stretched(found.vector, recipe.vector)


def _lent(own: Mapping[str, float], facts: Mapping[str, Facts], recipe: Recipe) -> dict[tuple[str, int], float]:
    """What turns lend to those around them, by thread and turn index of the receiver."""
    ahead = [(-distance, weight) for distance, weight in enumerate(recipe.following, 1)]
    behind = list(enumerate(recipe.previous, 1))
    told = [*ahead, *behind]
    asked = [*ahead, *((distance, weight * recipe.answer) for distance, weight in behind)]
    lent: dict[tuple[str, int], float] = {}
    for id_, known in facts.items():
        if known.author is None:
            continue
        thread, position = known.thread, known.position
        spare = own[id_] * _gate(known.tokens, recipe.talkative)
        for step, weight in asked if known.asks else told:
            turn = thread, position + step
            lent[turn] = lent.get(turn, 0.0) + weight * spare
    return lent


def _by_thread(own: Mapping[str, float], facts: Mapping[str, Facts]) -> dict[str, float]:
    """How much was found of what was said in each thread."""
    threads: dict[str, float] = {}
    for id_, score in own.items():
        known = facts[id_]
        if known.author is not None:
            threads[known.thread] = threads.get(known.thread, 0.0) + score
    return threads


def _gained(known: Facts, lent: Mapping[tuple[str, int], float], recipe: Recipe) -> float:
    if known.author is None:
        return 0.0
    return lent.get((known.thread, known.position), 0.0) * _gate(known.tokens, recipe.talkative)


@lru_cache(maxsize=4096)
def _gate(tokens: int, talkative: float) -> float:
    """Which part of a lent score passes."""
    return 1 / (1 + (tokens / talkative) ** 3)
