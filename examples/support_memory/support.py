"""Sixty conversations of a support desk become notes that are consolidated, over HTTP, in a process of its own.

python examples/support_memory/support.py                      all twelve customers, with rules instead of a model
python examples/support_memory/support.py --few                three customers
python examples/support_memory/support.py --customer jonas     which customer's notes are shown
python examples/support_memory/support.py --model http://127.0.0.1:11434/v1 --model-name qwen3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict

from sharedmem import SharedMemoryError, UnavailableError
from sharedmem.client import SharedMemoryClient
from sharedmem.models import Note, NoteHit, Resolution, SynthesisMessage

HERE = Path(__file__).resolve().parent
FEW = ("mara", "jonas", "lucia")
"""One customer for each language."""
LOOKED_AT = 3
"""Notes of a customer that must contain an answer."""
STARTS_WITHIN_S = 60.0
# Rules compare words, and so does their embedder: its similarities are lower than a model's.
OFFLINE = {
    "SHAREDMEM_LLM": "extractive",
    "SHAREDMEM_EMBEDDER": "hashing",
    "SHAREDMEM_SYNTHESIS_LINK_THRESHOLD": "0.3",
    "SHAREDMEM_SYNTHESIS_RECALL_THRESHOLD": "0",
    "SHAREDMEM_SYNTHESIS_SCORE_THRESHOLD": "0",
}


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Conversation(Frozen):
    """A line of `conversations.jsonl`."""

    id: str
    customer: str
    round: int
    """Its number among this customer's conversations, from 1."""
    language: Literal["en", "de", "es"]
    at: AwareDatetime
    topic: str
    messages: tuple[SynthesisMessage, ...]

    @property
    def timed(self) -> list[SynthesisMessage]:
        """Return its messages, a minute apart."""
        return [
            message.model_copy(update={"timestamp": self.at + timedelta(minutes=number)})
            for number, message in enumerate(self.messages)
        ]


class Expected(Frozen):
    """The expected answer after so many conversations of the customer."""

    after: int
    expect: tuple[str, ...]


class Question(Frozen):
    """A line of `expected.jsonl`: a question about a customer, and how its answer changes."""

    id: str
    customer: str
    question: str
    answers: tuple[Expected, ...]


class Answer(Frozen):
    """The result for a question at one time."""

    question: str
    round: int
    expect: tuple[str, ...]
    line: str
    """The line of a note that contains its first part."""
    found: bool
    """Whether the first notes contain all of it."""
    is_first: bool = False
    """Whether the very first note contains all of it."""
    kept: bool = False
    """Whether it is still readable at the end, also in a superseded note."""


class Merger(Frozen):
    """Notes that became one."""

    successor: str
    customer: str
    after: str
    """Id of the conversation."""
    resolutions: tuple[Resolution, ...]


class Desk(Frozen):
    """The result of all conversations."""

    conversations: int
    active: int
    mergers: tuple[Merger, ...]
    degraded: tuple[str, ...]
    answers: tuple[Answer, ...]
    graph: str

    @property
    def found(self) -> int:
        """The number of answers that were found while they held."""
        return sum(answer.found for answer in self.answers)

    @property
    def kept(self) -> int:
        """The number of answers that are still readable at the end."""
        return sum(answer.kept for answer in self.answers)

    @property
    def is_whole(self) -> bool:
        """Whether everything was found, and nothing was lost."""
        return self.found == self.kept == len(self.answers)


Row = TypeVar("Row", bound=BaseModel)


def read(name: str, model: type[Row]) -> list[Row]:
    """Return the lines of a file beside this one."""
    return [model.model_validate_json(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


# -- the service, in another process ------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def environment(asked: argparse.Namespace, folder: str) -> dict[str, str]:
    """Return the environment of the service: rules, or a model; your own settings take precedence."""
    chosen = {"SHAREDMEM_DATA_DIR": folder, **OFFLINE}
    if asked.model:
        chosen |= {"SHAREDMEM_LLM": f"openai:{asked.model_name}", "SHAREDMEM_LLM_URL": asked.model}
        return os.environ | {name: value for name, value in chosen.items() if name not in os.environ}
    own = {name: value for name, value in os.environ.items() if not name.startswith("SHAREDMEM_SYNTHESIS_")}
    return own | chosen | ({"SHAREDMEM_REDIS_URL": asked.redis} if asked.redis else {})


class Service(NamedTuple):
    """A service that responds, or will soon."""

    url: str
    ended: asyncio.Task[int] | None
    """Its process; None for a service that was not started here."""


@asynccontextmanager
async def served(asked: argparse.Namespace) -> AsyncIterator[Service]:
    """Start a service with temporary data; or use the given one."""
    if asked.url:
        yield Service(asked.url, None)
        return
    port = free_port()
    command = [sys.executable, "-c", "from sharedmem.faces.cli import main; main()"]
    command += ["serve", "rest", "--port", str(port)]
    with tempfile.TemporaryDirectory(prefix="sm") as folder:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment(asked, folder), stdout=asyncio.subprocess.DEVNULL
        )
        ended = asyncio.create_task(process.wait())
        try:
            yield Service(f"http://127.0.0.1:{port}", ended)
        finally:
            if not ended.done():
                process.terminate()
            await ended


async def ready(memory: SharedMemoryClient, service: Service) -> None:
    """Return once the service responds.

    Raises:
        UnavailableError: its process has ended, or it does not respond.
    """
    answered: asyncio.Task[bool] = asyncio.create_task(memory.warm_up())
    first = {answered, service.ended} if service.ended else {answered}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if service.ended and service.ended.done():
        answered.cancel()
        raise UnavailableError(service.url, "its process has ended, see its output above")
    await answered


# -- the desk -----------------------------------------------------------------------------------------


class Support:
    """Adds conversations to the memory, and queries it.

    Args:
        memory: client of the service.
        app_id: id of the app for this run.
    """

    def __init__(self, memory: SharedMemoryClient, app_id: str) -> None:
        self._memory = memory
        self.app_id = app_id
        self.mergers: list[Merger] = []
        self.degraded: list[str] = []
        self.heads: dict[str, str] = {}
        """The newest consolidated note, by customer."""

    async def add(self, conversations: Sequence[Conversation]) -> None:
        """Add conversations of different customers, and wait until their notes are settled."""
        tasks = [
            await self._memory.add_memory(
                app_id=self.app_id,
                user_id=conversation.customer,
                messages=conversation.timed,
                task_id=f"{self.app_id}-{conversation.id}",
            )
            for conversation in conversations
        ]
        for conversation, task in zip(conversations, tasks, strict=True):
            await self._settled(conversation, task.task_id)

    async def _settled(self, conversation: Conversation, task_id: str) -> None:
        done = await self._memory.wait(task_id, timeout=600)
        if done.status != "done" or done.result is None:
            self.degraded.append(f"{conversation.id}: {done.status}, {done.error}")
            return
        note = await self.note(done.result["memory_id"])
        self.degraded += [f"{conversation.id}: {sentence}" for sentence in note.degraded]
        if note.next_id is not None:
            merged = tuple(one for one in note.resolutions if one.operation != "SKIP")
            self.heads[conversation.customer] = note.next_id
            self.mergers.append(
                Merger(
                    successor=note.next_id, customer=conversation.customer, after=conversation.id, resolutions=merged
                )
            )

    async def note(self, memory_id: str) -> Note:
        note = await self._memory.get_memory(memory_id, app_id=self.app_id)
        assert note is not None, f"{memory_id} does not exist"
        return note

    async def ask(self, question: Question, expected: Expected) -> Answer:
        """Return the current answer of the customer's first notes."""
        hits = await self._memory.query_memory(
            app_id=self.app_id, user_id=question.customer, query=question.question, n_results=LOOKED_AT
        )
        return Answer(
            question=question.id,
            round=expected.after,
            expect=expected.expect,
            line=line_with(hits, expected.expect[0]),
            found=contained_in(hits, expected.expect),
            is_first=contained_in(hits[:1], expected.expect),
        )

    async def looked_up(self, answer: Answer, question: Question) -> Answer:
        """Return the answer, with whether its text is still readable: no superseded note may be lost."""
        hits = await self._memory.query_memory(
            app_id=self.app_id, user_id=question.customer, query=question.question, n_results=100, recall="all"
        )
        return answer.model_copy(update={"kept": contained_in(hits, answer.expect)})

    async def current(self, customer: str) -> list[Note]:
        """Return the customer's current notes."""
        hits = await self._memory.query_memory(
            app_id=self.app_id, user_id=customer, query=customer, n_results=100, similarity_threshold=0
        )
        return sorted((hit.metadata for hit in hits), key=lambda note: note.created_at)

    async def draw(self, customer: str, file: Path) -> str:
        """Draw the evolution of a customer's newest note as a page; return its path."""
        if customer not in self.heads:
            return ""
        drawing = await self._memory.draw_evolution(self.heads[customer], app_id=self.app_id, format="html")
        await asyncio.to_thread(file.write_text, drawing.text, encoding="utf-8")
        return str(file)

    async def forget(self) -> None:
        await self._memory.call("synthesis.erase", app_id=self.app_id)


def contained_in(hits: Sequence[NoteHit], expect: Sequence[str]) -> bool:
    text = "\n".join(hit.memory_note for hit in hits)
    return all(part in text for part in expect)


def line_with(hits: Sequence[NoteHit], part: str) -> str:
    """Return the newest line that contains a text."""
    lines = [line for hit in hits for line in hit.memory_note.splitlines() if part in line]
    return lines[0] if lines else ""


async def worked(desk: Support, asked: argparse.Namespace) -> Desk:
    """Add the conversations in rounds, so that each customer's are in order, and query after each round."""
    conversations, questions = await asyncio.gather(
        asyncio.to_thread(read, "conversations.jsonl", Conversation),
        asyncio.to_thread(read, "expected.jsonl", Question),
    )
    if asked.few:
        conversations = [one for one in conversations if one.customer in FEW]
        questions = [one for one in questions if one.customer in FEW]
    answers: dict[tuple[str, int], Answer] = {}
    for number in range(1, max(one.round for one in conversations) + 1):
        await desk.add([one for one in conversations if one.round == number])
        due = [(one, answer) for one in questions for answer in one.answers if answer.after == number]
        for question, expected in due:
            answers[question.id, number] = await desk.ask(question, expected)
        print(f"round {number}: {len(desk.mergers)} notes have come of several so far", file=sys.stderr)
    by_id = {question.id: question for question in questions}
    kept = [await desk.looked_up(answer, by_id[answer.question]) for answer in answers.values()]
    customers = sorted({one.customer for one in conversations})
    active = sum([len(await desk.current(customer)) for customer in customers])
    return Desk(
        conversations=len(conversations),
        active=active,
        mergers=tuple(desk.mergers),
        degraded=tuple(desk.degraded),
        answers=tuple(kept),
        graph=await desk.draw(asked.customer, asked.graph),
    )


async def run(asked: argparse.Namespace) -> Desk:
    """Run the whole example."""
    async with (
        served(asked) as service,
        SharedMemoryClient(service.url, token=asked.token, retry_for=STARTS_WITHIN_S) as memory,
    ):
        await ready(memory, service)
        desk = Support(memory, f"support-{uuid4().hex[:8]}")
        try:
            done = await worked(desk, asked)
            if not asked.json:
                show_notes(asked.customer, await desk.current(asked.customer))
        finally:
            if asked.url:
                await desk.forget()
    return done


# -- what is printed ------------------------------------------------------------------------------------


def show_notes(customer: str, notes: Sequence[Note]) -> None:
    print(f"\n=== what is known of {customer}, in {len(notes)} notes ===")
    for note in notes:
        came = f"took the place of {len(note.sources)} notes" if note.sources else note.status_reason
        print(f"\n--- {note.id} ({came})\n{note.memory_note}")


def show(done: Desk) -> None:
    print("\n=== notes that became one ===")
    for merger in done.mergers:
        print(f"{merger.after}: {merger.successor}")
        for one in merger.resolutions:
            print(f"    {one.operation} {one.memory_id}, by {one.decided_by}: {one.reasoning}")
    for sentence in done.degraded:
        print(f"degraded: {sentence}")
    print("\n=== what a query found before and after ===")
    for question in dict.fromkeys(answer.question for answer in done.answers):
        answers = [answer for answer in done.answers if answer.question == question]
        for answer in answers if len(answers) > 1 else ():
            mark = "+" if answer.found else "-"
            print(f"{mark} {question}, after {answer.round}: {answer.line or '(nothing)'}")
    print_score(done)


def print_score(done: Desk) -> None:
    count, first = len(done.answers), sum(answer.is_first for answer in done.answers)
    print(f"\n{done.conversations} conversations, {done.active} notes hold, {len(done.mergers)} have come of several")
    if done.graph:
        print(f"how they came about: {done.graph}")
    for answer in done.answers:
        if not (answer.found and answer.kept):
            print(f"missing: {answer.question} after {answer.round}, {' and '.join(answer.expect)}")
    print(f"found when it held: {done.found} of {count}, {first} of them in the first note")
    print(f"still known at the end: {done.kept} of {count}")


def main() -> int:
    """Run the command line; return 0 if everything was found, and nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", action="store_true", help="three customers instead of twelve")
    parser.add_argument("--customer", default="mara", help="customer whose notes are shown and drawn")
    parser.add_argument("--graph", type=Path, default=Path("evolution.html"), metavar="FILE.html", help="the drawing")
    parser.add_argument("--model", metavar="URL", help="an OpenAI-compatible service; SHAREDMEM_LLM_KEY is its key")
    parser.add_argument("--model-name", default="gpt-5-mini", help="name of its model")
    parser.add_argument("--url", help="a `sharedmem serve rest` of yours; without it one is started")
    parser.add_argument("--token", help="token for that service")
    parser.add_argument("--redis", metavar="URL", help="a Redis of yours; without it an embedded one is started")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    asked = parser.parse_args()
    try:
        done = asyncio.run(run(asked))
    except SharedMemoryError as error:
        print(f"the desk is closed: {error}", file=sys.stderr)
        return 1
    if asked.json:
        print(json.dumps(done.model_dump(mode="json") | {"found": done.found, "kept": done.kept}, ensure_ascii=False))
    else:
        show(done)
    return 0 if done.is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
