"""A year of one customer: the facts of any day, as the shop knew them on any other day.

python examples/customer_timeline/timeline.py                   load the year, ask 40 questions, print the score
python examples/customer_timeline/timeline.py --fake            the same without any server
python examples/customer_timeline/timeline.py --backwards       last message first: the answers are the same
python examples/customer_timeline/timeline.py --graph year.html the graph as a page with two sliders of time
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal, TypeVar
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sharedmem import Hub, Settings, SharedMemoryError, SharedMemoryStore
from sharedmem.models import Direction, Episode

HERE = Path(__file__).resolve().parent
NAMESPACE = "customer-timeline"
CUSTOMER = "Mara Lindqvist"
ZONE = timezone(timedelta(hours=1))
"""The shop's clocks are on winter time all year."""
AT_ONCE = 8
"""Episodes of one step."""


class Question(BaseModel):
    """A question to the graph, with the expected answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    ask: Literal["facts", "history", "walk", "path", "retrieve"]
    entity: str = ""
    target: str = ""
    """Target of a path."""
    type: str = ""
    steps: tuple[str, ...] = ()
    """Types of the facts along a walk."""
    direction: Direction = "out"
    as_of: AwareDatetime | None = None
    known_at: AwareDatetime | None = None
    expect: tuple[str, ...]
    """Empty if nothing is known."""
    wrong: tuple[str, ...] = ()
    """Facts that a retrieval must not return: they held at another time, or turned out to be wrong."""
    because: tuple[str, ...]
    """Ids of the episodes behind the answer."""
    about: str


class Answer(BaseModel):
    """The graph's answer to a question."""

    model_config = ConfigDict(frozen=True)

    question: Question
    found: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it is exactly the expected answer."""
        return self.found == self.question.expect


class Year(BaseModel):
    """The customer's year in the graph, and the answers."""

    model_config = ConfigDict(frozen=True)

    episodes: int
    entities: int
    facts: int
    past_facts: int
    answers: tuple[Answer, ...]

    @property
    def score(self) -> int:
        """The number of questions with the expected answer."""
        return sum(answer.ok for answer in self.answers)


class Message(BaseModel):
    """A line of `episodes.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    occurred_at: AwareDatetime
    recorded_at: AwareDatetime
    source: str
    session: str
    text: str


Row = TypeVar("Row", bound=BaseModel)


def read(name: str, model: type[Row]) -> list[Row]:
    """Return the lines of a file beside this one."""
    return [model.model_validate_json(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


class Desk:
    """Queries the graph of one group.

    Args:
        store: store of the graph.
        group: group of the customer.
    """

    def __init__(self, store: SharedMemoryStore, group: str) -> None:
        self._graph = store.graph
        self._group = group
        self._ways: dict[str, Callable[[Question], Awaitable[Sequence[str]]]] = {
            "facts": self._facts,
            "history": self._history,
            "walk": self._walk,
            "path": self._path,
            "retrieve": self._retrieve,
        }

    async def take_in(self, messages: Sequence[Message]) -> None:
        """Add some messages to the graph."""
        await self._graph.add_episodes(
            [
                Episode(
                    content=one.text,
                    group_id=self._group,
                    user=CUSTOMER,
                    **one.model_dump(include={"id", "occurred_at", "recorded_at", "source", "session"}),
                )
                for one in messages
            ]
        )

    async def answer(self, question: Question) -> Answer:
        """Return the graph's answer to a question."""
        return Answer(question=question, found=tuple(await self._ways[question.ask](question)))

    async def _facts(self, asked: Question) -> Sequence[str]:
        """Return the facts of an entity at one time, as known at another."""
        facts = await self._graph.facts(
            asked.entity,
            group_id=self._group,
            as_of=asked.as_of,
            known_at=asked.known_at,
            type=asked.type,
            direction=asked.direction,
        )
        return sorted(fact.source_name if asked.direction == "in" else fact.target_name for fact in facts)

    async def _history(self, asked: Question) -> Sequence[str]:
        """Return the history of a fact as known at a time, with versions that have ended."""
        known = asked.known_at or datetime.max.replace(tzinfo=ZONE)
        versions = [
            fact
            for fact in await self._graph.history(asked.entity, group_id=self._group)
            if fact.type == asked.type
            and fact.recorded_at <= known
            and (fact.superseded_at is None or known < fact.superseded_at)
        ]
        spans = sorted((day(fact.valid_from), fact.target_name, day(fact.valid_to)) for fact in versions)
        return [f"{name} from {begins} to {ends}" for begins, name, ends in spans]

    async def _walk(self, asked: Question) -> Sequence[str]:
        """Return the end of a chain of facts: the boss of the employer of the customer."""
        around = await self._graph.traverse_from_entities(
            [asked.entity],
            group_id=self._group,
            depth=len(asked.steps),
            fan_out=100,
            limit=1_000,
            as_of=asked.as_of,
            known_at=asked.known_at,
        )
        ways = {reached.name: tuple(step.fact.type for step in reached.path) for reached in around.reached}
        return sorted(name for name, types in ways.items() if types == asked.steps)

    async def _path(self, asked: Question) -> Sequence[str]:
        """Return the entities on the path between two others."""
        way = await self._graph.path(
            asked.entity, asked.target, group_id=self._group, as_of=asked.as_of, known_at=asked.known_at
        )
        ends = [step.fact.target_name if step.forward else step.fact.source_name for step in way]
        return [asked.entity, *ends] if way else []

    async def _retrieve(self, asked: Question) -> Sequence[str]:
        """Return the facts in the context for a language model."""
        context = await self._graph.retrieve(
            asked.question, group_id=self._group, as_of=asked.as_of, known_at=asked.known_at
        )
        prompt = context.as_prompt()
        facts = [item.text for item in context.items if item.kind == "fact" and item.text in prompt]
        return [name for name in (*asked.expect, *asked.wrong) if any(name in fact for fact in facts)]


def day(moment: datetime | None) -> str:
    """Return a day as the shop's calendar has it."""
    return "open" if moment is None else moment.astimezone(ZONE).date().isoformat()


async def live(store: SharedMemoryStore, group: str, asked: argparse.Namespace) -> Year:
    """Add the year, then ask. Each message has its time of recording, so the order of additions does not matter."""
    desk = Desk(store, group)
    messages, questions = await asyncio.gather(
        asyncio.to_thread(read, "episodes.jsonl", Message), asyncio.to_thread(read, "questions.jsonl", Question)
    )
    if asked.backwards:
        messages.reverse()
    portions = [messages[first : first + AT_ONCE] for first in range(0, len(messages), AT_ONCE)]
    for portion in track(portions, "taking in the year", console=Console(stderr=True), disable=asked.json):
        await desk.take_in(portion)
    answers = [await desk.answer(question) for question in questions]
    stats = await store.graph.stats(group_id=group)
    return Year(
        episodes=stats.episodes,
        entities=stats.entities,
        facts=stats.facts,
        past_facts=stats.past_facts,
        answers=tuple(answers),
    )


async def draw(store: SharedMemoryStore, group: str, file: Path) -> None:
    """Write the graph as a page for any browser."""
    from sharedmem.visualization import as_html  # noqa: PLC0415  # only needed for a drawing

    drawing = await store.graph.drawing(group_id=group)
    await asyncio.to_thread(file.write_text, as_html(drawing), encoding="utf-8")


def opened(asked: argparse.Namespace) -> AbstractAsyncContextManager[Hub]:
    """Return the hub: on the given server, on a private one of this machine, or without a server."""
    rules = str(HERE / "rules.yaml")
    if asked.fake:
        from sharedmem.testing import fake_hub  # noqa: PLC0415  # only this way needs fakeredis

        return fake_hub(settings=Settings(graph_rules=rules))
    return Hub.open(asked.url, settings=Settings.load(graph_rules=rules, llm="extractive"))


async def run(asked: argparse.Namespace) -> Year:
    """Run the year in a group of its own, which is deleted afterwards unless it is kept."""
    async with await asyncio.to_thread(opened, asked) as hub:
        store = hub.store(NAMESPACE, actor="shop")
        group = f"shop:mara-{uuid4().hex[:8]}"
        try:
            year = await live(store, group, asked)
            if asked.graph:
                await draw(store, group, asked.graph)
        finally:
            if not asked.keep:
                await store.graph.delete_by_group(group)
    if asked.keep:
        print(f"the graph stays: namespace {NAMESPACE}, group {group}", file=sys.stderr)
    return year


def shown(year: Year) -> None:
    """Print the questions with their answers, and the score."""
    table = Table(title="What was true, and what we knew then", show_lines=False)
    for heading in ("", "question", "asked by", "expected", "found"):
        table.add_column(heading, overflow="fold")
    for answer in year.answers:
        asked = answer.question
        mark = "[green]+[/]" if answer.ok else "[red]-[/]"
        table.add_row(mark, asked.question, asked.ask, listed(asked.expect), listed(answer.found))
    # In a file or a pipe, lines have any length.
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    facts = f"{year.facts} facts that hold and {year.past_facts} that are over or turned out to be wrong"
    console.print(f"{year.episodes} episodes, {year.entities} entities, {facts}", highlight=False)
    console.print(f"{year.score} of {len(year.answers)}", highlight=False)


def listed(names: Sequence[str]) -> str:
    """Return some names for display."""
    return "\n".join(names) or "nothing known"


def as_json(year: Year) -> str:
    """Return the year as JSON."""
    answers = [
        {"id": one.question.id, "expect": one.question.expect, "found": one.found, "ok": one.ok} for one in year.answers
    ]
    result = {**year.model_dump(exclude={"answers"}), "answers": answers, "score": year.score, "of": len(year.answers)}
    return json.dumps(result, ensure_ascii=False)


def main() -> int:
    """Run the command line; return 0 if every question had the expected answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a server of yours; without it a private one is started or joined")
    parser.add_argument("--fake", action="store_true", help="on no server at all: fakeredis, as in unit tests")
    parser.add_argument("--backwards", action="store_true", help="take in the last message first")
    parser.add_argument("--json", action="store_true", help="answers and score as JSON")
    parser.add_argument("--graph", type=Path, metavar="FILE.html", help="draw the graph into this file")
    parser.add_argument("--keep", action="store_true", help="leave the graph on the server")
    asked = parser.parse_args()
    try:
        year = asyncio.run(run(asked))
    except SharedMemoryError as error:
        print(f"the timeline failed: {error}", file=sys.stderr)
        return 1
    if asked.json:
        print(as_json(year))
    else:
        shown(year)
    return 0 if year.score == len(year.answers) else 1


if __name__ == "__main__":
    sys.exit(main())
