"""Learn the weights of the ranking, and how likely a hit is relevant, from questions whose answers are known.

python benchmarks/learn_ranking.py --data FOLDER                   measure with what the package has: writes nothing
python benchmarks/learn_ranking.py --data FOLDER --write           learn again, and write memory/learned.toml
python benchmarks/learn_ranking.py --data FOLDER --scores-only     leave the weights of the ranking as they are
python benchmarks/learn_ranking.py --data FOLDER --embedder onnx   one embedder; repeat it for several

Figures come from cross-validation: the conversations are dealt into five parts, and each part is judged by what was
learned from the four others. What is written is learned from all; tables of embedders that are not measured stay as
they are, and so does the one for any other embedder unless all are measured. For the scores each set of conversations
counts the same, and within it questions that it answers count three fifths. The folder is described in
retrieval_data.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from ranking_lab import Lab, LabQuestion, VectorFolder, prepare
from ranking_matrix import DEPTHS, Matrix, check, matrix_of, recall_by_question, scores, search_weights
from retrieval_data import Conversations, read_conversations

from sharedmem.memory.ranking import RankingWeights, rank
from sharedmem.memory.relevance import (
    FIRST_HITS,
    OTHER,
    WEIGHTS,
    WITHOUT_EMBEDDER,
    RelevanceModel,
    SearchEvidence,
    learned_tables,
    learned_weights,
    relevance_features,
    share_of_busiest_thread,
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
SHOWN = 10
"""Those of the error of single sets: as many as a search returns by default."""
TABLE = Path(__file__).parent.parent / "sharedmem" / "memory" / "learned.toml"
_RIDGE = 1.0
_STEPS = 30
_BINS = 10
_ANSWERED = 0.6
"""Part of the weight of a set that questions have which it answers."""
_BASIC = ("share", "place", "lead", "length", "thread")
FEATURES: dict[RelevanceModel, tuple[str, ...]] = {
    "hybrid": (*_BASIC, "words", "cosine", "both"),
    "semantic": (*_BASIC, "words", "cosine", "both"),
    "similar": ("share", "place", "lead", "cosine"),
    "words": (*_BASIC, "words"),
    "keywords": (*_BASIC, "words"),
}
"""What each model reads."""
BY_EMBEDDER: tuple[RelevanceModel, ...] = ("hybrid", "semantic", "similar")
BY_WORDS: tuple[RelevanceModel, ...] = ("words", "keywords")
OF_COSINES = {"cosine", "both"}
"""What the table for embedders that were not measured does without."""

SIGNALS_OFF: dict[str, dict[str, Any]] = {
    "times": {"time": 1.0},
    "numbers": {"number": 1.0},
    "names": {"name": 1.0},
    "length": {"length": 0.0},
    "neighbours": {"previous": (0.0, 0.0), "following": (0.0, 0.0)},
    "author": {"author": 1.0},
    "thread": {"thread": 0.0},
    "question": {"question": 1.0},
    "date": {"date": 1.0},
}

Numbers = NDArray[np.float64]


class JudgedHits(NamedTuple):
    """Hits of all questions, with what the model reads and whether they are relevant."""

    features: dict[str, Numbers]
    relevant: Numbers
    parts: NDArray[np.int64]
    """The part of the cross-validation to which the conversation of each hit belongs."""
    places: NDArray[np.int64]
    kinds: NDArray[np.str_]
    sets: NDArray[np.str_]

    def columns(self, names: Sequence[str]) -> Numbers:
        """Return the features with these names, one a column."""
        return np.stack([self.features[name] for name in names], axis=1)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Whether each is a hit of a question that the conversation answers."""
        return np.isin(self.kinds, ["own", "own, small"])

    @property
    def weights(self) -> Numbers:
        """How much each hit counts, 1 on average."""
        weights = np.zeros(len(self.relevant))
        for name in np.unique(self.sets):
            for share, those in ((_ANSWERED, self.answered), (1 - _ANSWERED, ~self.answered)):
                some = (self.sets == name) & those
                weights[some] = share / max(some.sum(), 1)
        balanced: Numbers = weights * len(weights) / weights.sum()
        return balanced


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
    worst: float
    """Expected calibration error of the first ten hits of answered questions, of the set where it is highest."""


# -- what is judged --------------------------------------------------------------------------------


def judged_hits(lab: Lab, model: RelevanceModel, weights: RankingWeights) -> JudgedHits:
    """Return the first hits of each question."""
    texts = {id_: f"{turn.speaker}\n{turn.text}" for id_, turn in lab.turns.items()}
    groups = sorted({question.group for question in lab.questions})
    part_of = {group: at % PARTS for at, group in enumerate(groups)}
    rows: list[dict[str, float]] = []
    labels: list[tuple[bool, int, int, str, str]] = []
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
            thread=share_of_busiest_thread([id_ for id_, _ in order], question.found, question.neighbours),
        )
        for place, (id_, value) in enumerate(order[:DEPTH], 1):
            rows.append(relevance_features(evidence, value))
            labels.append((id_ in question.relevant, part_of[question.group], place, question.kind, question.data))
    relevant, *others = zip(*labels, strict=True)
    features = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return JudgedHits(features, np.array(relevant, dtype=float), *map(np.array, others))


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


def fit_logistic(columns: Numbers, relevant: Numbers, weights: Numbers) -> Numbers:
    """Return the constant and the coefficients of a logistic regression (Newton's method, with a small ridge)."""
    mean, width = columns.mean(axis=0), columns.std(axis=0) + 1e-9
    scaled = np.column_stack([np.ones(len(columns)), (columns - mean) / width])
    penalty = np.diag([0.0] + [_RIDGE] * columns.shape[1])
    found = np.zeros(scaled.shape[1])
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-scaled @ found))
        curvature = (scaled * (weights * likely * (1 - likely))[:, None]).T @ scaled + penalty
        found -= np.linalg.solve(curvature, scaled.T @ (weights * (likely - relevant)) + penalty @ found)
    slopes = found[1:] / width
    return np.concatenate([[found[0] - slopes @ mean], slopes])


def predicted(coefficients: Numbers, columns: Numbers) -> Numbers:
    """Return the probabilities of a logistic regression."""
    likely: Numbers = 1 / (1 + np.exp(-(coefficients[0] + columns @ coefficients[1:])))
    return likely


def cross_validated(hits: JudgedHits, names: Sequence[str]) -> Numbers:
    """Return the probability of each hit by what was learned from the other parts."""
    columns, weights = hits.columns(names), hits.weights
    likely = np.zeros(len(columns))
    for part in range(PARTS):
        held = hits.parts == part
        learned = fit_logistic(columns[~held], hits.relevant[~held], weights[~held])
        likely[held] = predicted(learned, columns[held])
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
    own = first & hits.answered
    shown = (hits.places <= SHOWN) & (hits.kinds == "own")
    by_set = [shown & (hits.sets == name) for name in np.unique(hits.sets)]
    unrelated = first & np.isin(hits.kinds, ["general", "general, small"])
    return Reliability(
        error=calibration_error(likely, hits.relevant, equal_width=True),
        first=calibration_error(likely[first], hits.relevant[first], equal_width=False),
        answerable=float(likely[own].mean()),
        found=float(hits.relevant[own].mean()),
        unrelated=float(likely[unrelated].mean()),
        worst=max(calibration_error(likely[some], hits.relevant[some], equal_width=True) for some in by_set),
    )


def joined(some: Sequence[JudgedHits]) -> JudgedHits:
    """Return the hits of several embedders as one."""
    features = {name: np.concatenate([hits.features[name] for hits in some]) for name in some[0].features}
    return JudgedHits(
        features, *(np.concatenate([hits[at] for hits in some]) for at in range(1, len(JudgedHits._fields)))
    )


# -- the weights of the ranking --------------------------------------------------------------------


def learn_weights(table: str, lab: Lab) -> tuple[RankingWeights, list[list[str]]]:
    """Return the weights for an embedder, and rows of recall with these and with other weights."""
    matrix = matrix_of(lab.questions)
    start = RankingWeights()
    check(matrix, start)
    everything = np.ones(len(matrix.questions), dtype=np.bool_)
    learned = search_weights(matrix, everything, start)
    groups = list(dict.fromkeys(question.group for question in matrix.questions))
    parts = np.array([groups.index(question.group) % PARTS for question in matrix.questions])
    row = matrix.of("row").astype(int)
    held_out = np.zeros(len(row))
    for part in range(PARTS):
        other = scores(matrix, search_weights(matrix, parts != part, start, rounds=1))
        held_out = np.where(parts[row] == part, other, held_out)
    rows = [
        _recall_row(matrix, table, "as the package has it", scores(matrix, start)),
        _recall_row(matrix, table, "learned", scores(matrix, learned)),
        _recall_row(matrix, table, "learned, cross-validated", held_out),
    ]
    for name, off in SIGNALS_OFF.items():
        rows.append(_recall_row(matrix, table, f"without {name}", scores(matrix, replace(learned, **off))))
    return learned, rows


def _recall_row(matrix: Matrix, table: str, name: str, values: Numbers) -> list[str]:
    sets = np.array([question.data for question in matrix.questions])
    found = recall_by_question(matrix, values, (1, *DEPTHS))
    cells = [f"{each[sets == data].mean():.3f}" for data in dict.fromkeys(sets.tolist()) for each in found]
    return [table, name, *cells]


# -- the tables ------------------------------------------------------------------------------------

Tables = dict[str, dict[str, dict[str, float]]]


def learn_relevance(labs: Mapping[str, Lab], weights: Mapping[str, RankingWeights]) -> tuple[Tables, list[list[str]]]:
    """Return the coefficients by table and model, and a row of figures for each.

    Args:
        labs: by the name of their table.
        weights: of the ranking, by table; the usual ones for a missing table.
    """
    tables: Tables = {}
    rows: list[list[str]] = []

    def learn(table: str, model: RelevanceModel, hits: JudgedHits, names: Sequence[str]) -> None:
        found = reliability_of(hits, cross_validated(hits, names))
        coefficients = fit_logistic(hits.columns(names), hits.relevant, hits.weights)
        kept = {name: round(float(one), 4) for name, one in zip(("constant", *names), coefficients, strict=True)}
        tables.setdefault(table, {})[model] = kept
        rows.append([table, model, *(f"{figure:.3f}" for figure in found)])

    is_whole = set(EMBEDDERS.values()) <= labs.keys()
    for model in BY_EMBEDDER:
        hits = {table: judged_hits(lab, model, weights[table]) for table, lab in labs.items()}
        for table, some in hits.items():
            learn(table, model, some, FEATURES[model])
        if is_whole:
            names = [name for name in FEATURES[model] if name not in OF_COSINES]
            learn(OTHER, model, joined(list(hits.values())), names)
    first = next(iter(labs.values()))
    for model in BY_WORDS:
        learn(WITHOUT_EMBEDDER, model, judged_hits(first, model, RankingWeights()), FEATURES[model])
    return tables, rows


def written(tables: Tables, weights: Mapping[str, RankingWeights]) -> Iterator[str]:
    """Yield the lines of the file."""
    yield "# Made by benchmarks/learn_ranking.py --write. Coefficients of `memory/relevance.py`, by how the name of an"
    yield "# embedder begins, and by the kind of search, and weights of the ranking that differ from the usual ones."
    usual = asdict(RankingWeights())
    own = [table for table in learned_tables() if table not in {OTHER, WITHOUT_EMBEDDER}]
    for table, found in ({table: learned_weights(table) for table in own} | dict(weights)).items():
        if found != RankingWeights():
            yield f'\n["{table}".{WEIGHTS}]'
        for name, value in asdict(found).items():
            if value != usual[name]:
                yield f"{name} = {list(value) if isinstance(value, tuple) else value}"
    for table in dict.fromkeys((*learned_tables(), *tables)):
        models = {name: one for name, one in learned_tables().get(table, {}).items() if name != WEIGHTS}
        for model, coefficients in (models | tables.get(table, {})).items():
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
    sets = [read_conversations(asked.data / name, every=asked.every) for name in SETS if (asked.data / name).is_dir()]
    if not sets:
        print(f"no conversations in {asked.data}; retrieval_data.py describes the folder", file=sys.stderr)
        return 2
    labs = {}
    for name in asked.embedder or list(EMBEDDERS):
        print(f"{name}: vectors and hits", file=sys.stderr, flush=True)
        is_slow = not name.startswith("wordllama")
        read = [few_conversations(data, asked.long) if is_slow and data.name in LONG else data for data in sets]
        labs[EMBEDDERS.get(name, name)] = prepare(read, VectorFolder(name, asked.vectors))
    weights = {}
    for table, lab in labs.items():
        if asked.scores_only:
            weights[table] = learned_weights(table)
            continue
        print(f"{table}: weights", file=sys.stderr, flush=True)
        weights[table], recalls = learn_weights(table, lab)
        print("\n".join(" | ".join(cells) for cells in recalls), flush=True)
    tables, rows = learn_relevance(labs, weights)
    head = (
        "table",
        "search",
        "error",
        "error, first hits",
        "answerable: said",
        "found",
        "unrelated: said",
        "worst set",
    )
    for row in (head, *rows):
        print(" | ".join(row))
    if asked.write:
        TABLE.write_text("\n".join(written(tables, weights)) + "\n", encoding="utf-8")
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn how likely a hit is relevant.")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="conversations and questions")
    parser.add_argument("--embedder", action="append", metavar="NAME", help="an embedder; all that ship if left out")
    parser.add_argument(
        "--long", type=int, metavar="N", help="for slow embedders only N conversations of the sets with long messages"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th question")
    vectors = Path(tempfile.gettempdir()) / "sharedmem-vectors"
    parser.add_argument("--vectors", type=Path, default=vectors, metavar="FOLDER", help="where vectors are kept")
    parser.add_argument("--scores-only", action="store_true", help="learn no weights of the ranking")
    parser.add_argument("--write", action="store_true", help="write the tables into the package")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
