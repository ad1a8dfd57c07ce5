"""Agents that write episodes into a graph, as processes: `python -m support.episode_processes <what> <url> <n> <seed>`.

Each prints `ready`, waits for a line, does its work, and prints `done`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sharedmem import ConflictError, Hub, NotFoundError, Settings
from sharedmem.errors import InvalidError
from sharedmem.graph.graph import Graph
from sharedmem.models import Episode, Fact
from support.agent_processes import AgentProcess, agents_begun_together
from support.example_budget import example_count
from support.graph_rows import day
from support.printed_lines import print_line
from support.scripted_extractor import ScriptedExtractor, ScriptLine

NAMESPACE, GROUP = "storytellers", "team:talk"
PEOPLE = ("Anna Berg", "Boris Ivanov", "Chloe Martin", "Dmitri Petrov", "Elif Demir")
TOWNS = ("Rome", "Narvik", "Porto", "Zagreb")
EPISODES = example_count(40, thorough=120)
CHANGES = example_count(4, thorough=8)
"""How often each process that changes at random undoes an episode; it merges and parts half as often."""
SETTINGS = Settings(embedder="hashing", durable_url="none", graph_summary_every=0)


def random_episodes(count: int = EPISODES, *, seed: int = 0) -> list[Episode]:
    """Episodes that touch, contradict and close each other, each with its own time in both worlds."""
    chance = random.Random(4711 + seed)
    episodes = []
    for number in range(count):
        lines = [_line(chance) for _ in range(chance.randint(1, 3))]
        episodes.append(
            Episode(
                content="\n".join(map(str, lines)),
                group_id=GROUP,
                id=f"story-{number}",
                occurred_at=day(number),
                recorded_at=day(chance.randrange(count) + number / (2 * count)),
            )
        )
    return episodes


def _line(chance: random.Random) -> ScriptLine:
    type_ = chance.choice(("lives_in", "married_to", "likes", "@tier", "knows"))
    other = chance.choice({"lives_in": TOWNS, "@tier": ("red", "green")}.get(type_, PEOPLE))
    start = chance.randrange(60)
    if chance.random() < 0.2:
        return ScriptLine(chance.choice(PEOPLE), type_, other, start, says="ends")
    end = start + chance.randint(1, 40) if chance.random() < 0.3 else None
    return ScriptLine(chance.choice(PEOPLE), type_, other, start, end)


def open_scripted_graph(hub: Hub, actor: str = "agent") -> Graph:
    """The graph of these tests, with an extractor that repeats what it hears."""
    return hub.store(NAMESPACE, actor=actor).graph.using(extractor=ScriptedExtractor())


# -- what a child does ----------------------------------------------------------------------------


async def add_all_episodes(graph: Graph, number: int, seed: int) -> None:
    """Add all episodes, one by one, in an order of one's own."""
    await _add_one_by_one(graph, _shuffled_episodes(number, seed))


async def add_until_killed(graph: Graph, number: int, seed: int) -> None:
    """Likewise, but only a third of them: two such agents leave some out, however late they are killed."""
    await _add_one_by_one(graph, _shuffled_episodes(number, seed)[: EPISODES // 3])
    await asyncio.Event().wait()


def _shuffled_episodes(number: int, seed: int) -> list[Episode]:
    mine = random_episodes(seed=seed)
    random.Random(f"{seed} {number}").shuffle(mine)
    return mine


async def _add_one_by_one(graph: Graph, stories: list[Episode]) -> None:
    for story in stories:
        try:
            await graph.add_episodes([story])
        except ConflictError as error:
            # The group is being deleted.
            print_line("refused", type(error).__name__)
        else:
            print_line(story.id)


async def add_some_episodes(graph: Graph, number: int, seed: int) -> None:
    """Add a part of the episodes, some alone and some together."""
    mine = random_episodes(seed=seed)[number::8]
    random.Random(f"{seed} {number}").shuffle(mine)
    half = len(mine) // 2
    await graph.add_episodes(mine[:half])
    await asyncio.gather(*(graph.add_episodes([story]) for story in mine[half:]))


async def change_at_random(graph: Graph, number: int, seed: int) -> None:
    """Add, undo, merge and part at random."""
    chance = random.Random(f"{seed} {number}")
    acts: list[Callable[[], Awaitable[object]]] = [
        *(lambda story=story: graph.add_episodes([story]) for story in random_episodes(seed=seed)[number::4]),
        *(lambda: graph.undo(f"story-{chance.randrange(EPISODES)}", group_id=GROUP) for _ in range(CHANGES)),
        *(lambda: graph.merge(*chance.sample(PEOPLE, 2), group_id=GROUP) for _ in range(CHANGES // 2)),
        *(lambda: graph.unmerge(chance.choice(PEOPLE), group_id=GROUP) for _ in range(CHANGES // 2)),
    ]
    chance.shuffle(acts)
    for act in acts:
        try:
            await act()
        except (NotFoundError, InvalidError, ConflictError) as error:
            print_line("refused", type(error).__name__)


_JOBS = {
    "all": add_all_episodes,
    "until killed": add_until_killed,
    "share": add_some_episodes,
    "change": change_at_random,
}


async def _main(what: str, url: str, number: str, seed: str) -> None:
    async with Hub.open(url, settings=SETTINGS) as hub:
        graph = open_scripted_graph(hub, f"agent-{number}")
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _JOBS[what](graph, int(number), int(seed))
        print_line("done")


# -- the parent's side ------------------------------------------------------------------------------


@asynccontextmanager
async def running_writers(number: int, what: str, url: str, *, seed: int) -> AsyncIterator[list[AgentProcess]]:
    """So many agents with numbers of their own, which begin together; the ones that still run at the end are killed."""
    arguments = [(what, url, one, seed) for one in range(number)]
    async with agents_begun_together("support.episode_processes", arguments) as writers:
        yield writers


# -- what is there afterwards -----------------------------------------------------------------------


async def read_all_facts(graph: Graph) -> dict[str, set[tuple[object, ...]]]:
    """Every version of every fact of the group, and who says so, by entity: all that a caller can see of them."""
    people = await graph.entities(group_id=GROUP, limit=1000)
    return {
        person.name: {_fact_tuple(fact) for fact in await graph.history(person.name, group_id=GROUP, limit=10_000)}
        for person in people
    }


def _fact_tuple(fact: Fact) -> tuple[object, ...]:
    moments = (fact.valid_from, fact.valid_to, fact.recorded_at, fact.superseded_at)
    ends = (fact.source_id, fact.source_name, fact.target_id, fact.target_name, fact.value)
    return (fact.id, fact.type, fact.fact, *ends, *moments, frozenset(fact.episode_ids))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
