"""Finding things in graphs, and the context for a question, on each backend."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from support import small_graph_fixtures
from support.graph_rows import GROUP, day
from support.memory_fixtures import FaultyEmbedder
from support.redis_process import RedisProcess
from support.small_graph_fixtures import add_unrelated_episode, sorted_fact_texts

from sharedmem import Settings
from sharedmem.errors import InvalidError, UnavailableError, UnsupportedError
from sharedmem.graph.graph import Graph
from sharedmem.models import UNKNOWN, ContextSet, Entity, Fact, GraphHit
from sharedmem.testing import fake_hub

server, provider, hub, graph = (
    small_graph_fixtures.server,
    small_graph_fixtures.provider,
    small_graph_fixtures.hub,
    small_graph_fixtures.graph,
)
OTHER = "acme:billing"


def texts(context: ContextSet) -> list[str]:
    return [item.text for item in context.items]


def ids(hits: Iterable[GraphHit]) -> list[str]:
    return [hit.item.id for hit in hits]


# -- searches -------------------------------------------------------------------------------------


async def test_a_search_finds_episodes_entities_and_facts_by_words_and_by_meaning(graph: Graph) -> None:
    await add_unrelated_episode(graph, "rain", "Oslo was wet.")

    for search in (graph.text_search, graph.vector_search):
        hits = await search("Oslo", group_id=GROUP, kinds=("episode", "entity", "fact"))
        assert {"episode", "entity", "fact"} <= {hit.kind for hit in hits}
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert ids(await search("Oslo was wet", group_id=GROUP, limit=1)) == ["rain"]


async def test_a_search_finds_what_was_true_and_known_then(graph: Graph) -> None:
    now = await graph.text_search("Ada lives", group_id=GROUP, kinds=("fact",))
    then = await graph.text_search("Ada lives", group_id=GROUP, kinds=("fact",), as_of=day(55), known_at=day(59))

    assert "Ada lives in Berlin" not in sorted_fact_texts(hit.item for hit in now if isinstance(hit.item, Fact))
    assert sorted_fact_texts(hit.item for hit in then if isinstance(hit.item, Fact))[:1] == ["Ada lives in Berlin"]


async def test_episodes_of_later_and_those_undone_are_not_found(graph: Graph) -> None:
    await add_unrelated_episode(graph, "early", at=5)
    await add_unrelated_episode(graph, "late", at=25)
    await add_unrelated_episode(graph, "wrong", at=6)
    await graph.undo("wrong", group_id=GROUP)

    assert set(ids(await graph.text_search("umbrella", group_id=GROUP))) == {"early", "late"}
    assert set(ids(await graph.text_search("umbrella", group_id=GROUP, known_at=day(20)))) == {"early", "wrong"}
    assert ids(await graph.text_search("umbrella", group_id=GROUP, as_of=day(5.5))) == ["early"]


async def test_what_an_entity_is_said_to_be_is_that_of_the_time(graph: Graph) -> None:
    for at, summary in ((10, "Makes umbrellas of silk."), (40, "Makes umbrellas of nylon.")):
        await graph.add_entity("Globex", group_id=GROUP, summary=summary, at=day(at))

    async def told(as_of: float | None) -> list[str]:
        when = None if as_of is None else day(as_of)
        context = await graph.retrieve("Which umbrellas does Globex make?", group_id=GROUP, as_of=when)
        return [item.text for item in context.items if item.kind == "entity"]

    assert await told(None) == ["Globex: Makes umbrellas of nylon."]
    assert await told(20) == ["Globex: Makes umbrellas of silk."]
    assert await told(5) == []


async def test_a_vector_can_be_searched_for(graph: Graph, provider: FaultyEmbedder) -> None:
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


async def test_what_begins_in_the_future_is_in_no_context_of_now(graph: Graph) -> None:
    await graph.add_relationship("Bo", "lives_in", "Rome", group_id=GROUP, valid_from=day(36_500))

    now = await graph.retrieve("Where does Bo live?", group_id=GROUP)
    then = await graph.retrieve("Where does Bo live?", group_id=GROUP, as_of=day(36_500))

    assert "Bo lives in Rome" not in texts(now)
    assert texts(then)[0] == "Bo lives in Rome"


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


async def test_a_part_of_a_name_is_enough_where_only_one_can_be_meant(graph: Graph) -> None:
    await graph.add_relationship("Mara Lindqvist", "lives_in", "Umea", group_id=GROUP)
    await graph.add_relationship("Mara Lindqvist", "works_for", "Acme Ltd", group_id=GROUP)

    context = await graph.retrieve("In which town does Mara live?", group_id=GROUP, explain=True)

    assert context.entities == {"mara": (await graph.entity("Mara Lindqvist", group_id=GROUP)).id}
    assert context.items[0].text == "Mara Lindqvist lives in Umea"
    assert context.items[0].signals["answer"] > 0
    assert context.items[0].distance == 0


async def test_a_record_without_a_named_entity_is_found_by_words(graph: Graph) -> None:
    await add_unrelated_episode(graph, "rain")

    context = await graph.retrieve("wet umbrellas", group_id=GROUP)

    assert context.items[0].id == "rain"
    assert context.items[0].episode_ids == ("rain",)
    assert context.entities == {}


async def test_a_context_of_a_session_holds_its_episodes_only(graph: Graph) -> None:
    await add_unrelated_episode(graph, "rain")

    here = await graph.retrieve("wet umbrellas", group_id=GROUP, session="s1")
    there = await graph.retrieve("wet umbrellas", group_id=GROUP, session="s2")

    assert "rain" in [item.id for item in here.items]
    assert "rain" not in [item.id for item in there.items]


async def test_recall_goes_on_by_words_while_the_provider_is_down(graph: Graph, provider: FaultyEmbedder) -> None:
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


async def test_without_an_embedder_words_and_graph_decide(server: RedisProcess | None) -> None:
    if server is not None:
        pytest.skip("one server is enough: nothing differs")
    async with fake_hub(settings=Settings(embedder="none")) as hub:
        graph = hub.store("team").graph
        await graph.add_relationship("Ada", "lives_in", "Paris", group_id=GROUP)

        context = await graph.retrieve("Where does Ada live?", group_id=GROUP)

        assert texts(context) == ["Ada lives in Paris"]
        assert "no embedder" in (context.degraded or "")
        with pytest.raises(UnsupportedError):
            await graph.vector_search("Ada", group_id=GROUP)


# -- by other words -------------------------------------------------------------------------------


async def test_static_vectors_find_the_damaged_laptop_by_other_words() -> None:
    """docs/graph-retrieval.md: what static vectors find."""
    talk = (
        "I ordered a laptop last week but it arrived damaged",
        "Maria Lopez moved to Porto in May.",
        "Our opening hours are from nine to five.",
        "The newsletter can be cancelled in the settings.",
        "I would like to change my delivery address.",
        "The invoice for March has a wrong VAT number.",
        "Can you recommend a good pair of headphones?",
        "My password does not work any more.",
        "The gift card expires in December.",
        "Thanks, that solved my problem.",
    )
    settings = Settings(embedder="wordllama", durable_url="none", graph_summary_every=0)
    async with fake_hub(settings=settings) as hub:
        graph = hub.store("shop").graph
        for number, text in enumerate(talk):
            await graph.add_episode(text, group_id=GROUP, id=f"e{number}", user="ada")

        (entity,) = await graph.vector_search("broken product refund", group_id=GROUP, kinds=("entity",), limit=1)
        episodes = await graph.vector_search("broken product refund", group_id=GROUP, limit=3)
        context = await graph.retrieve("broken product refund", group_id=GROUP, k=5)

    assert isinstance(entity.item, Entity)
    assert entity.item.name == "damaged laptop"
    assert "e0" in ids(episodes)
    assert "laptop order has issue damaged laptop" in texts(context)[:2]
