"""Two steps on one graph at once: whatever they read and write, the facts are those of one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

import pytest
from fakeredis import FakeServer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import graph_fixtures
from support.episode_processes import SETTINGS, read_all_facts
from support.example_budget import example_count
from support.graph_rows import day
from support.held_graph_steps import run_interleaved
from support.redis_process import RedisProcess
from support.scripted_extractor import ScriptedExtractor, ScriptLine

from sharedmem import ConflictError, Hub
from sharedmem.clock import new_id
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.graph import Graph
from sharedmem.graph.records import LookupRequest
from sharedmem.models import Episode, RelationType
from sharedmem.testing import ManualClock, fake_hub

GROUP = "team:talk"
WHO = ("Adam Ash", "Berta Beck", "Carl Cole", "Dora Dunn", "Emil Ernst")
RELATIONS = (
    RelationType(name="married_to", symmetric=True, functional=True),
    RelationType(name="heads", functional=True, inverse_functional=True),
    RelationType(name="lives_with", functional=True),
    RelationType(name="owned_by", inverse_functional=True),
    RelationType(name="knows", symmetric=True),
    RelationType(name="likes"),
)
TYPES = tuple(relation.name for relation in RELATIONS)
CHAINED = ("married_to", "heads") * 3
"""Of one other end at both ends: where steps depend most on each other."""
CALLS = 7
"""Of the backend, before one of which a step is held."""

Step = Callable[[Graph], Awaitable[object]]
falkor_server = graph_fixtures.falkor_server


class Pair(NamedTuple):
    """One graph in two hubs."""

    here: Graph
    there: Graph


@pytest.fixture
async def fake_pair() -> AsyncIterator[Pair]:
    """On fakeredis."""
    server = FakeServer()
    async with fake_hub(settings=SETTINGS, server=server) as one, fake_hub(settings=SETTINGS, server=server) as two:
        yield both(one, two, f"test-{new_id(8)}")


@pytest.fixture
async def real_pair(hub: Hub, namespace: str) -> AsyncIterator[Pair]:
    """On the real server."""
    async with Hub.open(hub.url, settings=SETTINGS) as one, Hub.open(hub.url, settings=SETTINGS) as two:
        yield both(one, two, namespace)


@pytest.fixture
async def falkor_pair(falkor_server: RedisProcess) -> AsyncIterator[Pair]:
    """In the FalkorDB module."""
    chosen = SETTINGS.replace(graph_backend="falkordb")
    async with Hub.open(falkor_server.url, settings=chosen) as one, Hub.open(falkor_server.url, settings=chosen) as two:
        yield both(one, two, f"test-{new_id(8)}")


@pytest.fixture(params=["fake_pair", "real_pair", "falkor_pair"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """One graph as two hubs see it, like two processes, on each kind of server in turn."""
    found: Pair = request.getfixturevalue(request.param)
    return found


def both(one: Hub, two: Hub, namespace: str) -> Pair:
    """The graphs of one namespace in two hubs, with the relations of these tests and an extractor that repeats."""
    return Pair(
        *(hub.store(namespace).graph.using(relations=RELATIONS, extractor=ScriptedExtractor()) for hub in (one, two))
    )


async def married(graph: Graph, date: int) -> set[str]:
    """Who is married to whom on a day of January, as sentences."""
    facts = await graph.as_of(day(date), group_id=GROUP)
    return {fact.fact for fact in facts if fact.type == "married_to"}


def wedding(one: str, other: str, date: int, episode: str | None = None) -> Step:
    """Two are married from a day of January on."""
    return lambda graph: graph.add_relationship(
        one, "married_to", other, group_id=GROUP, valid_from=day(date), episode=episode
    )


@pytest.mark.parametrize("at", range(6))
async def test_a_functional_relation_has_one_value_when_two_were_added_at_once(pair: Pair, at: int) -> None:
    """docs/graph.md: a step relies on every line that it has read, also where only some of its facts depend on it."""
    adam, berta, carl, dora, _ = WHO
    for name in WHO:
        await pair.here.add_entity(name, group_id=GROUP)
    await wedding(berta, carl, 10)(pair.here)

    await run_interleaved(pair.here, at, wedding(adam, berta, 20), lambda: wedding(carl, dora, 15)(pair.there))

    assert await married(pair.here, 12) == {f"{berta} married to {carl}"}
    assert await married(pair.here, 17) == {f"{carl} married to {dora}"}
    assert await married(pair.here, 22) == {f"{adam} married to {berta}", f"{carl} married to {dora}"}
    assert (await pair.here.check(group_id=GROUP)).problems == ()


@pytest.mark.parametrize("at", range(4))
async def test_an_episode_undone_while_another_is_told_leaves_what_follows_from_the_claims(pair: Pair, at: int) -> None:
    """docs/graph.md: so does a step that takes an episode back."""
    adam, berta, carl, dora, _ = WHO
    await wedding(berta, carl, 10)(pair.here)
    await wedding(adam, berta, 20, "second")(pair.here)

    await run_interleaved(
        *(pair.here, at, lambda graph: graph.undo("second", group_id=GROUP)),
        lambda: wedding(carl, dora, 15)(pair.there),
    )

    assert await married(pair.here, 12) == {f"{berta} married to {carl}"}
    assert await married(pair.here, 22) == {f"{carl} married to {dora}"}
    assert (await pair.here.check(group_id=GROUP)).problems == ()


@pytest.mark.parametrize("at", range(5))
async def test_what_is_told_while_the_group_is_deleted_never_leans_on_what_has_gone(pair: Pair, at: int) -> None:
    """docs/graph.md: a step that has read anything of a deleted group reads again."""
    adam, berta, carl, *_ = WHO
    await wedding(adam, berta, 1)(pair.here)

    await run_interleaved(*(pair.here, at, wedding(berta, carl, 5)), lambda: pair.there.delete_by_group(GROUP))

    check = await pair.here.check(group_id=GROUP)
    assert check.problems == ()
    assert await married(pair.here, 9) in ({f"{berta} married to {carl}"}, set())
    for name in (berta, carl) if check.episodes else ():
        assert (await pair.here.entity(name, group_id=GROUP)).name == name


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("what", ["deleted", "undone"])
async def test_nothing_is_added_to_an_episode_that_goes_meanwhile(pair: Pair, at: int, what: str) -> None:
    """docs/graph.md: what is added to an episode by its id is added to one that is there and counts, or refused."""
    adam, berta, carl, *_ = WHO
    await wedding(adam, berta, 1, "first")(pair.here)

    async def gone() -> None:
        if what == "deleted":
            await pair.there.delete_by_group(GROUP)
        else:
            await pair.there.undo("first", group_id=GROUP)

    async def added(graph: Graph) -> None:
        with suppress(NotFoundError, InvalidError):
            await wedding(berta, carl, 5, "first")(graph)

    await run_interleaved(pair.here, at, added, gone)

    assert (await pair.here.check(group_id=GROUP)).problems == ()
    if what == "undone":
        assert await married(pair.here, 9) == set()
    else:
        told = await pair.here.backend.look(GROUP, LookupRequest(episodes=("first",)))
        assert all(adam not in row.text for row in told.episodes.values())


# -- any relations, any two steps -------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """An episode."""

    story: Episode

    async def __call__(self, graph: Graph) -> object:
        return await graph.add_episodes([self.story])


@dataclass(frozen=True)
class Undone:
    """An episode is taken back."""

    id: str

    async def __call__(self, graph: Graph) -> object:
        return await graph.undo(self.id, group_id=GROUP)


@dataclass(frozen=True)
class Merged:
    """Two are one."""

    source: str
    into: str

    async def __call__(self, graph: Graph) -> object:
        return await graph.merge(self.source, self.into, group_id=GROUP)


@dataclass(frozen=True)
class Parted:
    """One that was merged is itself again."""

    who: str

    async def __call__(self, graph: Graph) -> object:
        return await graph.unmerge(self.who, group_id=GROUP)


def told(number: int, recorded: datetime, *lines: ScriptLine) -> Told:
    content = "\n".join(map(str, lines))
    return Told(
        Episode(content=content, group_id=GROUP, id=f"story-{number}", occurred_at=recorded, recorded_at=recorded)
    )


def a_chain(*, undone: bool) -> tuple[list[Step], Step, Step]:
    """Two steps at the far ends of a chain, each of which decides about the link between them."""
    adam, berta, carl, dora, _ = WHO
    far = told(1, day(1), ScriptLine(adam, "married_to", berta, 5))
    before: list[Step] = [told(0, day(0), ScriptLine(berta, "married_to", carl, 1))]
    other = told(2, day(2), ScriptLine(carl, "married_to", dora, 3))
    return ([*before, far], Undone("story-1"), other) if undone else (before, far, other)


@st.composite
def stories(draw: st.DrawFn, number: int) -> Told:
    """An episode that says one to three things of few people, so that these touch each other often."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        one, other = draw(st.permutations(WHO))[:2]
        says: Literal["holds", "ends"] = "ends" if draw(st.integers(0, 4)) == 4 else "holds"
        type_, start = draw(st.sampled_from((*CHAINED, *TYPES))), draw(st.integers(0, 9))
        end = start + draw(st.integers(1, 5)) if says == "holds" and draw(st.booleans()) else None
        lines.append(ScriptLine(one, type_, other, start, end, says))
    recorded = day(draw(st.integers(0, 9)) + number / 100)
    return told(number, recorded, *lines)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Step], Step, Step]:
    """What was told before, and two steps."""
    before: list[Step] = [draw(stories(number)) for number in range(draw(st.integers(1, 6)))]
    some = st.one_of(
        stories(100),
        stories(101),
        st.builds(lambda number: Undone(f"story-{number}"), st.integers(0, 5)),
        st.permutations(WHO).map(lambda who: Merged(*who[:2])),
        st.sampled_from(WHO).map(Parted),
    )
    if draw(st.booleans()):
        before.append(Merged(*draw(st.permutations(WHO))[:2]))
    return before, draw(some), draw(some)


async def done(step: Step, graph: Graph) -> None:
    """Make a step; one that is refused changes nothing, and one that others have come between is made again."""
    for _ in range(5):
        try:
            await step(graph)
        except (NotFoundError, InvalidError):
            return
        except ConflictError as error:
            if "meanwhile" not in str(error):
                return
        else:
            return


async def outcome(before: Sequence[Step], steps: Sequence[Step]) -> dict[str, set[tuple[object, ...]]]:
    """What can be seen after some steps, one after the other."""
    async with fake_hub(settings=SETTINGS, clock=ManualClock()) as hub:
        graph = hub.store("one").graph.using(relations=RELATIONS, extractor=ScriptedExtractor())
        for step in (*before, *steps):
            await done(step, graph)
        return await read_all_facts(graph)


@given(world=worlds(), at=st.integers(0, CALLS))
@example(world=a_chain(undone=False), at=4)
@example(world=a_chain(undone=True), at=2)
@settings(max_examples=example_count(25, thorough=1500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_two_steps_at_once_leave_what_one_of_their_orders_leaves(
    world: tuple[list[Step], Step, Step], at: int
) -> None:
    """docs/graph.md: over relations functional at one end, both or none, symmetric or not."""
    before, one, other = world
    server, clock = FakeServer(), ManualClock()
    hubs = (fake_hub(settings=SETTINGS, server=server, clock=clock) for _ in range(2))
    async with next(hubs) as first, next(hubs) as second:
        here, there = (
            hub.store("one").graph.using(relations=RELATIONS, extractor=ScriptedExtractor()) for hub in (first, second)
        )
        for step in before:
            await done(step, here)

        await run_interleaved(here, at, lambda graph: done(one, graph), lambda: done(other, there))

        found = await read_all_facts(here)
        check = await here.check(group_id=GROUP)
    assert check.problems == ()
    assert found in [await outcome(before, order) for order in ((one, other), (other, one))]
