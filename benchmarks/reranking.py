"""What a local cross-encoder gains over the ranking alone, without a server.

python benchmarks/reranking.py --data FOLDER                      LoCoMo, LongMemEval and BEAM with bge-small
python benchmarks/reranking.py --data FOLDER --only locomo        one of them
python benchmarks/reranking.py --data FOLDER --embedder wordllama another first order

The first hits of each question are scored as a search does it, and mixed with the first order. A question takes about
0.2 s of one core, and the first run minutes more for the vectors of sentence models, which are kept in a folder. The
data is described in retrieval_data.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ranking_lab import Lab, LabQuestion, VectorFolder, prepare
from retrieval_data import Conversations, Turn, read_conversations
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sharedmem.memory.ranking import RankedMemory, rank, rerank_by_scores
from sharedmem.memory.relevance import ServiceReranker, learned_weights
from sharedmem.providers.onnx import OnnxReranker
from sharedmem.runtime import Counters

SETS = ("locomo", "longmemeval", "beam")
DEPTHS = (1, 5, 10, 20)
_BUDGET_MS = 600_000


class RerankedRecall(NamedTuple):
    """Recall of a set of conversations at each of `DEPTHS`, for questions that it answers."""

    data: str
    embedder: str
    questions: int
    first: list[float]
    reranked: list[float]


class _Reranking:
    """Reranks the first hits of questions as a search does."""

    def __init__(self, lab: Lab, data: Conversations, top: int) -> None:
        self._lab = lab
        self._weights = learned_weights(lab.embedder)
        self._turns = {(turn.session, turn.position): turn for turns in data.turns.values() for turn in turns}
        self._service = ServiceReranker(OnnxReranker(), Counters(), budget_ms=_BUDGET_MS)
        self._top = top

    async def orders(self, question: LabQuestion) -> tuple[list[str], list[str]]:
        """Return the ids of the first hits before and after reranking."""
        first = rank(question.text, question.found, question.neighbours, self._weights, now_ms=0)[: self._top]
        turns = [self._lab.turns[hit.id] for hit in first]
        before = {turn.id: one.as_turn() for turn in turns if (one := self._before(turn)) is not None}
        scores = await self._service.scores(question.text, [turn.as_turn() for turn in turns], before)
        if scores is None:
            raise TimeoutError(f"the reranker did not answer within {_BUDGET_MS} ms")
        return _ids(first), _ids(rerank_by_scores(first, scores, explain=False))

    def _before(self, turn: Turn) -> Turn | None:
        return self._turns.get((turn.session, turn.position - 1))


def _ids(order: Sequence[RankedMemory]) -> list[str]:
    return [hit.id for hit in order]


async def measure(data: Conversations, name: str, embedder: str, vectors: Path, top: int) -> RerankedRecall:
    """Return the recall of one set of conversations with and without the reranker."""
    lab = await asyncio.to_thread(prepare, [data], VectorFolder(embedder, vectors), small=False)
    asked = [question for question in lab.questions if question.kind == "own"]
    reranking = _Reranking(lab, data, top)
    found = [await reranking.orders(question) for question in track(asked, name, console=Console(stderr=True))]
    shares = [
        [
            sum(
                len(question.relevant.intersection(orders[side][:depth])) / len(question.relevant)
                for question, orders in zip(asked, found, strict=True)
            )
            / len(asked)
            for depth in DEPTHS
        ]
        for side in (0, 1)
    ]
    return RerankedRecall(name, lab.embedder, len(asked), *shares)


def main() -> int:
    """Measure the sets of the command line."""
    parser = argparse.ArgumentParser(description="What a local cross-encoder gains over the ranking alone.")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="a folder with a folder for each set"
    )
    parser.add_argument("--only", choices=SETS, help="one set")
    parser.add_argument("--embedder", default="onnx", metavar="NAME", help="the embedder of the first order")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="hits that are reranked")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th question")
    parser.add_argument(
        "--vectors",
        type=Path,
        default=Path(tempfile.gettempdir()) / "sharedmem-vectors",
        metavar="FOLDER",
        help="where vectors are kept",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the figures go")
    asked = parser.parse_args()
    found = [
        asyncio.run(
            measure(
                read_conversations(asked.data / name, every=asked.every), name, asked.embedder, asked.vectors, asked.top
            )
        )
        for name in ([asked.only] if asked.only else SETS)
    ]
    table = Table("data", "embedder", "questions", *(f"@{depth}" for depth in DEPTHS), title="first order, reranked")
    for one in found:
        cells = [f"{before:.3f}, {after:.3f}" for before, after in zip(one.first, one.reranked, strict=True)]
        table.add_row(one.data, one.embedder, str(one.questions), *cells)
    Console().print(table)
    if asked.json:
        asked.json.write_text(json.dumps([one._asdict() for one in found], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
