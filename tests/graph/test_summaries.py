"""docs/graph.md: long conversations are summed up in the background, by any process, each part of them once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta, timezone

import fakeredis
import pytest
from support.graph_rows import GROUP, day
from support.waiting import wait_until

from sharedmem import Hub, InvalidError, NotFoundError, Settings, UnavailableError
from sharedmem.coordination.queues import TaskQueue
from sharedmem.graph.graph import Graph
from sharedmem.graph.summaries import QUEUE, DueSummary, build_summary, next_due_summary
from sharedmem.graph.writer import known_facts
from sharedmem.models import Episode
from sharedmem.providers.protocol import ChatMessage, Model
from sharedmem.testing import ManualClock, fake_hub

EVERY = 4


class Scribe:
    """A model that returns the number of its messages, fails on request, and waits while its door is closed."""

    name = "test:scribe"

    def __init__(self) -> None:
        self.asked: list[Sequence[ChatMessage]] = []
        self.error: Exception | None = None
        self.door = asyncio.Event()
        self.door.set()
        self.begun = asyncio.Event()
        self.words = "They talked"

    async def write(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 500,  # noqa: ARG002  # the protocol's
    ) -> str:
        self.asked.append(messages)
        self.begun.set()
        await self.door.wait()
        if self.error is not None:
            raise self.error
        return f"{self.words} {len(self.asked)} times." if self.words else ""

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        raise AssertionError(messages, schema)

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def scribe() -> Scribe:
    return Scribe()


@pytest.fixture
def given_settings() -> Settings:
    return Settings(embedder="hashing", graph_summary_every=EVERY, durable_url="none")


@pytest.fixture
async def hub(given_settings: Settings, scribe: Scribe) -> AsyncIterator[Hub]:
    async with fake_hub(settings=given_settings, model=scribe) as hub:
        yield hub


@pytest.fixture
def graph(hub: Hub) -> Graph:
    return hub.store("team", actor="ann").graph


async def talk(graph: Graph, numbers: range, *, session: str | None = "s1", user: str | None = "ann") -> None:
    """Say something on some days."""
    for number in numbers:
        await graph.add_episode(
            f"On day {number} the ferry was late.",
            group_id=GROUP,
            id=f"{session}-{number}",
            occurred_at=day(number),
            session=session,
            user=user,
            extract=False,
        )


async def summaries(graph: Graph, session: str | None = "s1") -> list[Episode]:
    """All of a session, the lowest first."""
    told = await graph.episodes(group_id=GROUP, kind="summary")
    return sorted((one for one in told if one.session == session), key=lambda one: (one.level, one.id))


async def until_there_are(graph: Graph, count: int) -> None:
    async def there() -> bool:
        return (await graph.stats(group_id=GROUP)).summaries == count

    await wait_until(there, description=f"there are {count} summaries")


def queue_of(hub: Hub) -> TaskQueue:
    return hub.store("team").queue(QUEUE)


async def idle(hub: Hub) -> bool:
    stats = await queue_of(hub).stats()
    return not stats.ready + stats.claimed + stats.delayed


async def test_after_so_many_turns_of_a_session_a_summary_of_them_appears(graph: Graph, scribe: Scribe) -> None:
    await talk(graph, range(EVERY - 1))
    assert (await graph.stats(group_id=GROUP)).summaries == 0
    await talk(graph, range(EVERY - 1, EVERY))
    await until_there_are(graph, 1)

    (summary,) = await summaries(graph)

    assert (summary.content, summary.level, summary.source) == ("They talked 1 times.", 1, "summary")
    assert (summary.session, summary.user, summary.group_id) == ("s1", "ann", GROUP)
    assert summary.covers == tuple(f"s1-{number}" for number in range(EVERY))
    assert summary.occurred_at == day(EVERY - 1)
    system, *turns = scribe.asked[0]
    assert system.role == "system"
    assert [turn.content for turn in turns] == [
        f"[{day(number):%Y-%m-%d %H:%M}] message: On day {number} the ferry was late." for number in range(EVERY)
    ]


async def test_turns_of_other_sessions_and_of_none_are_summed_up_apart(graph: Graph) -> None:
    await talk(graph, range(EVERY))
    await talk(graph, range(EVERY - 1), session="s2")
    await talk(graph, range(EVERY), session=None, user=None)
    await until_there_are(graph, 2)

    (first,), (loose,) = await summaries(graph), await summaries(graph, None)

    assert all(id_.startswith("s1-") for id_ in first.covers)
    assert loose.covers == tuple(f"None-{number}" for number in range(EVERY))
    assert loose.user is None
    assert await summaries(graph, "s2") == []


async def test_a_session_of_several_users_belongs_to_none_of_them(graph: Graph) -> None:
    await talk(graph, range(EVERY - 1), user="ann")
    await talk(graph, range(EVERY - 1, EVERY), user="bob")
    await until_there_are(graph, 1)

    (summary,) = await summaries(graph)

    assert summary.user is None


async def test_so_many_summaries_are_summed_up_in_turn(graph: Graph, hub: Hub) -> None:
    await talk(graph, range(EVERY * EVERY))
    await until_there_are(graph, EVERY + 1)

    *first, top = await summaries(graph)

    assert [one.level for one in first] == [1] * EVERY
    assert top.level == 2
    assert set(top.covers) == {one.id for one in first}
    assert sorted(id_ for one in first for id_ in one.covers) == sorted(f"s1-{n}" for n in range(EVERY * EVERY))
    await wait_until(lambda: idle(hub), description="nothing is left to do")
    assert (await graph.summarize(group_id=GROUP, session="s1")) == []


async def test_many_episodes_told_in_one_step_make_what_is_due(graph: Graph) -> None:
    told = [
        Episode(content=f"Turn {number}.", group_id=GROUP, id=f"t{number}", session="s1", occurred_at=day(number))
        for number in range(3 * EVERY + 1)
    ]

    await graph.add_episodes(told, extract=False)

    await until_there_are(graph, 3)
    covered = sorted(int(id_[1:]) for one in await summaries(graph) for id_ in one.covers)
    assert covered == list(range(3 * EVERY))


async def test_what_is_told_again_is_no_further_turn(graph: Graph) -> None:
    for _ in range(2):
        await talk(graph, range(EVERY - 1))

    assert await graph.summarize(group_id=GROUP, session="s1") == []
    assert (await graph.stats(group_id=GROUP)).summaries == 0


async def test_turns_told_late_are_in_the_next_summary(graph: Graph) -> None:
    await talk(graph, range(10, 10 + EVERY))
    await until_there_are(graph, 1)

    await talk(graph, range(EVERY))
    await until_there_are(graph, 2)

    covers = [set(one.covers) for one in await summaries(graph)]
    assert {f"s1-{n}" for n in range(EVERY)} in covers
    assert {f"s1-{n}" for n in range(10, 10 + EVERY)} in covers


async def test_a_turn_told_while_the_model_writes_is_neither_lost_nor_summed_up_twice(
    graph: Graph, scribe: Scribe
) -> None:
    scribe.door.clear()
    await talk(graph, range(10, 10 + EVERY))
    await scribe.begun.wait()
    await talk(graph, range(1))
    scribe.door.set()
    await talk(graph, range(1, EVERY))
    await until_there_are(graph, 2)

    covered = [id_ for one in await summaries(graph) for id_ in one.covers]

    assert sorted(covered) == sorted(f"s1-{n}" for n in (*range(EVERY), *range(10, 10 + EVERY)))


async def test_what_was_undone_is_not_summed_up(graph: Graph) -> None:
    await talk(graph, range(2))
    await graph.undo("s1-0", group_id=GROUP)
    await talk(graph, range(2, EVERY + 1))

    (made,) = await graph.summarize(group_id=GROUP, session="s1") or await summaries(graph)

    assert made.covers == tuple(f"s1-{n}" for n in range(1, EVERY + 1))


async def test_a_summary_that_was_undone_is_not_made_again(graph: Graph) -> None:
    await talk(graph, range(EVERY))
    await until_there_are(graph, 1)
    (summary,) = await summaries(graph)
    await graph.undo(summary.id, group_id=GROUP)

    async with asyncio.timeout(60):
        assert await graph.summarize(group_id=GROUP, session="s1") == []

    await talk(graph, range(EVERY, 2 * EVERY))
    await until_there_are(graph, 2)
    fresh = [one for one in await summaries(graph) if one.undone_at is None]
    assert [one.covers for one in fresh] == [tuple(f"s1-{n}" for n in range(EVERY, 2 * EVERY))]


async def test_a_group_that_was_deleted_and_is_told_again_is_summed_up_again(graph: Graph) -> None:
    for _ in range(2):
        await talk(graph, range(EVERY))
        await until_there_are(graph, 1)
        await graph.delete_by_group(GROUP)

    assert await graph.groups() == []


async def test_zero_switches_summaries_off(scribe: Scribe) -> None:
    settings = Settings(embedder="hashing", graph_summary_every=0, durable_url="none")
    async with fake_hub(settings=settings, model=scribe) as hub:
        graph = hub.store("team").graph
        await talk(graph, range(40))

        with pytest.raises(InvalidError, match="disabled"):
            await graph.summarize(group_id=GROUP, session="s1")

        assert await idle(hub)
        assert scribe.asked == []


async def test_offline_the_summary_quotes_the_turns(given_settings: Settings) -> None:
    async with fake_hub(settings=given_settings) as hub:
        graph = hub.store("team").graph
        await talk(graph, range(EVERY))
        await until_there_are(graph, 1)

        (summary,) = await summaries(graph)

        assert "the ferry was late" in str(summary.content)


# -- links -----------------------------------------------------------------------------------------------


async def links_of(graph: Graph, node: str) -> list[str]:
    """The ids of the summaries that a node is linked to."""
    return [fact.source_name for fact in await graph.facts(node, group_id=GROUP, type="summary_of", direction="in")]


async def test_a_summary_is_linked_to_the_nodes_of_its_conversation_and_its_user(graph: Graph) -> None:
    await talk(graph, range(EVERY))
    await until_there_are(graph, 1)
    (summary,) = await summaries(graph)

    links = await graph.facts(summary.id, group_id=GROUP)

    assert {(fact.type, fact.target_name) for fact in links} == {
        ("summary_of", "conversation:s1"),
        ("summary_of", "user:ann"),
    }
    assert {fact.episode_ids for fact in links} == {(summary.id,)}
    assert {fact.valid_from for fact in links} == {summary.occurred_at}
    assert set(summary.fact_ids) == {fact.id for fact in links}
    around = await graph.traverse_from_entities(["user:ann"], group_id=GROUP)
    assert {one.name for one in around.reached} == {"user:ann", summary.id, "conversation:s1"}
    assert (await graph.check(group_id=GROUP)).is_clean


async def test_each_user_of_a_conversation_is_linked_to_its_summaries_and_to_theirs(graph: Graph) -> None:
    for number in range(EVERY * EVERY):
        await talk(graph, range(number, number + 1), user=("ann", "bob")[number % 2])
    await until_there_are(graph, EVERY + 1)
    made = sorted(one.id for one in await summaries(graph))

    assert sorted(await links_of(graph, "user:ann")) == made
    assert sorted(await links_of(graph, "user:bob")) == made
    assert sorted(await links_of(graph, "conversation:s1")) == made


async def test_turns_without_session_and_user_are_linked_to_nothing(graph: Graph) -> None:
    await talk(graph, range(EVERY), session=None, user=None)
    await until_there_are(graph, 1)

    stats = await graph.stats(group_id=GROUP)

    assert (stats.entities, stats.facts) == (0, 0)


async def test_a_user_is_not_taken_for_an_entity_of_that_name(graph: Graph) -> None:
    ann = await graph.add_entity("Ann", group_id=GROUP)
    await graph.add_entity("user:anna", group_id=GROUP)
    await talk(graph, range(EVERY))
    await until_there_are(graph, 1)

    assert await graph.facts(ann.id, group_id=GROUP) == []
    assert await links_of(graph, "user:anna") == []
    assert len(await links_of(graph, "user:ann")) == 1


async def test_the_longest_names_of_users_and_sessions_are_linked_too(graph: Graph) -> None:
    turns = [
        Episode(content=f"Turn {n}.", group_id=GROUP, occurred_at=day(n), session="s" * 200, user="u" * 200)
        for n in range(EVERY)
    ]
    await graph.add_episodes(turns, extract=False)
    await until_there_are(graph, 1)
    (summary,) = await summaries(graph, "s" * 200)

    names = [fact.target_name for fact in await graph.facts(summary.id, group_id=GROUP)]

    assert len(names) == 2
    for name in names:
        assert await links_of(graph, name) == [summary.id]


async def test_the_links_of_a_summary_go_with_it(graph: Graph) -> None:
    await talk(graph, range(2 * EVERY))
    await until_there_are(graph, 2)
    first, second = await summaries(graph)

    await graph.undo(first.id, group_id=GROUP)
    assert await links_of(graph, "user:ann") == [second.id]

    await graph.delete_by_group(GROUP)
    assert await graph.groups() == []
    with pytest.raises(NotFoundError):
        await graph.facts("user:ann", group_id=GROUP)


async def test_links_are_no_part_of_what_a_question_needs_to_know(graph: Graph) -> None:
    await talk(graph, range(EVERY))
    await until_there_are(graph, 1)

    context = await graph.retrieve("What is the summary of conversation:s1 of user:ann?", group_id=GROUP)

    assert {item.kind for item in context.items} == {"summary"}


async def test_links_are_not_shown_to_a_model_that_extracts_facts(graph: Graph) -> None:
    await talk(graph, range(EVERY))
    await until_there_are(graph, 1)
    question = Episode(content="Was conversation:s1 of user:ann in a summary?", group_id=GROUP)

    assert (await known_facts(graph.backend, GROUP, question)).facts == []


@pytest.mark.parametrize("users", [5, None, "ann", [1, "bob"]])
async def test_the_metadata_of_a_turn_is_not_taken_for_its_users(graph: Graph, users: object) -> None:
    turns = [
        Episode(content=f"Turn {n}.", group_id=GROUP, id=f"t{n}", occurred_at=day(n), metadata={"users": users})
        for n in range(EVERY)
    ]
    await graph.add_episodes(turns, extract=False)
    await until_there_are(graph, 1)

    assert (await graph.stats(group_id=GROUP)).entities == 0


# -- workers ---------------------------------------------------------------------------------------------


async def test_two_hubs_make_one_summary_whatever_each_of_their_models_writes(given_settings: Settings) -> None:
    server = fakeredis.FakeServer()
    scribes = Scribe(), Scribe()
    scribes[1].words = "Somebody spoke"
    async with (
        fake_hub(settings=given_settings, server=server, model=scribes[0]) as one,
        fake_hub(settings=given_settings, server=server, model=scribes[1]) as other,
    ):
        graphs = [hub.store("team", actor="ann").graph for hub in (one, other)]
        for scribe in scribes:
            scribe.door.clear()
        await talk(graphs[0], range(EVERY))
        asking = [asyncio.ensure_future(graph.summarize(group_id=GROUP, session="s1")) for graph in graphs]
        await asyncio.gather(*(scribe.begun.wait() for scribe in scribes))
        for scribe in scribes:
            scribe.door.set()

        made = await asyncio.gather(*asking)

        assert sum(map(len, made)) <= 1
        await wait_until(lambda: idle(one), description="nothing is left to do")
        (summary,) = await summaries(graphs[0])
        assert summary.covers == tuple(f"s1-{number}" for number in range(EVERY))


async def test_the_task_of_a_worker_that_was_killed_is_taken_over(given_settings: Settings, scribe: Scribe) -> None:
    server, clock = fakeredis.FakeServer(), ManualClock()
    async with fake_hub(settings=given_settings, server=server, model=scribe, clock=clock) as hub:
        graph = hub.store("team").graph
        queue = queue_of(hub)
        # A process has added the turns, has claimed the task, and never responds again.
        quiet = given_settings.replace(graph_summary_every=0)
        async with fake_hub(settings=quiet, server=server, model=scribe, clock=clock) as killed:
            await talk(killed.store("team").graph, range(EVERY))
            await queue_of(killed).put({"group_id": GROUP, "session": "s1"})
            assert await queue_of(killed).claim() is not None

        await talk(graph, range(1), session="s2")

        async def is_taken_over() -> bool:
            clock.advance(1)
            return bool(await summaries(graph))

        await wait_until(is_taken_over, description="another worker has made the summary")
        assert (await queue.stats()).dead == 0


async def test_a_worker_whose_hub_closes_leaves_the_task_to_others_at_once(
    given_settings: Settings, scribe: Scribe
) -> None:
    server, stuck = fakeredis.FakeServer(), Scribe()
    stuck.door.clear()
    async with fake_hub(settings=given_settings, server=server, model=stuck) as leaving:
        await talk(leaving.store("team").graph, range(EVERY))
        await stuck.begun.wait()

    async with fake_hub(settings=given_settings, server=server, model=scribe) as hub:
        graph = hub.store("team").graph
        await talk(graph, range(1), session="s2")

        await until_there_are(graph, 1)


async def test_a_model_that_fails_is_asked_again_until_it_works(given_settings: Settings, scribe: Scribe) -> None:
    clock = ManualClock()
    scribe.error = UnavailableError("test:scribe", "it is down")
    async with fake_hub(settings=given_settings, model=scribe, clock=clock) as hub:
        graph = hub.store("team").graph
        await talk(graph, range(EVERY))

        async def has_failed_twice() -> bool:
            clock.advance(1)
            return len(scribe.asked) > 1

        await wait_until(has_failed_twice, description="the model was asked again")
        assert await summaries(graph) == []
        scribe.error = None

        async def is_made() -> bool:
            clock.advance(10)
            return bool(await summaries(graph))

        await wait_until(is_made, description="the summary is made")


async def test_a_model_that_never_works_ends_in_a_dead_letter_that_says_why(
    given_settings: Settings, scribe: Scribe
) -> None:
    clock = ManualClock()
    scribe.words = ""
    async with fake_hub(settings=given_settings, model=scribe, clock=clock) as hub:
        graph, queue = hub.store("team").graph, queue_of(hub)
        await talk(graph, range(EVERY))

        async def is_given_up() -> bool:
            clock.advance(301)
            return (await queue.stats()).dead == 1

        await wait_until(is_given_up, description="the task is a dead letter")
        (letter,) = await queue.dead()
        assert "returned an empty text" in str(letter)
        assert await summaries(graph) == []
        scribe.words = "In the end"
        await queue.redrive_all()
        await talk(graph, range(EVERY, 2 * EVERY))

        async def are_made() -> bool:
            clock.advance(1)
            return len(await summaries(graph)) == 2

        await wait_until(are_made, description="both summaries are made")


async def test_a_task_that_is_none_troubles_no_other(graph: Graph, hub: Hub) -> None:
    for payload in ("junk", {"group_id": "{}", "session": ""}, {"group_id": GROUP}):
        await queue_of(hub).put(payload, max_attempts=1)

    await talk(graph, range(EVERY))

    await until_there_are(graph, 1)


# -- what retrieval makes of them ------------------------------------------------------------------------


async def test_of_long_ago_the_summary_is_answered_and_of_just_now_the_turns(graph: Graph, scribe: Scribe) -> None:
    scribe.words = "The ferry was late and they talked of it"
    await talk(graph, range(EVERY))
    await until_there_are(graph, 1)

    long_after = await graph.retrieve("ferry late", group_id=GROUP, as_of=day(400))
    soon_after = await graph.retrieve("ferry late", group_id=GROUP, as_of=day(EVERY))

    assert [item.kind for item in long_after.items] == ["summary"]
    assert soon_after.items[0].kind == "episode"
    assert sum(item.kind == "episode" for item in soon_after.items) == EVERY


# -- what is due, without a server -----------------------------------------------------------------------


def turn(id_: str, occurred: datetime) -> Episode:
    return Episode(content=id_, group_id=GROUP, id=id_, occurred_at=occurred)


def test_turns_are_in_order_of_time_whatever_their_zones() -> None:
    ahead = timezone(timedelta(hours=10))
    later, earlier = turn("a", day(2)), turn("b", (day(2) - timedelta(hours=1)).astimezone(ahead))

    due = next_due_summary([later, earlier], [], every=2)

    assert due is not None
    assert [one.id for one in due.covers] == ["b", "a"]


def test_single_turns_are_summed_up_once_and_not_over_and_over() -> None:
    first = turn("a", day(1))
    summary = build_summary("A.", DueSummary(1, (first,)))

    assert next_due_summary([first], [summary], every=1) is None


def test_of_the_same_turns_there_is_one_summary() -> None:
    turns = (turn("a", day(1)), turn("b", day(2)))

    assert build_summary("One.", DueSummary(1, turns)).id == build_summary("Other.", DueSummary(1, turns)).id
    assert build_summary("One.", DueSummary(1, turns)).id != build_summary("One.", DueSummary(1, turns[:1])).id
    assert build_summary("One.", DueSummary(1, turns)).id != build_summary("One.", DueSummary(2, turns)).id
