"""Whom names mean: which spellings are one name, and what follows for the graph."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import graph_fixtures

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.errors import InvalidError, NotFoundError, UnavailableError
from sharedmem.graph.graph import Graph
from sharedmem.graph.names import blocking_key, compare_names, entity_id, normalize_name, trigrams
from sharedmem.graph.protocol import Mention
from sharedmem.graph.records import EntityRow, LookupResult, to_stamp
from sharedmem.graph.resolver import (
    SAME_MEANING,
    AmbiguousName,
    ModelJudge,
    NameResolution,
    NameResolver,
    ResolutionInputs,
    SimilarEntity,
    are_types_compatible,
    entity_text,
    plan_resolution,
)
from sharedmem.providers.protocol import ChatMessage, Model
from sharedmem.redis.vectors import Vector
from sharedmem.text.analysis import document_terms

NOW = to_stamp("now", datetime(2026, 1, 1, tzinfo=UTC))
GROUP = "acme:names"
graph, fake_graph, real_graph = graph_fixtures.graph, graph_fixtures.fake_graph, graph_fixtures.real_graph
falkor_graph, falkor_server = graph_fixtures.falkor_graph, graph_fixtures.falkor_server

SAME = [
    ("Jon Smith", "John Smith"),
    ("Alice Johnson", "Alice Jonson"),
    ("Acme Corp", "Acme Corporation"),
    ("Acme", "Acme Corp."),
    ("Globex GmbH", "Globex"),
    ("Smith, John", "John Smith"),
    ("Microsft", "Microsoft"),
    ("Customer Suport", "Customer Support"),
    ("Müller", "Muller"),
    ("Müller", "Mueller"),
    ("O'Brien", "OBrien"),
    ("The Hobbit", "Hobbit"),
    ("shared mem", "SharedMem"),
    ("data-base", "data base"),
    ("Elizabeth Warren", "Elisabeth Warren"),
    ("Johnathan", "Jonathan"),
    ("Dr. John Smith", "John Smith"),
    ("INV-17", "inv 17"),
    ("Trail 500", "Trail500"),
    ("Иван Петров", "иван петров"),
]
DIFFERENT = [
    ("Order 1234", "Order 1235"),
    ("INV-17", "INV-71"),
    ("INV-17", "INB-17"),
    ("Anna", "Anne"),
    ("Anna", "Hanna"),
    ("Maria Garcia", "Mario Garcia"),
    ("Alice Johnson", "Alice Jackson"),
    ("Jan Smith", "Jon Smith"),
    ("Boston", "Bolton"),
    ("Carlson", "Carson"),
    ("Brian", "Brain"),
    ("Daniel", "Daniela"),
    ("Austria", "Australia"),
    ("Acme Corp", "Acme Inc"),
    ("Mr Smith", "Mrs Smith"),
    ("Dr Smith", "Smith"),
    ("Martin Luther", "Martin Luther King"),
    ("New York", "New York City"),
    ("North Lake", "South Lake"),
    ("Rocky II", "Rocky III"),
    ("Henry IV", "Henry VI"),
    ("v1.2", "v12"),
    ("Phase one", "Phase two"),
    ("U.S.", "us"),
    ("C", "C++"),
    ("C", "C#"),
    ("Notepad", "Notepad++"),
    ("a.b@example.com", "ab@example.com"),
    ("Paris Hilton", "Hilton Paris"),
    ("東京", "東亰"),
    ("x1", "x2"),
    ("Bob", "Rob"),
    ("J. Smith", "John Smith"),
    ("J. Smith", "Jane S."),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_spellings_of_one_name_are_the_same(a: str, b: str) -> None:
    mine, yours = normalize_name(a), normalize_name(b)

    assert compare_names(mine, yours).verdict == "same"
    assert compare_names(mine, yours) == compare_names(yours, mine)
    assert blocking_key(mine) == blocking_key(yours)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_names_that_are_merely_alike_are_not_the_same(a: str, b: str) -> None:
    mine, yours = normalize_name(a), normalize_name(b)

    assert compare_names(mine, yours).verdict != "same"
    assert compare_names(mine, yours).verdict == compare_names(yours, mine).verdict


names = st.text(alphabet="abehnost 017-.,'ÄüÉ#+ж東", min_size=1, max_size=24).filter(
    lambda name: bool(normalize_name(name))
)


@given(names, names)
def test_names_with_other_digits_are_never_the_same(a: str, b: str) -> None:
    mine, yours = normalize_name(a), normalize_name(b)
    digits = ["".join(filter(str.isdigit, name)) for name in (mine, yours)]

    found = compare_names(mine, yours)

    assert found.verdict != "same" or digits[0] == digits[1]
    assert found.verdict != "same" or blocking_key(mine) == blocking_key(yours)
    assert found == compare_names(yours, mine)


@given(names)
def test_the_letters_of_a_name_are_found_by_no_word(name: str) -> None:
    runs = trigrams(normalize_name(name))

    assert runs
    assert len(set(runs)) == len(runs)
    assert all(run.isascii() and run.isalnum() for run in runs)
    assert set(runs).isdisjoint(document_terms(f"{name} {' '.join(runs)}"))


def test_types_that_say_nothing_go_with_every_other() -> None:
    assert are_types_compatible("", "person")
    assert are_types_compatible("Company", "organization")
    assert not are_types_compatible("person", "company")


def resolved(
    mentions: Sequence[Mention], seen: LookupResult | None = None, near: Sequence[SimilarEntity] = ()
) -> NameResolution:
    known = seen or LookupResult(0)
    found = ResolutionInputs(known, {normalize_name(mention.name): near for mention in mentions} if near else {})
    return plan_resolution(mentions, found, recorded=NOW, by="tester")


def row(name: str, type_: str = "", *, merged_into: str = "") -> EntityRow:
    normal = normalize_name(name)
    return EntityRow(entity_id(normal), name, type_, (normal,), (), 0, "", NOW, merged_into)


def seen_with(*rows: EntityRow, **aliases: str) -> LookupResult:
    owners = {name: each.id for each in rows for name in each.names} | aliases
    ends = {each.id: each.merged_into for each in rows if each.merged_into}
    seen_names = {name: ends.get(id_, id_) for name, id_ in owners.items()}
    return LookupResult(1, seen_names, owners, ends, entities={each.id: each for each in rows})


def after(seen: LookupResult, resolution: NameResolution) -> LookupResult:
    """What a backend would show once a resolution was written."""
    entities = seen.entities | {each.id: each for each in resolution.entities}
    owners = seen.owners | dict(resolution.names)
    into = seen.into | {id_: resolution.canonical(id_) for id_ in resolution.into}
    shown = {name: into.get(id_, id_) for name, id_ in owners.items()}
    return LookupResult(seen.version + 1, shown, owners, into, entities=entities)


def test_an_unknown_name_makes_an_entity() -> None:
    resolution = resolved([Mention("Anna Weber", "person", summary="Buys shoes")])

    (made,) = resolution.entities
    assert (made.id, made.name, made.type, made.summary) == (
        entity_id("anna weber"),
        "Anna Weber",
        "person",
        "Buys shoes",
    )
    assert resolution.names == (("anna weber", made.id),)
    assert resolution.guards == ("=anna weber", "~ar")
    assert resolution.own_of("Anna Weber") == resolution.canonical_of("Anna Weber") == made.id


def test_a_known_name_writes_nothing_unless_it_teaches_something() -> None:
    known = row("Anna Weber")

    again = resolved([Mention("ANNA  WEBER")], seen_with(known))
    taught = resolved([Mention("anna weber", "person")], seen_with(known))

    assert (again.entities, again.names, again.guards) == ((), (), ())
    assert again.steady == (f"@{known.id}",)
    assert [each.type for each in taught.entities] == ["person"]
    assert taught.former == (known,)
    assert taught.guards == (f"@{known.id}",)


def test_a_declared_alias_leads_to_the_entity_and_is_no_merge() -> None:
    known = row("Acme Corp", "company")

    resolution = resolved([Mention("ACME Holdings", aliases=("Acme Corp", "AH"))], seen_with(known))

    assert resolution.canonical_of("ACME Holdings") == known.id
    assert dict(resolution.names) == {"acme holdings": known.id, "ah": known.id}
    assert resolution.merges == ()
    assert resolution.entities[0].aliases == ("ACME Holdings", "AH")
    assert resolution.entities[0].alias_count == 2


def test_an_alias_that_is_another_entitys_name_stays_with_it() -> None:
    anna, bob = row("Anna Weber"), row("Bob Miller")

    resolution = resolved([Mention("Anna Weber", aliases=("Bob Miller",))], seen_with(anna, bob))

    assert resolution.names == ()
    assert "merge the two if they are one" in resolution.warnings[0]


def test_of_very_many_aliases_some_wait_for_the_next_time() -> None:
    mention = Mention("Acme", aliases=tuple(f"Acme branch {number}" for number in range(500)))

    first = resolved([mention])
    seen = after(LookupResult(0), first)
    second = resolved([mention], seen)

    assert (len(first.names), len(second.names)) == (301, 200)
    assert "pass the others to add_alias" in first.warnings[0]
    assert second.warnings == ()
    assert after(seen, second).entities[entity_id("acme")].alias_count == 500


def test_a_slip_of_the_pen_is_a_merge_with_a_reason() -> None:
    known = row("John Smith", "person")

    resolution = resolved([Mention("Jon Smith")], seen_with(known), [SimilarEntity(known)])

    (merge,) = resolution.merged
    assert (merge.source_id, merge.into_id, merge.by) == (entity_id("jon smith"), known.id, "tester")
    assert merge.reason == "typo of 'john smith' (0.95)"
    assert resolution.own_of("Jon Smith") == merge.source_id
    assert resolution.canonical_of("Jon Smith") == known.id
    assert resolution.entities[0].merged_into == known.id


def test_a_slip_leads_to_what_the_other_was_merged_into() -> None:
    end = row("Jonathan Smith", "person")
    known = row("John Smith", "person", merged_into=end.id)

    resolution = resolved([Mention("Jon Smith")], seen_with(end, known), [SimilarEntity(known)])

    assert resolution.canonical_of("Jon Smith") == end.id


def test_another_type_keeps_alike_names_apart() -> None:
    known = row("Mercury GmbH", "company")

    resolution = resolved([Mention("Mercury", "planet")], seen_with(known), [SimilarEntity(known)])

    assert resolution.merged == ()


@pytest.mark.parametrize(
    ("name", "type_", "similarity", "is_merged"),
    [
        ("Oxford University", "organization", 0.99, True),
        ("Oxford University", "organization", SAME_MEANING - 0.01, False),
        ("Oxford University", "", 0.99, False),
        ("Cambridge College", "organization", 0.99, False),
        ("University of Oxford 2", "organization", 0.99, False),
    ],
)
def test_meaning_alone_settles_little(name: str, type_: str, similarity: float, is_merged: bool) -> None:
    known = row("University of Oxford", "organisation")

    resolution = resolved([Mention(name, type_)], seen_with(known), [SimilarEntity(known, similarity)])

    assert bool(resolution.merged) == is_merged


def test_mentions_of_one_step_know_each_other() -> None:
    resolution = resolved([Mention("John Smith"), Mention("Jon Smith"), Mention("JOHN SMITH")])

    assert len({resolution.canonical_of(name) for name in ("John Smith", "Jon Smith", "JOHN SMITH")}) == 1
    assert len(resolution.merged) == 1


def test_an_id_that_is_not_there_is_told_and_the_name_counts() -> None:
    resolution = resolved([Mention("Anna", id="nobody-1")])

    assert resolution.own_of("Anna") == entity_id("anna")
    assert "'nobody-1'" in resolution.warnings[0]


def test_an_id_that_is_there_makes_the_name_one_of_its_names() -> None:
    known = row("Anna Weber")

    resolution = resolved([Mention("the customer", id=known.id)], seen_with(known))

    assert resolution.canonical_of("the customer") == known.id
    assert resolution.names == (("the customer", known.id),)


@given(
    st.lists(
        st.builds(Mention, names, st.sampled_from(["", "person", "company"]), st.lists(names, max_size=2).map(tuple)),
        max_size=8,
    )
)
def test_resolving_is_the_same_each_time_and_once_is_enough(mentions: list[Mention]) -> None:
    first = resolved(mentions)
    again = resolved(mentions)
    seen = after(LookupResult(0), first)
    then = resolved(mentions, seen)

    assert first == again
    assert (then.names, then.merges) == ((), ())
    assert [then.canonical_of(mention.name) for mention in mentions] == [
        first.canonical_of(mention.name) for mention in mentions
    ]
    assert after(seen, then).entities == seen.entities


class Told:
    """A language model that answers what it was told to, and keeps what it was asked."""

    name = "told"

    def __init__(self, *choices: dict[str, int], failing: bool = False) -> None:
        self.choices = choices
        self.failing = failing
        self.asked: list[str] = []

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        self.asked.append(messages[-1].content)
        if self.failing:
            raise UnavailableError("the model", "it sleeps")
        return schema.model_validate({"choices": list(self.choices)})

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to give back."""


async def test_a_model_chooses_only_among_the_candidates() -> None:
    model = Told({"name": 1, "entity": 2}, {"name": 2, "entity": 7}, {"name": 9, "entity": 1})
    doubts = [
        AmbiguousName(Mention("New York City"), (row("New York State"), row("New York"))),
        AmbiguousName(Mention("Martin Luther"), (row("Martin Luther King"),)),
        AmbiguousName(Mention("Bank of the North"), (row("Bank North"),)),
    ]
    judge = ModelJudge(model)

    decided = await judge.decide(doubts)
    again = await judge.decide(doubts)

    assert decided == again == [entity_id("new york"), "", ""]
    assert len(model.asked) == 1


async def test_a_model_that_fails_leaves_names_to_new_entities() -> None:
    decided = await ModelJudge(Told(failing=True)).decide([AmbiguousName(Mention("New York City"), (row("New York"),))])

    assert decided == [""]


def test_what_a_judge_says_is_a_merge() -> None:
    known = row("New York", "city")
    found = ResolutionInputs(seen_with(known), {"new york city": [SimilarEntity(known)]}, {"new york city": known.id})

    resolution = plan_resolution([Mention("New York City", "city")], found, recorded=NOW)

    assert resolution.merged[0].reason == "decided by a language model"


async def test_a_model_is_asked_once_and_only_where_names_leave_a_doubt(fake_graph: Graph) -> None:
    known = await fake_graph.add_entity("John Smith", group_id=GROUP, type="person")
    model = Told({"name": 1, "entity": 1})
    resolver = NameResolver(fake_graph.backend, meaningless, judge=ModelJudge(model))

    clear = await resolver.resolve(GROUP, [Mention("Jon Smith"), Mention("JOHN SMITH"), Mention("Order 17")])
    asked_before = len(model.asked)
    doubtful = await resolver.resolve(GROUP, [Mention("J. Smith", "person")])

    assert (asked_before, len(model.asked)) == (0, 1)
    assert clear.canonical_of("Jon Smith") == doubtful.canonical_of("J. Smith") == known.id
    assert doubtful.merged[0].reason == "decided by a language model"


async def meaningless(texts: Iterable[str]) -> dict[str, Vector]:
    """An embedder for which nothing means anything."""
    del texts
    return {}


def test_an_entity_is_found_by_its_names_type_and_summary() -> None:
    known = EntityRow("a", "Anna", "person", ("anna",), ("Annie",), 1, "Buys shoes", NOW)

    assert entity_text(known) == "Anna, Annie (person): Buys shoes"


async def test_an_alias_a_slip_and_another_case_all_find_the_entity(graph: Graph) -> None:
    known = await graph.add_entity("John Smith", group_id=GROUP, type="person", aliases=["Johnny"])

    ids = [(await graph.add_entity(name, group_id=GROUP)).id for name in ("JOHN SMITH", "johnny", "Jon Smith")]

    assert ids == [known.id] * 3
    assert (await graph.stats(group_id=GROUP)).merges == 1


async def test_orders_with_other_numbers_stay_apart(graph: Graph) -> None:
    ids = {(await graph.add_entity(f"Order {number}", group_id=GROUP, type="order")).id for number in range(1234, 1244)}

    assert len(ids) == 10


async def test_a_slip_in_an_alias_is_noticed_where_the_ids_are_alike(graph: Graph) -> None:
    known = await graph.add_entity("Globex Industries", group_id=GROUP, type="company")

    found = await graph.add_entity("Globex Indusstries", group_id=GROUP, type="company")

    assert found.id == known.id


async def test_the_same_names_in_two_groups_are_two_entities_of_one_id(graph: Graph) -> None:
    await graph.add_entity("John Smith", group_id="a:1", type="person")

    other = await graph.add_entity("Jon Smith", group_id="a:2", type="robot")

    assert (other.name, other.type) == ("Jon Smith", "robot")
    assert (await graph.stats(group_id="a:1")).merges == (await graph.stats(group_id="a:2")).merges == 0


async def test_many_tellers_of_one_new_name_make_one_entity(graph: Graph) -> None:
    entities = await asyncio.gather(*(graph.add_entity("Anna Weber", group_id=GROUP) for _ in range(8)))

    assert len({entity.id for entity in entities}) == 1
    assert (await graph.stats(group_id=GROUP)).entities == 1


async def test_two_spellings_that_are_told_at_once_become_one_entity(
    store: SharedMemoryStore, redis_url: str, namespace: str, settings: Settings
) -> None:
    async with Hub.open(redis_url, settings=settings) as other:
        graphs = [store.graph, other.store(namespace).graph]
        spellings = ["Jonathan Smith", "Johnathan Smith"]
        for number in range(20):
            await asyncio.gather(*(each.add_entity("Anna Weber", group_id=f"group:{number}") for each in graphs))

        await asyncio.gather(
            *(
                each.add_entity(name, group_id=f"group:{number}")
                for number in range(20)
                for each, name in zip(graphs, spellings, strict=True)
            )
        )

    stats = [await store.graph.stats(group_id=f"group:{number}") for number in range(20)]
    assert {(each.entities, each.merges) for each in stats} == {(2, 1)}


@pytest.mark.parametrize("name", ["", "  ", "...", "x" * 201, "a\ud800b"])
async def test_what_can_be_no_name_is_refused(graph: Graph, name: str) -> None:
    with pytest.raises(InvalidError):
        await graph.add_entity(name, group_id=GROUP)
    with pytest.raises((InvalidError, NotFoundError)):
        await graph.merge(name, "Anna", group_id=GROUP)


@pytest.mark.parametrize(("angle", "is_one"), [(0.0, True), (0.5, False)])
async def test_names_that_share_a_word_are_one_when_they_mean_the_same(
    fake_graph: Graph, angle: float, is_one: bool
) -> None:
    await fake_graph.add_entity("Northern Light Systems", group_id=GROUP, type="company")

    async def meanings(texts: Iterable[str]) -> dict[str, Vector]:
        turned = {text: angle * ("Systems" in text) for text in texts}
        return {text: np.array([np.cos(by), np.sin(by)], np.float32) for text, by in turned.items()}

    resolution = await NameResolver(fake_graph.backend, meanings).resolve(GROUP, [Mention("Northern Light", "company")])

    assert [merge.reason.startswith("meaning of") for merge in resolution.merged] == [True] * is_one
