"""Agents that tell a graph what they know, as processes: `python -m support.storytellers <what> <url> <n>`.

Each prints `ready`, waits for a word, does its work, and prints `done`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sharedmem import ConflictError, Hub, NotFoundError, Settings
from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.models import Episode, Fact
from support.children import Child
from support.graph_rows import day
from support.parrots import Line, Parrot

NAMESPACE, GROUP = "storytellers", "team:talk"
PEOPLE = ("Anna Berg", "Boris Ivanov", "Chloe Martin", "Dmitri Petrov", "Elif Demir")
TOWNS = ("Rome", "Narvik", "Porto", "Zagreb")
_TESTS = Path(__file__).resolve().parent.parent
SETTINGS = Settings(embedder="hashing", durable_url="none", graph_summary_every=0)


def stories(count: int = 120) -> list[Episode]:
    """Episodes that touch, contradict and close each other, each with its own time in both worlds."""
    chance = random.Random(4711)
    told = []
    for number in range(count):
        lines = [_line(chance) for _ in range(chance.randint(1, 3))]
        told.append(
            Episode(
                content="\n".join(map(str, lines)),
                group_id=GROUP,
                id=f"story-{number}",
                occurred_at=day(number),
                recorded_at=day(chance.randrange(count) + number / (2 * count)),
            )
        )
    return told


def _line(chance: random.Random) -> Line:
    type_ = chance.choice(("lives_in", "married_to", "likes", "@tier", "knows"))
    other = chance.choice({"lives_in": TOWNS, "@tier": ("red", "green")}.get(type_, PEOPLE))
    start = chance.randrange(60)
    if chance.random() < 0.2:
        return Line(chance.choice(PEOPLE), type_, other, start, says="ends")
    end = start + chance.randint(1, 40) if chance.random() < 0.3 else None
    return Line(chance.choice(PEOPLE), type_, other, start, end)


def graph_of(hub: Hub, actor: str = "agent") -> Graph:
    """The graph of these tests, with an extractor that repeats what it hears."""
    return hub.store(NAMESPACE, actor=actor).graph.using(extractor=Parrot())


# -- what a child does ----------------------------------------------------------------------------


async def tell(graph: Graph, number: int) -> None:
    """Tell all stories, one by one, in an order of one's own."""
    told = stories()
    random.Random(number).shuffle(told)
    for story in told:
        try:
            await graph.add_episodes([story])
        except ConflictError as error:
            # The group is being deleted.
            _say("refused", type(error).__name__)
        else:
            _say(story.id)


async def share(graph: Graph, number: int) -> None:
    """Tell a part of the stories, some alone and some together."""
    mine = stories()[number::8]
    random.Random(number).shuffle(mine)
    half = len(mine) // 2
    await graph.add_episodes(mine[:half])
    await asyncio.gather(*(graph.add_episodes([story]) for story in mine[half:]))


async def meddle(graph: Graph, number: int) -> None:
    """Tell, undo, merge and part at random."""
    chance = random.Random(number)
    acts: list[Callable[[], Awaitable[object]]] = [
        *(lambda story=story: graph.add_episodes([story]) for story in stories()[number::4]),
        *(lambda: graph.undo(f"story-{chance.randrange(120)}", group_id=GROUP) for _ in range(8)),
        *(lambda: graph.merge(*chance.sample(PEOPLE, 2), group_id=GROUP) for _ in range(4)),
        *(lambda: graph.unmerge(chance.choice(PEOPLE), group_id=GROUP) for _ in range(3)),
    ]
    chance.shuffle(acts)
    for act in acts:
        try:
            await act()
        except (NotFoundError, InvalidError, ConflictError) as error:
            _say("refused", type(error).__name__)


_JOBS = {job.__name__: job for job in (tell, share, meddle)}


def _say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


async def _main(what: str, url: str, number: str) -> None:
    async with Hub.open(url, settings=SETTINGS) as hub:
        graph = graph_of(hub, f"agent-{number}")
        _say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _JOBS[what](graph, int(number))
        _say("done")


# -- the parent's side ------------------------------------------------------------------------------


@asynccontextmanager
async def crew(number: int, what: str, url: str) -> AsyncIterator[list[Child]]:
    """So many agents with numbers of their own, which begin together; those that still run at the end are killed."""
    environment = os.environ | {"PYTHONPATH": str(_TESTS)}
    started = [
        Child(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "error", "-m", "support.storytellers", what, url, str(one)),
                stdin=PIPE,
                stdout=PIPE,
                env=environment,
                cwd=_TESTS.parent,
            )
        )
        for one in range(number)
    ]
    try:
        for child in started:
            assert await child.line() == ["ready"]
        for child in started:
            child.go()
        yield started
    finally:
        for child in started:
            await child.end()


# -- what is there afterwards -----------------------------------------------------------------------


async def told_facts(graph: Graph) -> dict[str, set[tuple[object, ...]]]:
    """Every version of every fact of the group, and who says so, by entity: all that a caller can see of them."""
    people = await graph.entities(group_id=GROUP, limit=1000)
    return {
        person.name: {_plain(fact) for fact in await graph.history(person.name, group_id=GROUP, limit=10_000)}
        for person in people
    }


def _plain(fact: Fact) -> tuple[object, ...]:
    moments = (fact.valid_from, fact.valid_to, fact.recorded_at, fact.superseded_at)
    ends = (fact.source_id, fact.source_name, fact.target_id, fact.target_name, fact.value)
    return (fact.id, fact.type, fact.fact, *ends, *moments, frozenset(fact.episode_ids))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
