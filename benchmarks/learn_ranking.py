"""Learn how likely a hit is relevant, from questions whose answers are known, and write it into the package.

python benchmarks/learn_ranking.py --data FOLDER                   measure with what the package has: writes nothing
python benchmarks/learn_ranking.py --data FOLDER --write           learn again, and write memory/learned.toml
python benchmarks/learn_ranking.py --data FOLDER --embedder onnx   one embedder; repeat it for several

Figures come from cross-validation: the conversations are dealt into five parts, and each part is judged by what was
learned from the four others. What is written is learned from all. The folder is described in retrieval_data.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ranking_lab import Lab, LabQuestion, VectorFolder, prepare
from retrieval_data import Conversations, read_conversations

from sharedmem.memory.ranking import RankingWeights, rank
from sharedmem.memory.relevance import (
    FIRST_HITS,
    OTHER,
    WITHOUT_EMBEDDER,
    RelevanceModel,
    SearchEvidence,
    relevance_features,
)
from sharedmem.search.protocol import IndexResult
from sharedmem.text.analysis import share_of_terms

SETS = ("locomo", "longmemeval", "beam")
LONG = {"longmemeval", "beam"}
EMBEDDERS = {"wordllama": "wordllama:", "onnx": "onnx:bge-small", "onnx:all-MiniLM-L6-v2": "onnx:all-MiniLM"}
"""The embedders that are measured, and how the names of theirs that the table is for begin."""
PARTS = 5
DEPTH = 20
"""Hits of a search that are judged."""
TABLE = Path(__file__).parent.parent / "sharedmem" / "memory" / "learned.toml"
_RIDGE = 1.0
_STEPS = 30
_BINS = 10
_BASIC = ("share", "place", "lead", "length")
FEATURES: dict[RelevanceModel, tuple[str, ...]] = {
    "hybrid": (*_BASIC, "words", "cosine", "both"),
    "semantic": (*_BASIC, "words", "cosine", "both"),
    "similar": (*_BASIC[:3], "cosine"),
    "words": (*_BASIC, "words"),
    "keywords": (*_BASIC, "words"),
}
"""What each model reads."""
BY_EMBEDDER: tuple[RelevanceModel, ...] = ("hybrid", "semantic", "similar")
BY_WORDS: tuple[RelevanceModel, ...] = ("words", "keywords")
OF_COSINES = {"cosine", "both"}
"""What the table for embedders that were not measured does without."""

Numbers = NDArray[np.float64]


class JudgedHits(NamedTuple):
    """Hits of all questions, with what the model reads and whether they are relevant."""

    features: dict[str, Numbers]
    relevant: Numbers
    parts: NDArray[np.int64]
    """The part of the cross-validation to which the conversation of each hit belongs."""
    places: NDArray[np.int64]
    kinds: NDArray[np.str_]

    def columns(self, names: Sequence[str]) -> Numbers:
        """Return the features with these names, one a column."""
        return np.stack([self.features[name] for name in names], axis=1)


class Reliability(NamedTuple):
    """How well probabilities agree with what was relevant."""

    error: float
    """Expected calibration error over ten bins of equal width: the mean difference between what was said and found."""
    first: float
    """The same over first hits alone, in ten bins of equal size."""
    answerable: float
    """Mean probability of the first hit of a question that the conversation answers."""
    found: float
    """How many of these hits are relevant."""
    unrelated: float
    """Mean probability of the first hit of a question about general knowledge."""


# -- what is judged --------------------------------------------------------------------------------


def judged_hits(lab: Lab, model: RelevanceModel, weights: RankingWeights) -> JudgedHits:
    """Return the first hits of each question."""
    texts = {id_: f"{turn.speaker}\n{turn.text}" for id_, turn in lab.turns.items()}
    groups = sorted({question.group for question in lab.questions})
    part_of = {group: at % PARTS for at, group in enumerate(groups)}
    rows: list[dict[str, float]] = []
    labels: list[tuple[bool, int, int, str]] = []
    for question in lab.questions:
        order = _order(question, model, weights)
        if not order:
            continue
        first = [share_of_terms(question.terms, texts[id_]) for id_, _ in order[:FIRST_HITS]]
        has_vector = model in BY_EMBEDDER and bool(question.found.vector)
        evidence = SearchEvidence(
            values=[value for _, value in order],
            terms=question.terms,
            words=max(first),
            cosine=question.found.vector[0].score if has_vector else 0.0,
        )
        for place, (id_, value) in enumerate(order[:DEPTH], 1):
            rows.append(relevance_features(evidence, value))
            labels.append((id_ in question.relevant, part_of[question.group], place, question.kind))
    relevant, parts, places, kinds = zip(*labels, strict=True)
    features = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return JudgedHits(features, np.array(relevant, dtype=float), np.array(parts), np.array(places), np.array(kinds))


def _order(question: LabQuestion, model: RelevanceModel, weights: RankingWeights) -> list[tuple[str, float]]:
    """Return all hits of a question with their rank values, best first."""
    found = question.found
    if model in {"semantic", "similar"}:
        return [(hit.id, hit.score) for hit in found.vector]
    if model == "keywords":
        return [(hit.id, hit.score) for hit in found.text]
    if model == "words":
        found = IndexResult(found.text, [], 0, 0)
    ranked = rank(question.text, found, question.neighbours, weights, now_ms=0)
    return [(one.id, one.score) for one in ranked]


# -- the logistic model -----------------------------------------------------------------------------


def fit_logistic(columns: Numbers, relevant: Numbers) -> Numbers:
    """Return the constant and the coefficients of a logistic regression (Newton's method, with a small ridge)."""
    mean, width = columns.mean(axis=0), columns.std(axis=0) + 1e-9
    scaled = np.column_stack([np.ones(len(columns)), (columns - mean) / width])
    penalty = np.diag([0.0] + [_RIDGE] * columns.shape[1])
    found = np.zeros(scaled.shape[1])
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-scaled @ found))
        curvature = (scaled * (likely * (1 - likely))[:, None]).T @ scaled + penalty
        found -= np.linalg.solve(curvature, scaled.T @ (likely - relevant) + penalty @ found)
    slopes = found[1:] / width
    return np.concatenate([[found[0] - slopes @ mean], slopes])


def predicted(coefficients: Numbers, columns: Numbers) -> Numbers:
    """Return the probabilities of a logistic regression."""
    likely: Numbers = 1 / (1 + np.exp(-(coefficients[0] + columns @ coefficients[1:])))
    return likely


def cross_validated(hits: JudgedHits, names: Sequence[str]) -> Numbers:
    """Return the probability of each hit by what was learned from the other parts."""
    columns = hits.columns(names)
    likely = np.zeros(len(columns))
    for part in range(PARTS):
        held = hits.parts == part
        likely[held] = predicted(fit_logistic(columns[~held], hits.relevant[~held]), columns[held])
    return likely


def calibration_error(likely: Numbers, relevant: Numbers, *, equal_width: bool) -> float:
    """Return the expected calibration error."""
    if equal_width:
        bins = np.minimum((likely * _BINS).astype(int), _BINS - 1)
        members = [np.flatnonzero(bins == one) for one in range(_BINS)]
    else:
        members = np.array_split(np.argsort(likely, kind="stable"), _BINS)
    apart = (abs(likely[some].mean() - relevant[some].mean()) * len(some) for some in members if len(some))
    return float(sum(apart) / len(likely))


def reliability_of(hits: JudgedHits, likely: Numbers) -> Reliability:
    """Return how reliable the probabilities are."""
    first = hits.places == 1
    own = first & np.isin(hits.kinds, ["own", "own, small"])
    unrelated = first & np.isin(hits.kinds, ["general", "general, small"])
    return Reliability(
        error=calibration_error(likely, hits.relevant, equal_width=True),
        first=calibration_error(likely[first], hits.relevant[first], equal_width=False),
        answerable=float(likely[own].mean()),
        found=float(hits.relevant[own].mean()),
        unrelated=float(likely[unrelated].mean()),
    )


def joined(some: Sequence[JudgedHits]) -> JudgedHits:
    """Return the hits of several embedders as one."""
    features = {name: np.concatenate([hits.features[name] for hits in some]) for name in some[0].features}
    return JudgedHits(features, *(np.concatenate([hits[at] for hits in some]) for at in range(1, 5)))


# -- the tables ------------------------------------------------------------------------------------

Tables = dict[str, dict[str, dict[str, float]]]


def learn_relevance(
    labs: Mapping[str, Lab], weights: Callable[[str], RankingWeights]
) -> tuple[Tables, list[list[str]]]:
    """Return the coefficients by table and model, and a row of figures for each.

    Args:
        labs: by the name of their table.
        weights: returns the weights of the ranking for a table.
    """
    tables: Tables = {}
    rows: list[list[str]] = []

    def learn(table: str, model: RelevanceModel, hits: JudgedHits, names: Sequence[str]) -> None:
        found = reliability_of(hits, cross_validated(hits, names))
        coefficients = fit_logistic(hits.columns(names), hits.relevant)
        kept = {name: round(float(one), 4) for name, one in zip(("constant", *names), coefficients, strict=True)}
        tables.setdefault(table, {})[model] = kept
        rows.append([table, model, *(f"{figure:.3f}" for figure in found)])

    for model in BY_EMBEDDER:
        hits = {table: judged_hits(lab, model, weights(table)) for table, lab in labs.items()}
        for table, some in hits.items():
            learn(table, model, some, FEATURES[model])
        names = [name for name in FEATURES[model] if name not in OF_COSINES]
        learn(OTHER, model, joined(list(hits.values())), names)
    first = next(iter(labs.values()))
    for model in BY_WORDS:
        learn(WITHOUT_EMBEDDER, model, judged_hits(first, model, weights(WITHOUT_EMBEDDER)), FEATURES[model])
    return tables, rows


def written(tables: Tables) -> Iterator[str]:
    """Yield the lines of the file."""
    yield "# Made by benchmarks/learn_ranking.py --write. Coefficients of `memory/relevance.py`, by how the name of an"
    yield "# embedder begins, and by the kind of search."
    for table, models in tables.items():
        for model, coefficients in models.items():
            yield f'\n["{table}".{model}]'
            yield from (f"{name} = {value}" for name, value in coefficients.items())


def few_conversations(data: Conversations, most: int | None) -> Conversations:
    """Return the first conversations of a set, with their questions."""
    turns = dict(list(data.turns.items())[:most])
    return Conversations(data.name, turns, [question for question in data.questions if question.group in turns])


# -- the command -----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn, and show how reliable it is."""
    asked = _arguments(arguments)
    sets = [
        few_conversations(
            read_conversations(asked.data / name, every=asked.every), asked.long if name in LONG else None
        )
        for name in SETS
        if (asked.data / name).is_dir()
    ]
    if not sets:
        print(f"no conversations in {asked.data}; retrieval_data.py describes the folder", file=sys.stderr)
        return 2
    labs = {}
    for name in asked.embedder or list(EMBEDDERS):
        print(f"{name}: vectors and hits", file=sys.stderr, flush=True)
        labs[EMBEDDERS.get(name, name)] = prepare(sets, VectorFolder(name, asked.vectors))
    tables, rows = learn_relevance(labs, lambda _: RankingWeights())
    head = ("table", "search", "error", "error, first hits", "answerable: said", "found", "unrelated: said")
    for row in (head, *rows):
        print(" | ".join(row))
    if asked.write:
        TABLE.write_text("\n".join(written(tables)) + "\n", encoding="utf-8")
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn how likely a hit is relevant.")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="conversations and questions")
    parser.add_argument("--embedder", action="append", metavar="NAME", help="an embedder; all that ship if left out")
    parser.add_argument("--long", type=int, metavar="N", help="only N conversations of the sets with long messages")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th question")
    vectors = Path(tempfile.gettempdir()) / "sharedmem-vectors"
    parser.add_argument("--vectors", type=Path, default=vectors, metavar="FOLDER", help="where vectors are kept")
    parser.add_argument("--write", action="store_true", help="write the tables into the package")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
