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

from bench_report import Verdict
from harness import machine
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
LEAST_RECALL = {"locomo": 0.76, "longmemeval": 0.915}
MOST_APART = 0.01
SETS = tuple(LEAST_RECALL)
PAIRS = "pairs"
LARGEST = max(DEPTHS)
BUDGET = 1500
"""Tokens of a text that `store.recall` makes."""
_AT_ONCE = 4


class Models(NamedTuple):
    """What turns texts into vectors, and what reranks, as the settings name them."""

    embedder: str = "wordllama"
    reranker: str = "none"


class SearchVariant(NamedTuple):
    """One way to search."""

    name: str
    recipe: RankingWeights = RECIPE
    mode: SearchMode = "hybrid"
    bare: bool = False
    """Whether memories have no author, time and addressee."""


_STILL = replace(RECIPE, author=1.0, previous=(), following=(), answer=1.0, thread=0.0, question=1.0, date=1.0)
WHOLE = SearchVariant("the recipe")
STEPS = (
    SearchVariant("meaning alone", mode="semantic", bare=True),
    SearchVariant("words alone", mode="keywords", bare=True),
    SearchVariant("reciprocal ranks", replace(_STILL, fusion="rrf", text=1.0, vector=1.0), bare=True),
    SearchVariant("weighted sum", _STILL, bare=True),
    SearchVariant("+ date and speaker before the words, names out of the query", _STILL),
    SearchVariant("+ who is named", replace(_STILL, author=RECIPE.author)),
    SearchVariant("+ neighbours and thread", replace(RECIPE, answer=1.0, question=1.0, date=1.0)),
    SearchVariant("+ questions", replace(RECIPE, date=1.0)),
    SearchVariant("+ dates = the recipe"),
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
    SearchVariant("weights: reciprocal ranks", replace(RECIPE, fusion="rrf", text=1.0, vector=1.0)),
)
"""The loss without each signal of the recipe."""


@dataclass(frozen=True)
class Row:
    """The results of one way to search."""

    data: str
    index: str
    part: str
    """`whole`, `category`, `steps` or `without`."""
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


@dataclass
class RetrievalResults:
    """All measurements of a run."""

    machine: dict[str, str]
    quick: bool
    rows: list[Row] = field(default_factory=list)
    budgets: list[BudgetRow] = field(default_factory=list)
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


async def measure(
    data: Conversations, index: str, progress: Progress, *, models: Models, signals: bool
) -> tuple[list[Row], list[BudgetRow]]:
    """Return how well one index answers the questions of a set; optionally also the value of each signal."""
    answerable = [question for question in data.questions if question.category != UNANSWERABLE]
    async with opened(index, models) as hub, opened(index, models) as bare_hub:
        if hub.powers.search == (index == EXACT):
            print(f"{index}: not measured, as this system has no query engine", file=sys.stderr)
            return [], []
        stores = await fill(hub, data, index, bare=False)
        rows = list(_whole_rows(data.name, index, await answers(stores, data.questions, WHOLE, progress)))
        budgets = [await recalled(data, index, stores, progress)]
        if not signals:
            return rows, budgets
        bare = await fill(bare_hub, data, index, bare=True)
        for part, ways in (("steps", STEPS), ("without", WITHOUT)):
            for way in ways:
                found = await answers(bare if way.bare else stores, answerable, way, progress)
                rows.append(Row(data.name, index, part, way.name, quality_of(found)))
    return rows, budgets


async def similarities(pairs: Sequence[Pair], embedder: str) -> list[ThresholdRates]:
    """Return what each threshold hits with an embedder."""
    opened_embedder = open_embedder(Settings(embedder=embedder), SystemClock(), Counters())
    if opened_embedder is None:
        return []
    return await rates_by_threshold(pairs, opened_embedder)


def _whole_rows(data: str, index: str, found: Sequence[tuple[Question, list[str]]]) -> Iterator[Row]:
    counted = [answer for answer in found if answer[0].category != UNANSWERABLE]
    yield Row(data, index, "whole", WHOLE.name, quality_of(counted))
    for category in dict.fromkeys(question.category for question, _ in found):
        some = [answer for answer in found if answer[0].category == category]
        yield Row(data, index, "category", category, quality_of(some))


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
        both = [found[index] for index in (OWN, EXACT) if index in found]
        apart = abs(both[0] - both[1]) if len(both) == 2 else None
        shown, met = ("", None) if apart is None else (f"{apart:.3f}", apart <= MOST_APART)
        goals.append(Verdict(f"{OWN} and {EXACT} within {MOST_APART} on {data}", shown, met))
    return goals


# -- reports ---------------------------------------------------------------------------------------

FIGURES = (*(f"recall@{depth}" for depth in DEPTHS), "hit@10", "MRR", "nDCG@10")
BUDGET_FIGURES = ("", "questions", "evidence", "records", "tokens", "unanswered")
TITLES = {
    "whole": "The recipe, by index",
    "category": "By category of question",
    "steps": "Step by step",
    "without": "The recipe without one signal",
}


def tables(findings: RetrievalResults) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield title, names of the columns and rows of each table."""
    for data in dict.fromkeys(row.data for row in findings.rows):
        for part, title in TITLES.items():
            rows = findings.of(part, data, "" if part == "whole" else OWN) or findings.of(part, data)
            if rows:
                cells = [[row.index if part == "whole" else row.name, *_cells(row.quality)] for row in rows]
                yield f"{data}: {title[0].lower()}{title[1:]}", ["", "questions", *FIGURES], cells
            if part == "whole" and (budgets := [row for row in findings.budgets if row.data == data]):
                about = f"{data}: evidence that `recall` brings within {BUDGET:,} tokens"
                yield about, list(BUDGET_FIGURES), [_budget_cells(row) for row in budgets]
    if findings.pairs:
        names = ["cosine at least", "same: hit", "different: hit", "same: hit, guarded", "different: hit, guarded"]
        cells = [
            [one.threshold, *(f"{100 * share:.1f} %" for share in (one.same, one.different, *one.guarded))]
            for one in findings.pairs
        ]
        yield "Pairs of questions: what a threshold lets through", names, cells


def _budget_cells(row: BudgetRow) -> list[str]:
    averages = (f"{row.items:.1f}", f"{row.tokens:.0f}")
    return [row.index, str(row.questions), f"{row.evidence:.3f}", *averages, str(row.unanswered)]


def _cells(quality: Quality) -> list[str]:
    figures = (*quality.recall.values(), quality.hit, quality.mrr, quality.ndcg)
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
                    signals = index == (asked.index or OWN) and not asked.no_signals
                    rows, budgets = asyncio.run(measure(data, index, progress, models=models, signals=signals))
                    findings.rows += rows
                    findings.budgets += budgets
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
    parser.add_argument("--no-signals", action="store_true", help="leave out what each signal is worth")
    parser.add_argument("--quick", action="store_true", help="every fifth question and pair: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose figures to replace")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
