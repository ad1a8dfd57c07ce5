"""The ranking of memories over all candidates of all questions at once, to try many weights quickly, and their search.

`scores` computes what `sharedmem.memory.ranking.rank` computes, which `check` compares. `search_weights` changes one
weight at a time as long as the objective gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from ranking_lab import LabQuestion

from sharedmem.memory.ranking import RankingWeights, names_author, rank
from sharedmem.memory.serialization import RankingFeatures, decode_features
from sharedmem.text.fact_tokens import datetime_from_ms, find_query_dates
from sharedmem.text.statements import NAME, NUMBER, TIME, query_cues

Numbers = NDArray[np.float64]
DEPTHS = (5, 10)
_TELLING_WORDS = 25
_SHARPNESS = 4.0
"""Power of a score in the likelihood of a relevant candidate."""
_LEAST_GAIN = 0.0004
"""Gain of the objective for which a weight is changed: less is chance."""
IMPORTANCE = {"locomo": 0.5, "longmemeval": 0.35, "beam": 0.15}
"""How much each set counts, by how many questions it has."""
FACTORS = ("vector", "author", "question", "date", "time", "number", "name", "thread", "answer", "talkative")
STEPS = (0.8, 1.25)
ADDED = {"length": (-0.1, 0.1)}
SHARES = ("previous", "following")


class Matrix(NamedTuple):
    """One row for each candidate of each question; the columns are what the ranking reads."""

    questions: list[LabQuestion]
    ids: list[str]
    columns: dict[str, Numbers]
    starts: NDArray[np.int64]
    """First row of each question."""
    givers: NDArray[np.int64]
    """Rows that add to others: each with one of `receivers` and `steps`."""
    receivers: NDArray[np.int64]
    steps: NDArray[np.int64]
    question_of_thread: NDArray[np.int64]

    def of(self, name: str) -> Numbers:
        """Return a column."""
        return self.columns[name]


def matrix_of(questions: Sequence[LabQuestion]) -> Matrix:
    """Return the candidates of the questions that their conversation answers."""
    own = [question for question in questions if question.kind == "own"]
    blocks: list[dict[str, Numbers]] = []
    ids: list[str] = []
    starts: list[int] = []
    edges: list[tuple[int, int, int]] = []
    thread_owner: list[int] = []
    for number, question in enumerate(own):
        known: dict[str, RankingFeatures] = {}
        for hits in (question.found.vector, question.found.text):
            known.update({hit.id: decode_features(hit.facts) for hit in hits})
        hit_count, start = len(known), len(ids)
        for held in question.neighbours.values():
            for id_, features in held:
                known.setdefault(id_, features)
        row_at = {(one.thread, one.position): start + row for row, one in enumerate(known.values())}
        for row, one in enumerate(list(known.values())[:hit_count]):
            for step in (-2, -1, 1, 2):
                receiver = row_at.get((one.thread, one.position + step))
                if receiver is not None:
                    edges.append((start + row, receiver, step))
        blocks.append(_block(question, number, known, len(thread_owner)))
        thread_owner += [number] * len({one.thread for one in known.values()})
        starts.append(start)
        ids += list(known)
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    givers, receivers, steps = (np.array(column) for column in zip(*edges, strict=True))
    return Matrix(own, ids, columns, np.array(starts), givers, receivers, steps, np.array(thread_owner))


def _block(
    question: LabQuestion, number: int, known: Mapping[str, RankingFeatures], first_thread: int
) -> dict[str, Numbers]:
    text = {hit.id: hit.score for hit in question.found.text}
    vector = {hit.id: hit.score for hit in question.found.vector}
    best, low = max(text.values(), default=1.0), min(vector.values(), default=0.0)
    width = max(vector.values(), default=0.0) - low
    dates, asked = find_query_dates(question.text), query_cues(question.text)
    named = {one.author: one.author is not None and names_author(question.text, one.author) for one in known.values()}
    threads: dict[str, int] = {}
    rows = [
        (
            number,
            text.get(id_, 0.0) / best,
            (vector[id_] - low) / width if id_ in vector and width > 0 else float(id_ in vector),
            one.tokens,
            one.asks,
            named[one.author],
            any(date.covers(datetime_from_ms(one.at_ms)) for date in dates),
            *(bool(one.cues & asked & kind) for kind in (TIME, NUMBER, NAME)),
            first_thread + threads.setdefault(one.thread, len(threads)),
            id_ in question.relevant,
        )
        for id_, one in known.items()
    ]
    names = (
        "row",
        "text",
        "vector",
        "tokens",
        "question",
        "author",
        "date",
        "time",
        "number",
        "name",
        "in",
        "relevant",
    )
    return dict(zip(names, np.array(rows, dtype=float).T, strict=True))


def scores(matrix: Matrix, weights: RankingWeights) -> Numbers:
    """Return the rank value of each row."""
    own = weights.text * matrix.of("text") + weights.vector * matrix.of("vector")
    gate = 1 / (1 + (matrix.of("tokens") / weights.talkative) ** 3)
    share_of = np.zeros(5)
    for distance, (behind, ahead) in enumerate(zip(weights.previous, weights.following, strict=True), 1):
        share_of[2 + distance], share_of[2 - distance] = behind, ahead
    lent = share_of[matrix.steps + 2]
    asks = (matrix.steps > 0) & (matrix.of("question")[matrix.givers] > 0)
    lent = np.where(asks, lent * weights.answer, lent) * (own * gate)[matrix.givers]
    received = np.bincount(matrix.receivers, weights=lent, minlength=len(own)) * gate
    thread = matrix.of("in").astype(int)
    sums = np.bincount(thread, weights=own, minlength=len(matrix.question_of_thread))
    most = np.zeros(len(matrix.questions))
    np.maximum.at(most, matrix.question_of_thread, sums)
    relative = sums / np.maximum(most[matrix.question_of_thread], 1e-12)
    total = (own + received) * (1 + weights.thread * relative[thread])
    for name in ("author", "question", "date", "time", "number", "name"):
        total = np.where(matrix.of(name) > 0, total * getattr(weights, name), total)
    telling = (1 + np.minimum(matrix.of("tokens"), _TELLING_WORDS)) / (1 + _TELLING_WORDS)
    ranked: Numbers = total * telling**weights.length
    return ranked


def recall_by_question(matrix: Matrix, values: Numbers, depths: Sequence[int]) -> list[Numbers]:
    """Return the share of the relevant turns among the first so many, for each depth and question."""
    row = matrix.of("row").astype(int)
    order = np.lexsort((-values, row))
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order)) - matrix.starts[row[order]]
    relevant = matrix.of("relevant")
    wanted = np.array([len(question.relevant) for question in matrix.questions])
    return [np.bincount(row, weights=relevant * (place < depth), minlength=len(wanted)) / wanted for depth in depths]


def surprise_by_question(matrix: Matrix, values: Numbers) -> Numbers:
    """Return the negative logarithm of the likelihood of the relevant turns, for each question."""
    row = matrix.of("row").astype(int)
    strength = _SHARPNESS * np.log(np.maximum(values, 1e-9))
    strength -= np.maximum.reduceat(strength, matrix.starts)[row]
    likely = strength - np.log(np.add.reduceat(np.exp(strength), matrix.starts))[row]
    sums = np.add.reduceat(likely * matrix.of("relevant"), matrix.starts)
    surprise: Numbers = -sums / np.array([len(question.relevant) for question in matrix.questions])
    return surprise


def objective(matrix: Matrix, values: Numbers, among: NDArray[np.bool_]) -> float:
    """Return what the search for weights makes high: recall at ten and five, and a little of the likelihood."""
    at_five, at_ten = recall_by_question(matrix, values, DEPTHS)
    each = at_ten + 0.5 * at_five - 0.05 * surprise_by_question(matrix, values)
    sets = np.array([question.data for question in matrix.questions])
    members = ((weight, among & (sets == name)) for name, weight in IMPORTANCE.items())
    return float(sum(weight * each[some].mean() for weight, some in members if some.any()))


def search_weights(
    matrix: Matrix, among: NDArray[np.bool_], start: RankingWeights, *, rounds: int = 2
) -> RankingWeights:
    """Return weights that are better for some of the questions, changing one after the other."""
    weights, best = start, objective(matrix, scores(matrix, start), among)
    changes = [(name, changed) for name in (*FACTORS, *SHARES, *ADDED) for changed in _changes(name)]
    for _ in range(rounds):
        before = best
        for name, changed in changes:
            weights, best = _changed(matrix, among, weights, best, (name, changed))
        if best == before:
            break
    return weights


def _changed(
    matrix: Matrix,
    among: NDArray[np.bool_],
    weights: RankingWeights,
    best: float,
    change: tuple[str, Callable[[Any], Any]],
) -> tuple[RankingWeights, float]:
    """Return the weights after a change is made as long as the objective gains, and the objective."""
    name, changed = change
    while True:
        trial = replace(weights, **{name: changed(getattr(weights, name))})
        gained = objective(matrix, scores(matrix, trial), among)
        if gained <= best + _LEAST_GAIN:
            return weights, best
        weights, best = trial, gained


def _changes(name: str) -> Sequence[Any]:
    if name in ADDED:
        return [lambda value, step=step: round(value + step, 3) for step in ADDED[name]]
    if name in SHARES:
        return [
            lambda value, place=place, step=step: tuple(
                round(share * step, 4) if at == place else share for at, share in enumerate(value)
            )
            for place in range(2)
            for step in STEPS
        ]
    return [lambda value, step=step: round(value * step, 4) for step in STEPS]


def check(matrix: Matrix, weights: RankingWeights, *, some: int = 20) -> None:
    """Make sure that the matrix ranks as the package does.

    Raises:
        AssertionError: it does not.
    """
    values = scores(matrix, weights)
    bounds = [*matrix.starts, len(values)]
    for number in range(0, len(matrix.questions), max(1, len(matrix.questions) // some)):
        question, here = matrix.questions[number], range(bounds[number], bounds[number + 1])
        ours = {matrix.ids[row]: values[row] for row in here}
        theirs = rank(question.text, question.found, question.neighbours, weights, now_ms=0, limit=20)
        for one in theirs:
            assert abs(ours[one.id] - one.score) < 1e-9, (question.text, one, ours[one.id])
