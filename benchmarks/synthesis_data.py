"""The data of the benchmark of synthesis: conversations, a model that answers at once, and vectors for both sides.

Each topic has two conversations: the second adds to the note of the first, and both are consolidated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from sharedmem.models import Note
from sharedmem.providers.protocol import ChatMessage, Embedder, Embeddings, Model, Purpose
from sharedmem.redis.vectors import Vector
from sharedmem.store import SharedMemoryStore
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.protocol import NewNote

APP, SESSION = "bench-app-0001", "bench-session"
USERS = 10
DIMENSION = 256
_AT_ONCE = 500
_NEAR = 0.1
"""The distance of notes of one topic."""
_SUBJECT = re.compile(r"\b(subject [a-z]{8})\b")
_WORDS = (
    "the invoice of the supplier was paid late and finance wants to know why",
    "the release was moved by a week because a test of the installer had failed",
    "the customer prefers calls in the morning and answers letters slowly",
    "the warehouse counts its stock on the first Monday of each month",
    "the new contract has to be signed by both founders before it is sent",
    "the dashboard shows the figures of yesterday until the nightly job has run",
)


def user_of(number: int) -> str:
    """Return the user of a conversation."""
    return f"bench-user-{number % USERS:04}"


def subject_of(topic: int) -> str:
    """Return the subject of a conversation: a word that no other topic has."""
    letters = [chr(97 + topic // 26**place % 26) for place in range(8)]
    return f"subject {''.join(letters)}"


def conversation(number: int) -> list[dict[str, str]]:
    """Return ten messages; conversations 2n and 2n + 1 have the same subject."""
    subject = subject_of(number // 2)
    remarks = (_WORDS[(number + turn) % len(_WORDS)] for turn in range(0, 10, 2))
    lines = [(f"About {subject}: {line}.", f"Noted for {subject}, I shall come back to it.") for line in remarks]
    return [
        {"role": role, "content": line}
        for pair in lines
        for role, line in zip(("user", "assistant"), pair, strict=True)
    ]


def question(number: int) -> str:
    """Return a question whose answer is in a note."""
    return f"What is known about {subject_of(number * 7 % 1000)}, and what came of it that {_WORDS[number % 6]}?"


# -- the model -------------------------------------------------------------------------------------


class StubReading(NamedTuple):
    """A model's analysis of a conversation: the same for both sides."""

    episodic: dict[str, Any]
    summary: dict[str, Any]


def reading_of(text: str) -> StubReading:
    """Return the analysis of a conversation about a subject."""
    found = _SUBJECT.search(text)
    subject = found[1] if found else "nothing in particular"
    lines = [line for line in _WORDS if line in text]
    return StubReading(
        {
            "context": {"user_intent": f"To settle what is open about {subject}."},
            "what_worked": {"strategies": [f"Short answers about {subject}"], "pattern": "They saved time."},
            "what_failed": {"strategies": [], "pattern": ""},
            "behavioral_profile": {"communication": "Brief and factual.", "decision_making": "Decides at once."},
            "interaction_insights": {"optimal_approach": f"Facts about {subject} come first."},
            "future_guidance": {"recommended_approaches": [f"Come back to {subject}"], "adaptation_note": "Be brief."},
        },
        {
            "context": {"content_scope": f"What is open about {subject}."},
            "narrative": f"They talked about {subject}. It was said that {'; that '.join(lines)}.",
            "retrieval": {"tags": [subject, "open matters"], "keywords": [subject, "bench"], "queries": []},
            "metadata": {"depth": "medium", "follow_ups": [f"Whether {subject} was settled"]},
        },
    )


class StubModel:
    """A language model with prepared answers, which it returns at once."""

    name = "bench:stub"
    is_remote = False

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Return an answer in the requested form, parsed as providers parse those of models."""
        return schema.model_validate_json(json.dumps(self._answer(messages[-1].content, schema.__name__)))

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:  # noqa: ARG002  # short
        """Return a short summary."""
        return str(reading_of(messages[-1].content).summary["narrative"])

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _answer(self, prompt: str, form: str) -> dict[str, Any]:
        match form:
            case "EpisodicOutput":
                return reading_of(prompt).episodic
            case "SummaryOutput":
                return reading_of(prompt).summary
            case "ConflictOutput":
                given = [line["handle"] for line in _given(prompt) if line["handle"].startswith("older")]
                return {"resolutions": [_update(handle.removeprefix("older note ")) for handle in given]}
        return consolidated([line["text"] for line in _given(prompt)])


def _given(prompt: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in prompt.splitlines() if line.startswith("{")]


def _update(memory_id: str) -> dict[str, Any]:
    return {"memory_id": memory_id, "operation": "UPDATE", "confidence_score": 0.9, "reasoning": "The same subject."}


def decisions(ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the verdicts on older notes: all of them are consolidated."""
    return [_update(id_) for id_ in ids]


def consolidated(texts: Sequence[str]) -> dict[str, Any]:
    """Return one note out of several, with each line once."""
    lines = dict.fromkeys(line for text in texts for line in text.splitlines())
    merged = {"memories_merged": len(texts), "quality_check": "pass", "notes": "Each line once."}
    return {"consolidated_memory": {"natural_memory_note": "\n".join(lines)}, "synthesis_metadata": merged}


# -- vectors ---------------------------------------------------------------------------------------


class SubjectEmbedder:
    """Vectors by subject: notes of one subject are near, all others are unrelated; it takes almost no time."""

    name = "bench:subjects"
    dimension = DIMENSION
    is_remote = False

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  # both
        """Return a vector for each text."""
        return Embeddings(np.stack([_near(text) for text in texts]), 0)

    async def close(self) -> None:
        """Do nothing: there are no connections."""


def _near(text: str) -> Vector:
    found = _SUBJECT.search(text)
    vector = _noise(found[1] if found else text) + _NEAR * _noise(text)
    unit: Vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def _noise(text: str) -> Vector:
    drawn: Vector = np.random.default_rng(crc32(text.encode())).normal(size=DIMENSION).astype(np.float32)
    return drawn


# -- stored notes ----------------------------------------------------------------------------------


def note_of(number: int) -> Note:
    """Return a note as the pipeline would store it."""
    read, now = reading_of("\n".join(message["content"] for message in conversation(2 * number))), datetime.now(UTC)
    return Note(
        id=f"note-{number:08}",
        app_id=APP,
        user_id=user_of(number),
        memory_note=read.summary["narrative"],
        tags=tuple(read.summary["retrieval"]["tags"]),
        keywords=tuple(read.summary["retrieval"]["keywords"]),
        created_at=now,
        updated_at=now,
        chain_id=f"note-{number:08}",
        task_id=f"task-{number:08}",
    )


async def filled_notes(store: SharedMemoryStore, size: int, embedder: Embedder) -> None:
    """Put notes into the repository of a namespace without the pipeline."""
    repository = RedisNoteRepository(store._knowledge_context(), store._scope)  # noqa: SLF001  # no other code fills a repository like this
    for notes in _batches(size):
        vectors = (await embedder.embed([note.memory_note for note in notes])).vectors
        await repository.commit(APP, fresh=[NewNote(note, vector) for note, vector in zip(notes, vectors, strict=True)])


def _batches(size: int) -> Iterator[list[Note]]:
    for first in range(0, size, _AT_ONCE):
        yield [note_of(number) for number in range(first, min(first + _AT_ONCE, size))]
