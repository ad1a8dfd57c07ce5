"""The agents of the newsroom, each a process of its own: researchers, a writer, a reviewer.

    python roles.py researcher researcher-1
    python roles.py writer writer
    python roles.py reviewer reviewer

They share only the store. Agents do not send messages to each other: a claim is a conditional write
with a lease, so a document belongs to one researcher at a time, and to another one if that one dies.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

from desk import (
    ANSWER,
    CLAIMS,
    COMPLETIONS,
    DONE,
    LINGERING_PAGES,
    MEMORIES,
    MOST_REMEMBERED,
    NAMESPACE,
    PAGES,
    PRESENT,
    QUESTION,
    REFUSED,
    REPORT,
    REVIEW,
    SILENT_S,
    START,
    STATEMENTS,
    TASK,
    Claim,
    Review,
    Task,
    all_done,
    claim_key,
    claims_of,
    findings_key,
    readings_of,
    say,
    written_at,
)
from reading import Reading, contradictions_among, duplicates_among, fact_of, read_document
from report import assembled, in_one_line, reviewed

from sharedmem import Hub, SharedMemoryStore, VersionConflictError

_IDLE_S = 0.2
_BEGINNING = 0
_METRES = re.compile(r"(\d+\.\d+) metres")


class Researcher:
    """Claims documents one by one, reads them, and shares the findings.

    Args:
        store: its store of the namespace, with a grant for the claims.
        name: the actor of its changes.
        task: the documents and the speed.
        linger_at: number of the document over which it lingers until it is killed; 0 for never.
    """

    def __init__(self, store: SharedMemoryStore, name: str, task: Task, *, linger_at: int = 0) -> None:
        self._store = store
        self._name = name
        self._task = task
        self._linger_at = linger_at
        self._taken = 0

    async def work(self) -> None:
        """Read free documents until all are done, also the claimed ones of a dead colleague."""
        while pending := await self._pending():
            free = next((document for document, claim in pending.items() if claim is None), None)
            if free is None:
                # Other researchers have the rest. The feed has no change for an expired lease, so check again.
                await asyncio.sleep(_IDLE_S)
            elif version := await self._claim(free):
                await self._read(free, version)
        # A researcher may have died between its last page and its report: adding twice has the effect of adding once.
        await self._store.sadd(DONE, *self._task.documents)

    async def _pending(self) -> dict[str, Claim | None]:
        claims = await claims_of(self._store, list(self._task.documents))
        return {document: claim for document, claim in claims.items() if claim is None or claim.state != "done"}

    async def _claim(self, document: str) -> int | None:
        """Return the version under which the document is ours; None if a colleague was faster."""
        lingers = self._taken + 1 == self._linger_at
        claim = Claim(by=self._name, state="reading", pages=LINGERING_PAGES if lingers else PAGES)
        version = await self._put(document, claim, version=0)
        if version is None:
            await self._store.hincrby(REFUSED, self._name, 1)
            return None
        self._taken += 1
        return version

    async def _read(self, document: str, version: int) -> None:
        pages = LINGERING_PAGES if self._taken == self._linger_at else PAGES
        text = await asyncio.to_thread(_text_at, Path(self._task.folder) / self._task.documents[document])
        for page in range(1, pages + 1):
            await asyncio.sleep(self._task.think_s / PAGES)
            claim = Claim(by=self._name, state="reading", page=page, pages=pages)
            renewed = await self._put(document, claim, version=version)
            if renewed is None:
                return await say(self._store, self._name, f"My lease on {document} ran out, so others may claim it.")
            version = renewed
        return await self._finish(document, read_document(document, text), version)

    async def _finish(self, document: str, reading: Reading, version: int) -> None:
        """Share the findings, then mark the claim as done.

        Only the holder of the claim's current version can do the latter. If two researchers have read the
        same document because a lease expired, exactly one counts; the findings of the other are not used.
        """
        key = findings_key(self._name, document)
        findings_version = await self._store.write(key, reading.model_dump(mode="json"))
        done = Claim(by=self._name, state="done", page=PAGES, findings=key, findings_version=findings_version)
        if await self._put(document, done, version=version) is None:
            return await say(self._store, self._name, f"I was too late with {document}, another researcher has it.")
        if self._task.visited:
            await remember(self._store, document, reading)
        await self._store.hincrby(COMPLETIONS, document, 1)
        await self._store.sadd(DONE, document)
        total = await self._store.incr(STATEMENTS, len(reading.findings))
        return await say(
            self._store, self._name, f"{document}: {len(reading.findings)} statements, {total} together so far."
        )

    async def _put(self, document: str, claim: Claim, *, version: int) -> int | None:
        """Write the claim over that version of it; return None if the version is not current any more."""
        ttl = None if claim.state == "done" else self._task.lease_s
        try:
            return await self._store.write(
                claim_key(document), claim.model_dump(mode="json"), if_version=version, ttl=ttl
            )
        except VersionConflictError:
            return None


async def remember(store: SharedMemoryStore, document: str, reading: Reading) -> None:
    """Remember the sentences of the first findings; what others have remembered already is merged."""
    sentences = list(dict.fromkeys(finding.sentence for finding in reading.findings))[:MOST_REMEMBERED]
    if sentences:
        await store.memory.add_many([{"memory": sentence, "thread_id": document} for sentence in sentences])


async def answer(store: SharedMemoryStore, name: str) -> None:
    """Answer one question from memory, again whenever a memory changes, until the editor ends this process."""
    said = ""
    async for _ in store.watch(MEMORIES, since=_BEGINNING):
        hits = await store.memory.search(QUESTION, limit=5)
        told = [hit.item.memory for hit in hits if "gauge" in hit.item.memory and "peak" in hit.item.memory]
        heights = sorted({height for memory in told for height in _METRES.findall(memory)})
        if not heights or said == (said := " or ".join(heights)):
            continue
        verdict = "All that we remember agrees" if len(heights) == 1 else "Our memories disagree"
        await store.write(ANSWER, {"question": QUESTION, "answer": f"{said} metres", "verdict": verdict})
        await say(store, name, f"{QUESTION} {verdict}: {said} metres.")


async def research(store: SharedMemoryStore, name: str, task: Task, *, linger_at: int) -> None:
    """Report for work, wait for the common start, work."""
    await store.sadd(PRESENT, name)
    await written_at(store, START)
    await Researcher(store, name, task, linger_at=linger_at).work()
    await say(store, name, "Nothing left to read, I am off.")


async def write(store: SharedMemoryStore, name: str, task: Task) -> None:
    """Once every document is done, assemble the report from the researchers' findings."""
    await all_done(store, len(task.documents))
    readings, readers = await readings_of(store, list(task.documents))
    text = assembled(readings, readers)
    await asyncio.to_thread(_save, Path(task.report), text)
    await store.write(REPORT, {"path": task.report, "characters": len(text)})
    await say(store, name, f"The report is written: {len(readings)} documents, {len(text):,} characters.")


async def review(store: SharedMemoryStore, name: str, task: Task) -> None:
    """Once the report is written, find contradictions and duplicates, and append them to it."""
    await written_at(store, REPORT)
    readings, _ = await readings_of(store, list(task.documents))
    contradictions = contradictions_among(finding for reading in readings for finding in reading.findings)
    duplicates = duplicates_among(readings)
    await asyncio.to_thread(_append, Path(task.report), reviewed(contradictions, duplicates))
    for contradiction in contradictions:
        await say(store, name, f"They contradict each other: {in_one_line(contradiction)}")
    for pair in duplicates:
        await say(store, name, f"{pair.second} is a reprint of {pair.first} ({pair.jaccard:.0%})")
    found = Review(
        contradictions=tuple(fact_of(contradiction) for contradiction in contradictions),
        duplicates=tuple((pair.first, pair.second) for pair in duplicates),
    )
    await store.write(REVIEW, found.model_dump(mode="json"))


async def main(arguments: argparse.Namespace) -> None:
    """Open the store as this agent and do its part of the task."""
    async with Hub.open() as hub:
        grants = (CLAIMS,) if arguments.role == "researcher" else ()
        store = hub.store(NAMESPACE, actor=arguments.name, grants=grants)
        task = Task.model_validate(await written_at(store, TASK))
        async with AsyncExitStack() as stack:
            if task.visited:
                await stack.enter_async_context(store.presence.here(role=arguments.role, ttl=SILENT_S))
            await work(store, arguments, task)


async def work(store: SharedMemoryStore, arguments: argparse.Namespace, task: Task) -> None:
    """Do the part of one agent."""
    if arguments.role == "researcher":
        await research(store, arguments.name, task, linger_at=arguments.linger_at)
    elif arguments.role == "writer":
        await write(store, arguments.name, task)
    else:
        await review(store, arguments.name, task)
        if task.visited:
            await answer(store, arguments.name)


def _text_at(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One agent of the newsroom; demo.py starts them all.")
    parser.add_argument("role", choices=("researcher", "writer", "reviewer"))
    parser.add_argument("name", help="name of the actor")
    parser.add_argument("--linger-at", type=int, default=0, help="which document it lingers over until it is killed")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_arguments()))
