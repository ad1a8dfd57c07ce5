"""What the agents of the newsroom share: the names of the keys, the task, and how a claim looks."""

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

CHAT_LENGTH = 500
PAGES = 4
LINGERING_PAGES = 10_000
_BEGINNING = 0


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True)


class Task(_Note):
    """What the editor asks for, and how fast the agents pretend to think."""

    folder: str
    documents: dict[str, str]
    """File name of each document, by its short name."""
    report: str
    """Path of the file that the writer writes and the reviewer completes."""
    think_s: float
    lease_s: float


class Claim(_Note):
    """Who has a document, and how far it is; its version changes with every page."""

    by: str
    state: Literal["reading", "done"]
    page: int = 0
    pages: int = PAGES
    findings: str = ""
    """Key of the reading, once done."""
    findings_version: int = 0


class Review(_Note):
    """What the reviewer found, short enough for the summary."""

    contradictions: tuple[Fact, ...]
    duplicates: tuple[tuple[str, str], ...]


def claim_key(document: str) -> str:
    """Return where the claim of a document lies, in a scope that every researcher was granted."""
    return f"newsroom:claims:{document}"


def findings_key(actor: str, document: str) -> str:
    """Return where an agent puts its reading: in its own scope, where nobody else may write."""
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
    """Return the reading that each finished claim points to, and who made it. Two round trips."""
    claims = {name: claim for name, claim in (await claims_of(store, documents)).items() if claim and claim.findings}
    found = await store.read_many([claim.findings for claim in claims.values()])
    readings = [Reading.model_validate(value) for value in found.values()]
    return readings, {name: claim.by for name, claim in claims.items()}


async def written_at(store: SharedMemoryStore, key: str) -> object:
    """Wait until somebody writes the key and return its value; the change feed wakes us, nothing polls."""
    # From the beginning of the feed: a key written before we came has left its change there.
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
