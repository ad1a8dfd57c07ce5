"""Reading, finding and traversing graphs, through `store.graph` on a real server and on fakeredis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import pytest
from support.bare_server import BareServer
from support.faulty_hubs import impatient
from support.graph_rows import GROUP, day
from support.memory_ground import Provider

from sharedmem import Hub
from sharedmem.errors import InvalidError, NotFoundError, UnavailableError, UnsupportedError
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.models import UNKNOWN, ContextSet, Entity, Episode, Fact, GraphHit
from sharedmem.testing import fake_hub
from sharedmem.wire.binaries import find_server

OTHER = "acme:billing"


@pytest.fixture(scope="module", params=["fake", "redisearch", "falkordb"])
def ground(request: pytest.FixtureRequest) -> Iterator[BareServer | None]:
    """A real server with a module that can search, or fakeredis."""
    if request.param == "fake":
        yield None
        return
    module = {"redisearch": "search", "falkordb": "graph"}[request.param]
    if module not in (modules := find_server().modules):
        pytest.skip(f"the {module} module is not installed on this platform")
    with BareServer(loadmodule=modules[module]) as server:
        yield server


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def hub(request: pytest.FixtureRequest, ground: BareServer | None, provider: Provider) -> AsyncIterator[Hub]:
    if ground is None:
        async with fake_hub(embedder=provider) as hub:
            yield hub
        return
    ground.tell("FLUSHALL")
    backend = "falkordb" if "falkordb" in request.node.name else "redis"
    settings = impatient(ground.url).replace(graph_backend=backend)
    async with Hub(settings=settings, embedder=provider) as hub:
        yield hub


@pytest.fixture
async def graph(hub: Hub) -> Graph:
    """Ada moved from Berlin to Paris on day 50, which was learned on day 60; Bo and she work for Acme, in Oslo."""
    graph = hub.store("team", actor="ann").graph
    told = [
        ("Ada", "lives_in", "Berlin", 0, 1),
        ("Ada", "lives_in", "Paris", 50, 60),
        ("Ada", "works_for", "Acme Ltd", 10, 11),
        ("Bo", "works_for", "Acme Ltd", 20, 21),
        ("Acme Ltd", "located_in", "Oslo", 0, 2),
    ]
    for source, type_, target, valid, recorded in told:
        await graph.add_relationship(
            source, type_, target, group_id=GROUP, valid_from=day(valid), recorded_at=day(recorded)
        )
    return graph


async def rained(graph: Graph, id_: str, text: str = "The umbrella stand was wet.", at: float = 5) -> None:
    """Keep an episode in which nothing is looked for."""
    episode = Episode(content=text, group_id=GROUP, id=id_, occurred_at=day(at), recorded_at=day(at), session="s1")
    await graph.add_episodes([episode], extract=False)


def said(facts: Iterable[Fact]) -> list[str]:
    return sorted(fact.fact for fact in facts)


def texts(context: ContextSet) -> list[str]:
    return [item.text for item in context.items]


def ids(hits: Iterable[GraphHit]) -> list[str]:
    return [hit.item.id for hit in hits]


# -- facts of an entity ---------------------------------------------------------------------------


async def test_facts_are_those_that_hold_now_as_known_now(graph: Graph) -> None:
    assert said(await graph.facts("ada", group_id=GROUP)) == ["Ada lives in Paris", "Ada works for Acme Ltd"]


@pytest.mark.parametrize(
    ("as_of", "known_at", "town"),
    [
        (49, None, "Berlin"),
        (50, None, "Paris"),
        (55, 59, "Berlin"),
        (55, 60, "Paris"),
        (0, 0.5, None),
        (-1, None, None),
    ],
)
async def test_facts_at_a_time_are_those_that_held_then_as_known_then(
    graph: Graph, as_of: float, known_at: float | None, town: str | None
) -> None:
    known = None if known_at is None else day(known_at)

    found = await graph.facts("Ada", group_id=GROUP, as_of=day(as_of), known_at=known, type="lives_in")

    assert [fact.target_name for fact in found] == ([town] if town else [])


async def test_facts_of_one_direction_are_told_from_the_end_that_is_asked(graph: Graph) -> None:
    outward = await graph.facts("Acme Ltd", group_id=GROUP, direction="out")
    inward = await graph.facts("Acme Ltd", group_id=GROUP, direction="in")

    assert said(outward) == ["Acme Ltd located in Oslo"]
    assert said(inward) == ["Ada works for Acme Ltd", "Bo works for Acme Ltd"]


async def test_an_inverse_asks_for_the_same_facts_from_the_other_end(graph: Graph) -> None:
    employed = await graph.facts("Acme Ltd", group_id=GROUP, type="employs", direction="out")

    assert said(employed) == ["Ada works for Acme Ltd", "Bo works for Acme Ltd"]
    assert not await graph.facts("Acme Ltd", group_id=GROUP, type="employs", direction="in")


async def test_a_symmetric_relation_is_found_from_both_ends_in_any_direction(graph: Graph) -> None:
    await graph.add_relationship("Zoe", "knows", "Bo", group_id=GROUP)

    assert len(await graph.facts("Zoe", group_id=GROUP, type="knows", direction="in")) == 1
    assert len(await graph.facts("Bo", group_id=GROUP, type="knows", direction="in")) == 1


async def test_history_tells_every_version_oldest_knowledge_first(graph: Graph) -> None:
    versions = await graph.history("Ada", group_id=GROUP)

    assert [(fact.target_name, fact.recorded_at, fact.valid_to, fact.superseded_at) for fact in versions] == [
        ("Berlin", day(1), None, day(60)),
        ("Acme Ltd", day(11), None, None),
        ("Berlin", day(60), day(50), None),
        ("Paris", day(60), None, None),
    ]
    assert versions[2].invalidated_at == day(60)


async def test_nobody_has_no_facts_but_an_error(graph: Graph) -> None:
    for call in (graph.facts, graph.history, graph.entity):
        with pytest.raises(NotFoundError, match="Carol"):
            await call("Carol", group_id=GROUP)


async def test_a_group_knows_nothing_of_another(graph: Graph) -> None:
    await graph.add_relationship("Carol", "lives_in", "Rome", group_id=OTHER)

    with pytest.raises(NotFoundError):
        await graph.facts("Ada", group_id=OTHER)
    assert (await graph.retrieve("Where does Ada live?", group_id=OTHER)).entities == {}
    assert "Carol" not in str((await graph.retrieve("Where does Carol live?", group_id=GROUP)).items)
    assert await graph.groups() == [OTHER, GROUP]


# -- everything -----------------------------------------------------------------------------------


async def test_all_that_was_true_at_a_moment(graph: Graph) -> None:
    assert said(await graph.as_of(day(15), group_id=GROUP)) == [
        "Acme Ltd located in Oslo",
        "Ada lives in Berlin",
        "Ada works for Acme Ltd",
    ]
    assert said(await graph.as_of(day(15), group_id=GROUP, known_at=day(1.5))) == ["Ada lives in Berlin"]


async def test_all_that_was_true_comes_page_by_page(graph: Graph) -> None:
    pages, cursor = [], ""
    for _ in range(9):
        page = await graph.as_of(day(100), group_id=GROUP, limit=3, after=cursor)
        pages.append(said(page))
        cursor = page.cursor
        if not cursor:
            break

    whole = said(await graph.as_of(day(100), group_id=GROUP))
    assert [len(page) for page in pages] == [3, 1]
    assert sorted(fact for page in pages for fact in page) == whole


async def test_episodes_and_entities_come_page_by_page(graph: Graph) -> None:
    for number in range(3):
        await rained(graph, f"rain-{number}", at=number)

    first = await graph.episodes(group_id=GROUP, session="s1", limit=2)
    rest = await graph.episodes(group_id=GROUP, session="s1", after=first.cursor)
    people = await graph.entities(group_id=GROUP)

    assert [episode.id for episode in [*first, *rest]] == ["rain-0", "rain-1", "rain-2"]
    assert rest.cursor == ""
    assert {entity.name for entity in people} == {"Ada", "Berlin", "Paris", "Acme Ltd", "Bo", "Oslo"}


async def test_a_record_is_read_by_its_id(graph: Graph) -> None:
    await rained(graph, "rain")
    (fact,) = await graph.facts("Bo", group_id=GROUP)

    found = [await graph.get(id_, group_id=GROUP) for id_ in ("rain", fact.id, fact.source_id)]

    assert [type(one) for one in found] == [Episode, Fact, Entity]
    assert found[1] == fact
    with pytest.raises(NotFoundError, match="nothing-of-that"):
        await graph.get("nothing-of-that", group_id=GROUP)
    with pytest.raises(InvalidError):
        await graph.get("", group_id=GROUP)


async def test_an_entity_has_the_attributes_of_the_time_that_is_asked_for(graph: Graph) -> None:
    await graph.add_entity("Ada", group_id=GROUP, attributes={"tier": "silver"}, at=day(0))
    await graph.add_entity("Ada", group_id=GROUP, attributes={"tier": "gold"}, at=day(30))

    assert (await graph.entity("ada", group_id=GROUP)).attributes == {"tier": "gold"}
    assert (await graph.entity("ada", group_id=GROUP, as_of=day(29))).attributes == {"tier": "silver"}
    assert (await graph.entity("ada", group_id=GROUP, as_of=day(-1))).attributes == {}
    assert (await graph.get((await graph.entity("ada", group_id=GROUP)).id, group_id=GROUP)) == await graph.entity(
        "ada", group_id=GROUP
    )


async def test_a_deleted_group_is_gone_and_the_others_stay(graph: Graph) -> None:
    await graph.add_relationship("Carol", "lives_in", "Rome", group_id=OTHER)

    deleted = await graph.delete_by_group(GROUP)

    assert deleted > 0
    assert await graph.groups() == [OTHER]
    assert (await graph.stats(group_id=GROUP)).facts == 0
    assert said(await graph.facts("Carol", group_id=OTHER)) == ["Carol lives in Rome"]


async def test_the_vocabulary_says_how_relations_behave(graph: Graph) -> None:
    by_name = {relation.name: relation for relation in graph.relations()}

    assert by_name["lives_in"].functional
    assert by_name["works_for"].inverse == "employs"


# -- ways -----------------------------------------------------------------------------------------


async def test_a_traversal_tells_true_distances_and_a_shortest_way(graph: Graph) -> None:
    around = await graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=3)

    assert {one.name: one.distance for one in around.reached} == {
        "Ada": 0,
        "Paris": 1,
        "Acme Ltd": 1,
        "Bo": 2,
        "Oslo": 2,
    }
    assert [one.distance for one in around.reached] == sorted(one.distance for one in around.reached)
    (bo,) = [one for one in around.reached if one.name == "Bo"]
    assert [(step.fact.fact, step.forward) for step in bo.path] == [
        ("Ada works for Acme Ltd", True),
        ("Bo works for Acme Ltd", False),
    ]
    assert not around.truncated


async def test_a_traversal_keeps_to_its_time_and_its_bounds(graph: Graph) -> None:
    past = await graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=1, as_of=day(5))
    narrow = await graph.traverse_from_entities(["Acme Ltd"], group_id=GROUP, depth=1, fan_out=1)

    assert {one.name for one in past.reached} == {"Ada", "Berlin"}
    assert len(narrow.facts) == 1
    assert narrow.truncated


async def test_a_path_is_a_shortest_one_and_leads_from_the_first_to_the_second(graph: Graph) -> None:
    steps = await graph.path("Oslo", "Ada", group_id=GROUP)

    assert [(step.fact.fact, step.forward) for step in steps] == [
        ("Acme Ltd located in Oslo", False),
        ("Ada works for Acme Ltd", False),
    ]
    assert await graph.path("Ada", "ada", group_id=GROUP) == ()
    assert await graph.path("Bo", "Berlin", group_id=GROUP) == ()
    assert await graph.path("Oslo", "Ada", group_id=GROUP, max_depth=1) == ()
    assert len(await graph.path("Bo", "Berlin", group_id=GROUP, as_of=day(30))) == 3


async def test_ways_end_in_circles(graph: Graph) -> None:
    for source, target in (("A1", "B1"), ("B1", "C1"), ("C1", "A1"), ("A1", "A1"), ("C1", "D1")):
        await graph.add_relationship(source, "follows", target, group_id=OTHER)

    around = await graph.traverse_from_entities(["A1"], group_id=OTHER, depth=6)

    assert {one.name: one.distance for one in around.reached} == {"A1": 0, "B1": 1, "C1": 1, "D1": 2}
    assert len(await graph.path("A1", "D1", group_id=OTHER)) == 2


# -- searches -------------------------------------------------------------------------------------


async def test_a_search_finds_episodes_entities_and_facts_by_words_and_by_meaning(graph: Graph) -> None:
    await rained(graph, "rain", "Oslo was wet.")

    for search in (graph.text_search, graph.vector_search):
        hits = await search("Oslo", group_id=GROUP, kinds=("episode", "entity", "fact"))
        assert {"episode", "entity", "fact"} <= {hit.kind for hit in hits}
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert ids(await search("Oslo was wet", group_id=GROUP, limit=1)) == ["rain"]


async def test_a_search_finds_what_was_true_and_known_then(graph: Graph) -> None:
    now = await graph.text_search("Ada lives", group_id=GROUP, kinds=("fact",))
    then = await graph.text_search("Ada lives", group_id=GROUP, kinds=("fact",), as_of=day(55), known_at=day(59))

    assert "Ada lives in Berlin" not in said(hit.item for hit in now if isinstance(hit.item, Fact))
    assert said(hit.item for hit in then if isinstance(hit.item, Fact))[:1] == ["Ada lives in Berlin"]


async def test_episodes_of_later_and_those_undone_are_not_found(graph: Graph) -> None:
    await rained(graph, "early", at=5)
    await rained(graph, "late", at=25)
    await rained(graph, "wrong", at=6)
    await graph.undo("wrong", group_id=GROUP)

    assert set(ids(await graph.text_search("umbrella", group_id=GROUP))) == {"early", "late"}
    assert set(ids(await graph.text_search("umbrella", group_id=GROUP, known_at=day(20)))) == {"early", "wrong"}
    assert ids(await graph.text_search("umbrella", group_id=GROUP, as_of=day(5.5))) == ["early"]


async def test_a_vector_can_be_searched_for(graph: Graph, provider: Provider) -> None:
    vector = (await provider.embed(["Ada lives in Paris"])).vectors[0]

    (hit,) = await graph.vector_search([float(number) for number in vector], group_id=GROUP, kinds=("fact",), limit=1)

    assert isinstance(hit.item, Fact)
    assert hit.item.fact == "Ada lives in Paris"
    assert hit.score == pytest.approx(1, abs=0.01)
    with pytest.raises(InvalidError, match="query"):
        await graph.vector_search([1.0, 2.0], group_id=GROUP)


async def test_a_search_without_words_finds_nothing(graph: Graph) -> None:
    assert await graph.text_search("what is the", group_id=GROUP) == []


# -- the context for a question -------------------------------------------------------------------


async def test_the_fact_that_answers_a_question_comes_first(graph: Graph) -> None:
    home = await graph.retrieve("Where does Ada live?", group_id=GROUP)
    staff = await graph.retrieve("Who works for Acme Ltd?", group_id=GROUP)

    assert texts(home)[0] == "Ada lives in Paris"
    assert set(texts(staff)[:2]) == {"Ada works for Acme Ltd", "Bo works for Acme Ltd"}
    assert home.entities.keys() == {"ada"}
    assert 1 <= home.round_trips <= 3
    assert home.degraded is None


@pytest.mark.parametrize(("as_of", "known_at", "town"), [(49, None, "Berlin"), (55, None, "Paris"), (55, 59, "Berlin")])
async def test_a_context_of_another_time_holds_only_what_was_true_and_known_then(
    graph: Graph, as_of: float, known_at: float | None, town: str
) -> None:
    context = await graph.retrieve(
        "Where does Ada live?", group_id=GROUP, as_of=day(as_of), known_at=None if known_at is None else day(known_at)
    )

    towns = [text for text in texts(context) if text.startswith("Ada lives")]
    assert towns == [f"Ada lives in {town}"]


async def test_a_context_holds_the_past_when_that_is_wanted(graph: Graph) -> None:
    context = await graph.retrieve("Where did Ada live?", group_id=GROUP, include_past=True)

    by_text = {item.text: item for item in context.items}
    assert by_text["Ada lives in Berlin"].valid_to == day(50)
    assert by_text["Ada lives in Paris"].valid_to is None


async def test_a_context_tells_how_the_graph_led_to_a_fact(graph: Graph) -> None:
    context = await graph.retrieve("Is it Bo?", group_id=GROUP, explain=True)

    (oslo,) = [item for item in context.items if item.text == "Acme Ltd located in Oslo"]
    assert oslo.distance == 1
    assert [step.fact.fact for step in oslo.path] == ["Bo works for Acme Ltd"]
    assert oslo.score == pytest.approx(sum(oslo.signals.values()))
    assert oslo.signals["near"] > 0


async def test_what_nobody_names_is_found_by_words(graph: Graph) -> None:
    await rained(graph, "rain")

    context = await graph.retrieve("wet umbrellas", group_id=GROUP)

    assert context.items[0].id == "rain"
    assert context.items[0].episode_ids == ("rain",)
    assert context.entities == {}


async def test_a_context_of_a_session_holds_its_episodes_only(graph: Graph) -> None:
    await rained(graph, "rain")

    here = await graph.retrieve("wet umbrellas", group_id=GROUP, session="s1")
    there = await graph.retrieve("wet umbrellas", group_id=GROUP, session="s2")

    assert "rain" in [item.id for item in here.items]
    assert "rain" not in [item.id for item in there.items]


async def test_a_merged_entity_is_followed_to_what_it_became(graph: Graph) -> None:
    await graph.add_relationship("Ada Lovelace", "owns", "A boat", group_id=GROUP)
    old = (await graph.entity("Ada Lovelace", group_id=GROUP)).id
    await graph.merge("Ada Lovelace", "Ada", group_id=GROUP)

    assert (await graph.entity(old, group_id=GROUP)).name == "Ada"
    assert len(await graph.facts(old, group_id=GROUP)) == 3
    assert len(await graph.facts("Ada Lovelace", group_id=GROUP)) == 3


async def test_recall_goes_on_by_words_while_the_provider_is_down(graph: Graph, provider: Provider) -> None:
    provider.fail(UnavailableError("test", "away"))

    context = await graph.retrieve("Where does Ada reside, if she still lives?", group_id=GROUP)

    assert texts(context)[0] == "Ada lives in Paris"
    assert "away" in (context.degraded or "")
    with pytest.raises(UnavailableError):
        await graph.vector_search("Where does Ada reside, if she still lives?", group_id=GROUP)


async def test_the_beginning_of_time_is_no_trouble(graph: Graph) -> None:
    await graph.add_relationship("Sun", "owns", "Shine", group_id=OTHER, valid_from=UNKNOWN)

    context = await graph.retrieve("Sun", group_id=OTHER, as_of=day(-700_000))

    assert texts(context) == ["Sun owns Shine"]
    assert context.items[0].valid_from is None
    assert "Sun owns Shine (from " in context.as_prompt()


# -- what is refused ------------------------------------------------------------------------------


async def test_what_makes_no_sense_is_refused(graph: Graph) -> None:
    naive = day(1).replace(tzinfo=None)
    for wrong in (
        graph.facts("Ada", group_id=GROUP, as_of=naive),
        graph.facts("Ada", group_id=GROUP, known_at=naive),
        graph.facts("Ada", group_id=GROUP, direction="up"),  # type: ignore[arg-type]  # on purpose
        graph.facts("Ada", group_id=GROUP, limit=0),
        graph.facts("  ", group_id=GROUP),
        graph.facts("Ada", group_id=" "),
        graph.as_of(naive, group_id=GROUP),
        graph.text_search(" ", group_id=GROUP),
        graph.text_search("x", group_id=GROUP, kinds=()),
        graph.text_search("x", group_id=GROUP, kinds=("dream",)),  # type: ignore[arg-type]  # on purpose
        graph.retrieve("", group_id=GROUP),
        graph.retrieve("x", group_id=GROUP, k=0),
        graph.retrieve("x", group_id=GROUP, depth=7),
        graph.traverse_from_entities([], group_id=GROUP),
        graph.traverse_from_entities("Ada", group_id=GROUP),
        graph.traverse_from_entities(["Ada"], group_id=GROUP, depth=0),
        graph.traverse_from_entities(["Ada"], group_id=GROUP, fan_out=0),
        graph.path("Ada", "Bo", group_id=GROUP, max_depth=7),
    ):
        with pytest.raises(InvalidError):
            await wrong


async def test_another_namespace_sees_nothing_of_a_group_of_the_same_name(hub: Hub, graph: Graph) -> None:
    stranger = hub.store("elsewhere", actor="eve").graph

    assert await stranger.groups() == []
    assert (await stranger.retrieve("Where does Ada live?", group_id=GROUP)).items == ()
    assert await stranger.vector_search("Ada", group_id=GROUP, kinds=("fact", "entity")) == []
    assert await stranger.delete_by_group(GROUP) == 0
    with pytest.raises(NotFoundError):
        await stranger.facts("Ada", group_id=GROUP)
    assert len(await graph.facts("Ada", group_id=GROUP)) == 2


async def test_without_an_embedder_words_and_graph_decide(ground: BareServer | None) -> None:
    from sharedmem import Settings

    if ground is not None:
        pytest.skip("one ground is enough: nothing of it differs")
    async with fake_hub(settings=Settings(embedder="none")) as hub:
        graph = hub.store("team").graph
        await graph.add_relationship("Ada", "lives_in", "Paris", group_id=GROUP)

        context = await graph.retrieve("Where does Ada live?", group_id=GROUP)

        assert texts(context) == ["Ada lives in Paris"]
        assert "no embedder" in (context.degraded or "")
        with pytest.raises(UnsupportedError):
            await graph.vector_search("Ada", group_id=GROUP)
