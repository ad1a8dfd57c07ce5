"""Whether searches find the right memory: questions about long conversations, through `store.memory`, without any LLM.

python benchmarks/retrieval.py --data FOLDER                  every index and signal, cache and dedup: minutes
python benchmarks/retrieval.py --data FOLDER --quick          every fifth question
python benchmarks/retrieval.py --data FOLDER --only locomo    one set of conversations, or `pairs`
python benchmarks/retrieval.py --data FOLDER --page docs/retrieval.md

The folder is described in retrieval_data.py; a missing set or file is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from bench_report import Verdict
from harness import machine
from learn_ranking import calibration_error
from ranking_lab import GENERAL
from retrieval_data import (
    DEPTHS,
    UNANSWERABLE,
    Conversations,
    Pair,
    Quality,
    Question,
    quality_of,
    read_conversations,
    read_pairs,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from similarity_thresholds import ThresholdRates, rates_by_threshold

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.clock import SystemClock
from sharedmem.memory.ranking import RankingWeights
from sharedmem.models import RecalledContext, SearchMode
from sharedmem.providers.factory import open_embedder
from sharedmem.runtime import Counters

RESULTS = Path(__file__).parent / "results" / "retrieval.json"
OWN, SHARED, EXACT = "redisearch", "redisearch, shared", "exact"
INDEXES = (OWN, SHARED, EXACT)
"""An index for each namespace; one for all, whose word statistics are those of all; this process itself."""
RECIPE = RankingWeights()
"""Weights for the default embedder; the recipe itself uses those of the embedder that is measured."""
LEAST_RECALL = {"locomo": 0.78, "longmemeval": 0.92, "beam": 0.5}
MOST_ERROR = 0.05
"""Expected calibration error of `Hit.score`."""
FEWEST_HITS = 500
"""Hits without which the calibration error is chance."""
MOST_APART = 0.01
SETS = tuple(LEAST_RECALL)
PAIRS = "pairs"
PARTS = ("steps", "without")
LARGEST = max(DEPTHS)
BUDGET = 1500
"""Tokens of a text that `store.recall` makes."""
_AT_ONCE = 4


class Models(NamedTuple):
    """What turns texts into vectors, and what reranks, as the settings name them."""

    embedder: str = "wordllama"
    reranker: str = "none"


def models_of(name: str) -> Models:
    """Return what an argument names: an embedder, or an embedder, a plus sign and a reranker."""
    embedder, _, reranker = name.partition("+")
    return Models(embedder, reranker or "none")


class SearchVariant(NamedTuple):
    """One way to search."""

    name: str
    recipe: RankingWeights | None = RECIPE
    mode: SearchMode = "hybrid"
    bare: bool = False
    """Whether memories have no author, time and addressee."""


_STILL = replace(
    RECIPE,
    author=1.0,
    previous=(),
    following=(),
    answer=1.0,
    thread=0.0,
    question=1.0,
    date=1.0,
    time=1.0,
    number=1.0,
    name=1.0,
    length=0.0,
    attribute=0.0,
)
_AROUND: dict[str, Any] = {"previous": RECIPE.previous, "following": RECIPE.following, "thread": RECIPE.thread}
_ASKING: dict[str, Any] = {"answer": RECIPE.answer, "question": RECIPE.question}
WHOLE = SearchVariant("the recipe", None)
STEPS = (
    SearchVariant("meaning alone", mode="semantic", bare=True),
    SearchVariant("words alone", mode="keywords", bare=True),
    SearchVariant("reciprocal ranks", replace(_STILL, fusion="rrf", text=1.0, vector=1.0), bare=True),
    SearchVariant("weighted sum", _STILL, bare=True),
    SearchVariant("+ date and speaker before the words, names out of the query", _STILL),
    SearchVariant("+ who is named", replace(_STILL, author=RECIPE.author)),
    SearchVariant("+ neighbours and thread", replace(_STILL, author=RECIPE.author, **_AROUND)),
    SearchVariant("+ questions", replace(_STILL, author=RECIPE.author, **_AROUND, **_ASKING)),
    SearchVariant("+ dates", replace(_STILL, author=RECIPE.author, **_AROUND, **_ASKING, date=RECIPE.date)),
    SearchVariant("+ times, numbers and names that are asked for", replace(RECIPE, length=0.0)),
    SearchVariant("+ length = the recipe"),
)
"""The gain of each signal over those before it."""
WITHOUT = (
    SearchVariant("meaning", replace(RECIPE, vector=0.0)),
    SearchVariant("words", replace(RECIPE, text=0.0)),
    SearchVariant("who is named", replace(RECIPE, author=1.0)),
    SearchVariant("neighbours", replace(RECIPE, previous=(), following=())),
    SearchVariant("the busiest thread", replace(RECIPE, thread=0.0)),
    SearchVariant("the gate for long turns", replace(RECIPE, talkative=1e9)),
    SearchVariant("more to answers", replace(RECIPE, answer=1.0)),
    SearchVariant("less to questions", replace(RECIPE, question=1.0)),
    SearchVariant("dates", replace(RECIPE, date=1.0)),
    SearchVariant("times that are asked for", replace(RECIPE, time=1.0)),
    SearchVariant("numbers that are asked for", replace(RECIPE, number=1.0)),
    SearchVariant("names that are asked for", replace(RECIPE, name=1.0)),
    SearchVariant("less to short turns", replace(RECIPE, length=0.0)),
    SearchVariant("weights: reciprocal ranks", replace(RECIPE, fusion="rrf", text=1.0, vector=1.0)),
)
"""The loss without each signal of the recipe."""


@dataclass(frozen=True)
class Row:
    """The results of one way to search."""

    data: str
    index: str
    part: str
    """`whole`, `models`, `rivals`, `category`, `steps` or `without`."""
    name: str
    quality: Quality


@dataclass(frozen=True)
class BudgetRow:
    """What `store.recall` brings within a budget of tokens."""

    data: str
    index: str
    questions: int
    evidence: float
    """Share of the relevant turns that are among the records, averaged over questions."""
    items: float
    """Records of an answer, averaged."""
    tokens: float
    """Tokens of an answer as `recall` counts them, averaged."""
    unanswered: int
    """Questions with an answer in the conversation for which it brings nothing."""


@dataclass(frozen=True)
class ScoreRow:
    """Whether scores are what they say, and how long a search takes."""

    data: str
    index: str
    hits: int
    error: float
    """Expected calibration error over ten bins of equal width."""
    said: float
    """Mean score of the first hit of a question with an answer."""
    found: float
    """How many of these hits are relevant."""
    unrelated: float
    """Mean score of the first hit of a question that has nothing to do with any conversation."""
    p50_ms: float
    p95_ms: float
    """Of searches one after the other, with embeddings that are not cached."""


@dataclass
class RetrievalResults:
    """All measurements of a run."""

    machine: dict[str, str]
    quick: bool
    rows: list[Row] = field(default_factory=list)
    budgets: list[BudgetRow] = field(default_factory=list)
    scores: list[ScoreRow] = field(default_factory=list)
    pairs: list[ThresholdRates] = field(default_factory=list)

    def of(self, part: str, data: str, index: str = "") -> list[Row]:
        """Return the rows of a part."""
        return [row for row in self.rows if (row.part, row.data) == (part, data) and index in {"", row.index}]


# -- measuring -------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(index: str, models: Models) -> AsyncIterator[Hub]:
    """Open a hub with a private server that searches, or one that cannot, so that this process does."""
    with tempfile.TemporaryDirectory(prefix="sm-eval-") as folder:
        settings = Settings(
            redis_url=None,
            data_dir=Path(folder),
            durable_url="none",
            embedder=models.embedder,
            reranker=models.reranker,
            embedded_modules=() if index == EXACT else ("search",),
            connect_timeout_s=60,
        )
        async with Hub.open(settings=settings) as hub:
            yield hub


async def fill(hub: Hub, data: Conversations, index: str, *, bare: bool) -> dict[str, SharedMemoryStore]:
    """Add all turns, each conversation in a namespace of its own; return the stores by group."""
    stores = {}
    for group, turns in data.turns.items():
        stores[group] = store = hub.store(f"{data.name}-{group}")
        if index == OWN:
            await hub.index.promote(store.namespace)
        # Repeated turns are kept.
        await store.memory.add_many([turn.as_text() if bare else turn.as_turn() for turn in turns], dedup=False)
    return stores


async def answers(
    stores: dict[str, SharedMemoryStore], questions: Sequence[Question], way: SearchVariant, progress: Progress
) -> list[tuple[Question, list[str]]]:
    """Return the ids that a way of searching finds for each question, best first."""
    task = progress.add_task(way.name, total=len(questions))
    turnstile = asyncio.Semaphore(_AT_ONCE)

    async def ask(question: Question) -> tuple[Question, list[str]]:
        async with turnstile:
            recipe = way.recipe if way.mode == "hybrid" else None
            memory = stores[question.group].memory
            hits = await memory.search(question.text, limit=LARGEST, mode=way.mode, recipe=recipe)
        progress.advance(task)
        return question, [hit.item.id for hit in hits]

    found = await asyncio.gather(*map(ask, questions))
    progress.remove_task(task)
    return found


async def recalled(
    data: Conversations, index: str, stores: dict[str, SharedMemoryStore], progress: Progress
) -> BudgetRow:
    """Return how much of the evidence `store.recall` brings within a budget of tokens."""
    questions = [question for question in data.questions if question.category != UNANSWERABLE]
    task = progress.add_task(f"within {BUDGET} tokens", total=len(questions))
    turnstile = asyncio.Semaphore(_AT_ONCE)

    async def ask(question: Question) -> RecalledContext:
        async with turnstile:
            known = await stores[question.group].recall(question.text, tokens=BUDGET)
        progress.advance(task)
        return known

    found = await asyncio.gather(*map(ask, questions))
    progress.remove_task(task)
    ids = [{item.id for item in known.items} for known in found]
    shares = [len(one.relevant & own) / len(one.relevant) for one, own in zip(questions, ids, strict=True)]
    return BudgetRow(
        data=data.name,
        index=index,
        questions=len(questions),
        evidence=fmean(shares),
        items=fmean(map(len, ids)),
        tokens=fmean(known.tokens for known in found),
        unanswered=sum(not own for own in ids),
    )


async def scored(data: Conversations, index: str, stores: dict[str, SharedMemoryStore], progress: Progress) -> ScoreRow:
    """Return how reliable the scores of searches are, and how long searches take, one after the other."""
    questions = [question for question in data.questions if question.category != UNANSWERABLE]
    task = progress.add_task("scores and times", total=len(questions))
    likely: list[float] = []
    relevant: list[float] = []
    first: list[tuple[float, bool]] = []
    times: list[float] = []
    for question in questions:
        hits = await stores[question.group].memory.search(question.text, limit=10)
        times.append(hits.cost.milliseconds)
        likely += [hit.score for hit in hits]
        relevant += [float(hit.item.id in question.relevant) for hit in hits]
        first += [(hit.score, hit.item.id in question.relevant) for hit in hits[:1]]
        progress.advance(task)
    asked = [await store.memory.search(text, limit=1) for store in stores.values() for text in GENERAL]
    progress.remove_task(task)
    return ScoreRow(
        data=data.name,
        index=index,
        hits=len(likely),
        error=calibration_error(np.array(likely), np.array(relevant), equal_width=True),
        said=fmean(score for score, _ in first),
        found=fmean(is_relevant for _, is_relevant in first),
        unrelated=fmean(hit.score for hits in asked for hit in hits),
        p50_ms=float(np.percentile(times, 50)),
        p95_ms=float(np.percentile(times, 95)),
    )


class IndexMeasurement(NamedTuple):
    """What was measured of one index with one set."""

    rows: list[Row]
    budgets: list[BudgetRow]
    scores: list[ScoreRow]


async def measure(
    data: Conversations, index: str, progress: Progress, *, models: Models, parts: Sequence[str]
) -> IndexMeasurement:
    """Return how well one index answers the questions of a set; optionally also the value of each signal."""
    answerable = [question for question in data.questions if question.category != UNANSWERABLE]
    async with opened(index, models) as hub, opened(index, models) as bare_hub:
        if hub.powers.search == (index == EXACT):
            print(f"{index}: not measured, as this system has no query engine", file=sys.stderr)
            return IndexMeasurement([], [], [])
        stores = await fill(hub, data, index, bare=False)
        scores = [await scored(data, index, stores, progress)]
        rows = list(_whole_rows(data, index, await answers(stores, data.questions, WHOLE, progress)))
        budgets = [await recalled(data, index, stores, progress)]
        if not parts:
            return IndexMeasurement(rows, budgets, scores)
        bare = await fill(bare_hub, data, index, bare=True)
        for part in parts:
            for way in {"steps": STEPS, "without": WITHOUT}[part]:
                found = await answers(bare if way.bare else stores, answerable, way, progress)
                rows.append(Row(data.name, index, part, way.name, quality_of(found, data.sessions)))
    return IndexMeasurement(rows, budgets, scores)


async def compare(data: Conversations, models: Models, progress: Progress) -> IndexMeasurement:
    """Return how well other models do with the recipe, on an index of the server."""
    async with opened(OWN, models) as hub:
        stores = await fill(hub, data, OWN, bare=False)
        named = models.embedder if models.reranker == "none" else f"{models.embedder}, reranked by {models.reranker}"
        scores = [replace(await scored(data, OWN, stores, progress), index=named)]
        answerable = [question for question in data.questions if question.category != UNANSWERABLE]
        quality = quality_of(await answers(stores, answerable, WHOLE, progress), data.sessions)
        budgets = [replace(await recalled(data, OWN, stores, progress), index=named)]
        return IndexMeasurement([Row(data.name, named, "models", named, quality)], budgets, scores)


async def similarities(pairs: Sequence[Pair], embedder: str) -> list[ThresholdRates]:
    """Return what each threshold hits with an embedder."""
    opened_embedder = open_embedder(Settings(embedder=embedder), SystemClock(), Counters())
    if opened_embedder is None:
        return []
    return await rates_by_threshold(pairs, opened_embedder)


def rival_rows(data: Conversations, embedder: str) -> Iterator[Row]:
    """Yield what other stores find with the same embedder."""
    from retrieval_rivals import RIVALS, rival_answers  # noqa: PLC0415  only this needs LangGraph

    answerable = [question for question in data.questions if question.category != UNANSWERABLE]
    asked = Conversations(data.name, data.turns, answerable)
    for name in RIVALS:
        found = rival_answers(name, asked, embedder, LARGEST)
        named = f"{name}, {embedder}"
        yield Row(data.name, named, "rivals", named, quality_of(found, data.sessions))


def _whole_rows(data: Conversations, index: str, found: Sequence[tuple[Question, list[str]]]) -> Iterator[Row]:
    sessions = data.sessions
    counted = [answer for answer in found if answer[0].category != UNANSWERABLE]
    yield Row(data.name, index, "whole", WHOLE.name, quality_of(counted, sessions))
    for category in dict.fromkeys(question.category for question, _ in found):
        some = [answer for answer in found if answer[0].category == category]
        yield Row(data.name, index, "category", category, quality_of(some, sessions))


# -- goals -----------------------------------------------------------------------------------------


def verdicts(findings: RetrievalResults) -> list[Verdict]:
    """Return the goals, and whether they were reached."""
    goals = []
    for data, least in LEAST_RECALL.items():
        found = {row.index: row.quality.recall[10] for row in findings.of("whole", data)}
        for index in INDEXES:
            value = found.get(index)
            shown, met = ("", None) if value is None else (f"{value:.3f}", value >= least)
            goals.append(Verdict(f"recall@10 on {data} at least {least} ({index})", shown, met))
        errors = [
            row.error for row in findings.scores if row.data == data and row.index == OWN and row.hits >= FEWEST_HITS
        ]
        shown, met = (f"{errors[0]:.3f}", errors[0] <= MOST_ERROR) if errors else ("", None)
        goals.append(Verdict(f"calibration error on {data} at most {MOST_ERROR}", shown, met))
        both = [found[index] for index in (OWN, EXACT) if index in found]
        apart = abs(both[0] - both[1]) if len(both) == 2 else None
        shown, met = ("", None) if apart is None else (f"{apart:.3f}", apart <= MOST_APART)
        goals.append(Verdict(f"{OWN} and {EXACT} within {MOST_APART} on {data}", shown, met))
    return goals


# -- reports ---------------------------------------------------------------------------------------

FIGURES = (*(f"recall@{depth}" for depth in DEPTHS), "sessions@10", "hit@10", "MRR", "nDCG@10")
SCORE_FIGURES = ("", "hits", "error", "first hit: said", "first hit: found", "unrelated: said", "p50 ms", "p95 ms")
BUDGET_FIGURES = ("", "questions", "evidence", "records", "tokens", "unanswered")
TITLES = {
    "whole": "The recipe, by index",
    "models": "The recipe, by embedder",
    "rivals": "Other stores, which find by vectors alone",
    "category": "By category of question",
    "steps": "Step by step",
    "without": "The recipe without one signal",
}


def tables(findings: RetrievalResults) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield title, names of the columns and rows of each table."""
    for data in dict.fromkeys(row.data for row in findings.rows):
        for part, title in TITLES.items():
            by_index = part in {"whole", "models", "rivals"}
            rows = findings.of(part, data, "" if by_index else OWN) or findings.of(part, data)
            if rows:
                cells = [[row.index if by_index else row.name, *_cells(row.quality)] for row in rows]
                yield f"{data}: {title[0].lower()}{title[1:]}", ["", "questions", *FIGURES], cells
            if part == "models" and (budgets := [row for row in findings.budgets if row.data == data]):
                about = f"{data}: evidence that `recall` brings within {BUDGET:,} tokens"
                yield about, list(BUDGET_FIGURES), [_budget_cells(row) for row in budgets]
            if part == "models" and (scores := [row for row in findings.scores if row.data == data]):
                about = f"{data}: whether scores are probabilities, and the time of a search"
                yield about, list(SCORE_FIGURES), [_score_cells(row) for row in scores]
    if findings.pairs:
        names = ["cosine at least", "same: hit", "different: hit", "same: hit, guarded", "different: hit, guarded"]
        cells = [
            [one.threshold, *(f"{100 * share:.1f} %" for share in (one.same, one.different, *one.guarded))]
            for one in findings.pairs
        ]
        yield "Pairs of questions: what a threshold lets through", names, cells


def _score_cells(row: ScoreRow) -> list[str]:
    figures = (f"{figure:.3f}" for figure in (row.error, row.said, row.found, row.unrelated))
    return [row.index, str(row.hits), *figures, f"{row.p50_ms:.1f}", f"{row.p95_ms:.1f}"]


def _budget_cells(row: BudgetRow) -> list[str]:
    averages = (f"{row.items:.1f}", f"{row.tokens:.0f}")
    return [row.index, str(row.questions), f"{row.evidence:.3f}", *averages, str(row.unanswered)]


def _cells(quality: Quality) -> list[str]:
    figures = (*quality.recall.values(), quality.sessions, quality.hit, quality.mrr, quality.ndcg)
    return [str(quality.questions), *(f"{figure:.3f}" for figure in figures)]


def show(findings: RetrievalResults, goals: Sequence[Verdict]) -> None:
    """Print the tables."""
    console = Console()
    console.width = max(console.width, 150)
    for title, names, rows in tables(findings):
        table = Table(title=title)
        for place, name in enumerate(names):
            table.add_column(name, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for goal in goals:
        console.print(f"{goal.goal}: {goal.found} [bold]{goal.word}[/]")


def save(findings: RetrievalResults, goals: Sequence[Verdict], path: Path) -> None:
    """Write everything as JSON."""
    plain: dict[str, Any] = {
        "machine": findings.machine,
        "quick": findings.quick,
        "recipe": asdict(RECIPE),
        "rows": [asdict(row) | {"quality": row.quality._asdict()} for row in findings.rows],
        "budgets": [asdict(row) for row in findings.budgets],
        "scores": [asdict(row) for row in findings.scores],
        "pairs": [one._asdict() for one in findings.pairs],
        "goals": [asdict(goal) | {"verdict": goal.word} for goal in goals],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def put_on_page(findings: RetrievalResults, goals: Sequence[Verdict], page: Path) -> None:
    """Replace the text between the markers of a page.

    Raises:
        ValueError: the page has no such markers.
    """
    begin, end = "<!-- retrieval: begin -->", "<!-- retrieval: end -->"
    text = page.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise ValueError(f"{page} has no lines {begin} and {end} to write between")
    before, after = text.split(begin)[0], text.split(end)[-1]
    body = "\n".join([begin, "", *_page_lines(findings, goals), "", end])
    page.write_text(before + body + after, encoding="utf-8")


def _page_lines(findings: RetrievalResults, goals: Sequence[Verdict]) -> Iterator[str]:
    yield from ("| goal | found | |", "|---|---|---|")
    yield from (f"| {goal.goal} | {goal.found} | {goal.word} |" for goal in goals)
    for title, names, rows in tables(findings):
        yield from ("", f"### {title}", "", f"| {' | '.join(names)} |", "|---" + "|---:" * (len(names) - 1) + "|")
        yield from (f"| {' | '.join(row)} |" for row in rows)


# -- the command -----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the contests of the command line."""
    asked = _arguments(arguments)
    every = 5 if asked.quick else 1
    models = Models(asked.embedder, asked.reranker)
    findings = RetrievalResults(machine() | models._asdict(), asked.quick)
    with _progress() as progress:
        for name in SETS:
            folder = asked.data / name
            if asked.only in {None, name} and folder.is_dir():
                data = read_conversations(folder, every=every)
                for index in INDEXES if asked.index is None else (asked.index,):
                    is_first = index == (asked.index or OWN)
                    parts = [part for part in PARTS if is_first and not getattr(asked, f"no_{part}")]
                    found = asyncio.run(measure(data, index, progress, models=models, parts=parts))
                    findings.rows += found.rows
                    findings.budgets += found.budgets
                    findings.scores += found.scores
                if asked.rivals:
                    findings.rows += rival_rows(data, models.embedder)
                for others in map(models_of, asked.compare or ()):
                    found = asyncio.run(compare(data, others, progress))
                    findings.rows += found.rows
                    findings.budgets += found.budgets
                    findings.scores += found.scores
        file = asked.data / PAIRS / "questions.jsonl.gz"
        if asked.only in {None, PAIRS} and file.is_file():
            findings.pairs = asyncio.run(similarities(read_pairs(file, every=every), asked.embedder))
    if not findings.rows and not findings.pairs:
        print(f"nothing to measure in {asked.data}; retrieval_data.py beside this describes it", file=sys.stderr)
        return 2
    goals = verdicts(findings)
    show(findings, goals)
    save(findings, goals, asked.json)
    if asked.page:
        put_on_page(findings, goals, asked.page)
    return 0


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Whether recall finds the right memory.")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="conversations, questions and pairs")
    parser.add_argument("--only", choices=(*SETS, PAIRS), help="one of them")
    parser.add_argument("--index", choices=INDEXES, help="one index instead of all")
    parser.add_argument(
        "--embedder", default="wordllama", metavar="NAME", help="wordllama, onnx, ... (docs/providers.md)"
    )
    parser.add_argument("--reranker", default="none", metavar="NAME", help="none, onnx, ...")
    more = "also measure the recipe with another embedder, such as onnx, or embedder+reranker; minutes for long texts"
    parser.add_argument("--compare", action="append", metavar="NAME", help=more)
    parser.add_argument("--rivals", action="store_true", help="also measure other stores (retrieval_rivals.py)")
    parser.add_argument("--no-steps", action="store_true", help="leave out what each step is worth")
    parser.add_argument("--no-without", action="store_true", help="leave out the recipe without each signal")
    parser.add_argument("--quick", action="store_true", help="every fifth question and pair: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose figures to replace")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
