"""Conversations, questions about them and pairs of questions, from a folder of measurement data.

`<set>/items.jsonl.gz`     one turn a line: id, group, session, speaker, timestamp, text
`<set>/queries.jsonl.gz`   one question a line: id, group, category, text, relevant (ids of the turns that answer it)
`pairs/questions.jsonl.gz` two questions a line: a, b, same (1 when one answer fits both)
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log2
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from sharedmem.models import MemoryItem, MemoryMessage

UNANSWERABLE = "adversarial"
"""Questions of this category have no answer in the conversation; the headline leaves them out."""
DEPTHS = (1, 5, 10, 20)
DEPTH = 10


class Turn(NamedTuple):
    """A turn of a conversation."""

    id: str
    session: str
    position: int
    """Position in its session, from 0."""
    speaker: str
    at: datetime
    text: str

    def as_turn(self) -> MemoryItem:
        """Return the memory of it with author, time and addressee."""
        role = "agent" if self.speaker == "assistant" else "user"
        message = MemoryMessage(role=role, name=self.speaker, content=self.text, timestamp=self.at)
        return self.as_text().model_copy(update={"messages": (message,)})

    def as_text(self) -> MemoryItem:
        """Return the memory of its words only."""
        return MemoryItem(
            id=self.id, thread_id=self.session, turn_index=self.position, memory=self.text, timestamp=self.at
        )


class Question(NamedTuple):
    """A question about a conversation."""

    id: str
    group: str
    category: str
    text: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class Conversations:
    """A set of conversations, by group, and the questions about them."""

    name: str
    turns: dict[str, list[Turn]]
    questions: list[Question]

    @property
    def sessions(self) -> dict[str, str]:
        """The session of each turn."""
        return {turn.id: turn.session for turns in self.turns.values() for turn in turns}


class Pair(NamedTuple):
    """Two questions, and whether one answer fits both."""

    a: str
    b: str
    same: bool


def read_conversations(folder: Path, *, every: int = 1) -> Conversations:
    """Return the set in a folder, with the first of every so many questions.

    Raises:
        FileNotFoundError: the folder is not such a set.
    """
    turns: dict[str, list[Turn]] = {}
    lengths: dict[str, int] = {}
    for line in _lines(folder / "items.jsonl.gz"):
        session, at = line["session"], datetime.fromisoformat(line["timestamp"])
        position = lengths.get(session, 0)
        lengths[session] = position + 1
        turn = Turn(line["id"], session, position, line["speaker"], at, line["text"])
        turns.setdefault(line["group"], []).append(turn)
    questions = [
        Question(line["id"], line["group"], line["category"], line["text"], frozenset(line["relevant"]))
        for line in _lines(folder / "queries.jsonl.gz")
    ]
    return Conversations(folder.name, turns, questions[::every])


def read_pairs(path: Path, *, every: int = 1) -> list[Pair]:
    """Return the pairs of a file.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    return [Pair(line["a"], line["b"], bool(line["same"])) for line in _lines(path)][::every]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


# -- quality of answers ----------------------------------------------------------------------------


class Quality(NamedTuple):
    """The quality of answers, from 0 to 1, over some questions."""

    questions: int
    recall: dict[int, float]
    """Share of the relevant turns that are among the first so many."""
    sessions: float
    """Share of the sessions with a relevant turn of which any turn is among the first ten."""
    hit: float
    """Share of questions with a relevant turn among the first ten."""
    mrr: float
    """One divided by the rank of the first relevant turn."""
    ndcg: float
    """Recall at ten, with a higher weight of earlier ranks."""


def quality_of(answers: Sequence[tuple[Question, Sequence[str]]], sessions: Mapping[str, str]) -> Quality:
    """Return the mean over questions and the returned ids, best first.

    Args:
        answers: each question with the ids.
        sessions: the session of each turn.
    """
    return Quality(
        questions=len(answers),
        recall={
            depth: fmean(len(asked.relevant & set(ids[:depth])) / len(asked.relevant) for asked, ids in answers)
            for depth in DEPTHS
        },
        sessions=fmean(_share_of_sessions(asked.relevant, ids[:DEPTH], sessions) for asked, ids in answers),
        hit=fmean(not asked.relevant.isdisjoint(ids[:DEPTH]) for asked, ids in answers),
        mrr=fmean(_reciprocal_rank(asked.relevant, ids) for asked, ids in answers),
        ndcg=fmean(_discounted_gain(asked.relevant, ids[:DEPTH]) for asked, ids in answers),
    )


def _share_of_sessions(relevant: frozenset[str], ids: Sequence[str], sessions: Mapping[str, str]) -> float:
    wanted = {sessions[id_] for id_ in relevant}
    return len(wanted & {sessions[id_] for id_ in ids}) / len(wanted)


def _reciprocal_rank(relevant: frozenset[str], ids: Sequence[str]) -> float:
    return next((1 / place for place, id_ in enumerate(ids, 1) if id_ in relevant), 0.0)


def _discounted_gain(relevant: frozenset[str], ids: Sequence[str]) -> float:
    gained = sum(1 / log2(place + 1) for place, id_ in enumerate(ids, 1) if id_ in relevant)
    best = sum(1 / log2(place + 1) for place in range(1, min(len(relevant), DEPTH) + 1))
    return gained / best
