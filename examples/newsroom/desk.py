"""The shared definitions of the newsroom's agents: the names of the keys, the task, and the form of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict
from reading import Fact, Reading

from sharedmem import SharedMemoryStore

NAMESPACE = "newsroom"
TASK = "newsroom:shared:task"
START = "newsroom:shared:start"
PRESENT = "newsroom:shared:present"
DONE = "newsroom:shared:done"
COMPLETIONS = "newsroom:shared:completions"
REFUSED = "newsroom:shared:refused-claims"
STATEMENTS = "newsroom:shared:statements"
CHAT = "newsroom:shared:chat"
REPORT = "newsroom:shared:report"
REVIEW = "newsroom:shared:review"
END = "newsroom:shared:end"
CLAIMS = "newsroom:claims:*"
ANSWER = "newsroom:shared:answer"
MEMORIES = "newsroom:$memory:*"
QUESTION = "How high did the water peak on the Customs House gauge?"

CHAT_LENGTH = 500
PAGES = 4
LINGERING_PAGES = 10_000
MOST_REMEMBERED = 6
SILENT_S = 2.0
_BEGINNING = 0


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True)


class Task(_Note):
    """The editor's task, and the thinking time of the agents."""

    folder: str
    documents: dict[str, str]
    """File name of each document, by its short name."""
    report: str
    """Path of the file that the writer writes and the reviewer completes."""
    think_s: float
    lease_s: float
    visited: bool = False
    """Whether somebody looks on: then agents say that they are there, remember what they read, and one stays."""


class Claim(_Note):
    """The holder of a document, and its progress; its version changes with every page."""

    by: str
    state: Literal["reading", "done"]
    page: int = 0
    pages: int = PAGES
    findings: str = ""
    """Key of the reading, once done."""
    findings_version: int = 0


class Review(_Note):
    """The reviewer's findings, in short form for the summary."""

    contradictions: tuple[Fact, ...]
    duplicates: tuple[tuple[str, str], ...]


def claim_key(document: str) -> str:
    """Return the key of the claim of a document, in a scope that every researcher was granted."""
    return f"newsroom:claims:{document}"


def findings_key(actor: str, document: str) -> str:
    """Return the key of an agent's reading: in its own scope, where no other agent may write."""
    return f"newsroom:{actor}:findings:{document}"


async def say(store: SharedMemoryStore, who: str, text: str) -> None:
    """Append a line to the group chat. One round trip."""
    await store.append(CHAT, {"by": who, "says": text}, max_length=CHAT_LENGTH)


async def claims_of(store: SharedMemoryStore, documents: Sequence[str]) -> dict[str, Claim | None]:
    """Return the claim of every document, None for the free ones. One round trip."""
    keys = {claim_key(document): document for document in documents}
    found = await store.read_many(list(keys))
    return {document: Claim.model_validate(found[key]) if found.get(key) else None for key, document in keys.items()}


async def readings_of(store: SharedMemoryStore, documents: Sequence[str]) -> tuple[list[Reading], dict[str, str]]:
    """Return the reading of each finished claim, and its reader. Two round trips."""
    claims = {name: claim for name, claim in (await claims_of(store, documents)).items() if claim and claim.findings}
    found = await store.read_many([claim.findings for claim in claims.values()])
    readings = [Reading.model_validate(value) for value in found.values()]
    return readings, {name: claim.by for name, claim in claims.items()}


async def written_at(store: SharedMemoryStore, key: str) -> object:
    """Wait until another agent writes the key and return its value; the change feed notifies, without polling."""
    # From the beginning of the feed: a key that was written earlier has its change there.
    async for _ in store.watch(key, since=_BEGINNING):
        value = await store.read(key)
        if value is not None:
            return value
    message = f"the change feed ended before {key} was written"
    raise RuntimeError(message)


async def all_done(store: SharedMemoryStore, total: int) -> None:
    """Wait until the set of finished documents has `total` members."""
    async for _ in store.watch(DONE, since=_BEGINNING):
        if await store.scard(DONE) >= total:
            return
