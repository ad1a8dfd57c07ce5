"""Whatever is given to memory either works, or is refused by a sentence before anything is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import fakeredis
import pytest
from redis import Redis
from support.footprint import contents_of

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.errors import SharedMemoryError
from sharedmem.memory.memories import Memories
from sharedmem.memory.validation import LONGEST_TEXT_BYTES
from sharedmem.models import MemoryChanges, MemoryFields, MemoryFilter, MemoryItem, MemoryMessage
from sharedmem.testing import ManualClock, fake_hub

INTERVIEW = "The interview with Björk was held at noon."
HARBOUR = "Boats leave the harbour of Bergen early."
DIMENSION = 64


class Place(NamedTuple):
    """A hub, and a plain client that sees all that it writes."""

    hub: Hub
    raw: Redis


@pytest.fixture(params=["exact", "redisearch"])
async def place(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Place]:
    chosen = settings.replace(embedder="hashing")
    if request.param == "exact":
        server = fakeredis.FakeServer()
        with fakeredis.FakeRedis(server=server) as raw:
            async with fake_hub(settings=chosen, server=server) as hub:
                yield Place(hub, raw)
        return
    url = request.getfixturevalue("redis_url")
    with Redis.from_url(url) as raw:
        async with Hub.open(url, settings=chosen) as hub:
            yield Place(hub, raw)


@pytest.fixture
def hub(place: Place) -> Hub:
    return place.hub


def written(place: Place, namespace: str) -> dict[bytes, object]:
    """Everything that a namespace holds, and the log of its changes."""
    here = contents_of(place.raw, f"*{namespace}*")
    return {key: held if isinstance(held, tuple) and held[1] == -1 else None for key, held in here.items()}


# -- texts -----------------------------------------------------------------------------------------------

TEXTS = {
    "only stop words": "the and of it",
    "only punctuation": "?!... -- ;;",
    "emoji": "🦄🌈",
    "joined emoji": "👩‍👩‍👧‍👦",
    "right to left": "הנמל נפתח עם שחר",
    "mixed directions": "open \u202eקמנ\u202c port",
    "chinese": "港口清晨开放",
    "japanese": "東京の港は朝に開く",
    "korean": "항구는 아침에 열린다",
    "thai": "ท่าเรือเปิดแต่เช้า",
    "combining": "Z̸͓͝a̵l̷g̴o̵",
    "nul": "one\x00two",
    "controls": "one\x01\x1f\x7ftwo",
    "separators": "one\x1ftwo\u2028three",
    "syntax": "@ns:{*}|( =>[KNN 5 @vector $v] \\ \"'",
    "lua": "'] } return redis.call('FLUSHALL') --",
    "json": '{"body": "}", "version": 1}',
    "one long word": "x" * 100_000,
    "many words": " ".join(f"word{n}" for n in range(20_000)),
    "a number": "42",
    "placeholder": "- ",
}


@pytest.mark.parametrize("name", TEXTS)
async def test_any_text_is_remembered_found_changed_and_forgotten(memory: Memories, name: str) -> None:
    text = TEXTS[name]
    await memory.add(INTERVIEW)

    added = await memory.add(text)
    again = await memory.add(text)

    assert again.id == added.id
    assert again.merged
    item = await memory.get(added.id)
    assert item is not None
    assert (item.memory, item.occurrences) == (text, 2)
    for hits in (await memory.search(text), await memory.search_keywords(text), await memory.search_semantic(text)):
        # Whatever has words or a meaning is found by them.
        assert not hits or hits[0].item.id == added.id
    assert text in [one.memory for one in await memory.list()]
    assert (await memory.update(added.id, memory=f"{text} and more")).memory == f"{text} and more"
    assert (await memory.undo(added.id)).memory == text
    assert await memory.delete(added.id)
    assert [one.memory for one in await memory.list()] == [INTERVIEW]


async def test_a_mebibyte_is_remembered_found_and_asked(memory: Memories) -> None:
    text = ("harbour " * (LONGEST_TEXT_BYTES // 8))[:LONGEST_TEXT_BYTES]
    await memory.add(INTERVIEW)

    added = await memory.add(text)

    assert [hit.item.id for hit in await memory.search_keywords("harbour")] == [added.id]
    assert (await memory.search(text))[0].item.id == added.id
    assert (await memory.stats()).bytes > LONGEST_TEXT_BYTES


# -- queries ---------------------------------------------------------------------------------------------

QUERIES = (
    "the | and | interview",
    "@ns:{*}|( interview",
    "* interview",
    "%%interview%% ",
    "interview=>[KNN 5 @vector $v]",
    '"interview"',
    "'interview'",
    "\\interview\\",
    "interview\\",
    "(interview",
    "interview)))",
    "-interview",
    "~interview",
    "!interview",
    "@terms:interview",
    "@terms:(interview) => {$weight: 0}",
    "interview $t0 $v $blob",
    "[interview 0 inf]",
    "{interview}",
    "interview;FLUSHALL",
    "interview\r\nFLUSHALL\r\n",
    "interview\x00",
    "interview \ud800",
    "\ufeffinterview",
    "w'inter' interview",
    "INTERVIEW | | | | |",
    "a:b:c interview::",
    "interview " + "(" * 500,
    "interview " + "|" * 5000,
)


async def test_no_query_is_more_than_its_words(memory: Memories) -> None:
    added = await memory.add(INTERVIEW)
    await memory.add(HARBOUR)

    for query in QUERIES:
        assert [hit.item.id for hit in await memory.search_keywords(query)] == [added.id], query
        assert (await memory.search(query))[0].item.id == added.id, query
        assert (await memory.search_hybrid("a talk", keywords=query))[0].item.id == added.id, query
        await memory.search_semantic(query)
    assert (await memory.stats()).count == 2


LABELS = ("a{b}c", "@ns:{*}", "a|b", "*", "a b", "a,b", "a", "x'y\"z\\", "%20", "港", "🦄", "-1", "=>[", "the")


async def test_odd_names_filter_for_themselves_alone(memory: Memories) -> None:
    named = {
        label: await memory.add(
            INTERVIEW, user_id=label, category=label, tags=(label,), metadata={label: label}, dedup=False
        )
        for label in LABELS
    }

    for label, added in named.items():
        for filters in ({"user_id": label}, {"category": label}, {"tags": (label,)}, {"metadata": {label: label}}):
            assert [hit.item.id for hit in await memory.search("interview", filters=filters)] == [added.id], filters
            assert [item.id for item in await memory.list(filters)] == [added.id], filters
        assert (await memory.stats({"category": label})).count == 1
    assert (await memory.stats()).by_category == dict.fromkeys(LABELS, 1)


# -- vectors ---------------------------------------------------------------------------------------------


async def test_nothing_is_near_to_zeros(memory: Memories) -> None:
    await memory.add(INTERVIEW)

    assert await memory.find_similar([0.0] * DIMENSION) == []


@pytest.mark.parametrize("scale", [1e-30, 1e30])
async def test_vectors_are_compared_by_their_direction(memory: Memories, scale: float) -> None:
    vector = [1.0, 2.0] * (DIMENSION // 2)
    added = await memory.add(INTERVIEW, embedding=[scale * number for number in vector])

    (hit,) = await memory.find_similar(vector)

    assert hit.item.id == added.id
    assert hit.rank_score == pytest.approx(1, abs=0.002)


# -- what is refused -------------------------------------------------------------------------------------

Ask = Callable[[Memories, str], Awaitable[object]]
NAN, INF = float("nan"), float("inf")


class Loop(dict[str, Any]):
    """Metadata that holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self["me"] = self


def adding(given: object = "x", /, **fields: Any) -> Ask:
    return lambda memory, _: memory.add(given, **fields)  # type: ignore[arg-type]  # what is refused has odd types


REFUSED: dict[str, Ask] = {
    "a tenant of others": adding(tenant_id="others"),
    "bytes": adding(b"x"),
    "nothing": adding(None),
    "a list": adding(["x"]),
    "blank in every language": adding("\u00a0\u2003\n"),
    "a surrogate in content": adding(content="half \udc00"),
    "a surrogate in a summary": adding(summary="half \udc00"),
    "a surrogate in a tag": adding(tags=("half \udc00",)),
    "a surrogate in metadata": adding(metadata={"k": "half \udc00"}),
    "a surrogate in a key of metadata": adding(metadata={"half \udc00": 1}),
    "a surrogate in a message": adding(messages=({"role": "user", "content": "half \udc00"},)),
    "a surrogate in a speaker": adding(messages=({"role": "user", "name": "half \udc00", "content": "x"},)),
    "a surrogate in an id": adding(id="half\udc00"),
    "nul in a tag": adding(tags=("a\x00b",)),
    "nul in an id": adding(id="a\x00b"),
    "nul in a thread": adding(thread_id="a\x00b"),
    "a very long tag": adding(tags=("t" * 100_000,)),
    "very many tags": adding(tags=tuple(f"t{n}" for n in range(10_000))),
    "a very long id": adding(id="i" * 10_000),
    "a very long category": adding(category="c" * 10_000),
    "a very long name": adding(messages=({"role": "user", "name": "n" * 10_000, "content": "x"},)),
    "a thread with braces": adding(thread_id="a{b}"),
    "a thread with a brace": adding(thread_id="a}b"),
    "an unknown role": adding(messages=({"role": "king", "content": "x"},)),
    "an unknown type": adding(memory_type="for ever"),
    "an unknown field": adding(colour="red"),
    "a time without zone": adding(timestamp=datetime(2026, 1, 1)),  # noqa: DTZ001  # that is what is refused
    "vector not a number": adding(embedding=[NAN] * DIMENSION),
    "vector infinite": adding(embedding=[INF] * DIMENSION),
    "vector too short": adding(embedding=[1.0] * (DIMENSION - 1)),
    "vector too long": adding(embedding=[1.0] * (DIMENSION + 1)),
    "vector empty": adding(embedding=[]),
    "vector of zeros": adding(embedding=[0.0] * DIMENSION),
    "vector of texts": adding(embedding=["a"] * DIMENSION),
    "vector of numbers beyond all": adding(embedding=[1e300] * DIMENSION),
    "metadata not a number": adding(metadata={"k": NAN}),
    "metadata with bytes": adding(metadata={"k": b"x"}),
    "metadata with a function": adding(metadata={"k": print}),
    "metadata in itself": adding(metadata=Loop()),
    "metadata with numbers as keys": adding(metadata={"k": {1: 2}}),
    "metadata of two mebibytes": adding(metadata={"k": "x" * 2_097_152}),
    "metrics of texts": adding(metrics={"k": "many"}),
    "importance of a number": adding(importance=7),
    "ttl of a fraction": adding(ttl=1.5),
    "occurrences below one": adding(occurrences=0),
    "turn beyond all": adding(turn_index=2**70),
    "dedup keys as a text": adding(dedup_keys="project"),
    "one of many": lambda memory, _: memory.add_many(["good", {"memory": "bad", "ttl": 0}]),
    "a number for many": lambda memory, _: memory.add_many(42),  # type: ignore[arg-type]  # that is what is refused
    "a text for many": lambda memory, _: memory.add_many("a text"),
    "an item for many": lambda memory, _: memory.add_many({"memory": "a text"}),
    "add with a mistyped field": lambda memory, _: memory.add("x", useer_id="ann"),  # type: ignore[call-arg]  # likewise
    "update of nothing": lambda memory, id_: memory.update(id_),
    "update of what is fixed": lambda memory, id_: memory.update(id_, thread_id="other"),  # type: ignore[call-arg]  # that is what is refused
    "update to nothing": lambda memory, id_: memory.update(id_, memory="  "),
    "update to a surrogate": lambda memory, id_: memory.update(id_, memory="half \udc00"),
    "update to no metadata": lambda memory, id_: memory.update(id_, metadata={"k": {1, 2}}),
    "update to zeros": lambda memory, id_: memory.update(id_, embedding=[0.0] * DIMENSION),
    "update to null": lambda memory, id_: memory.update(id_, importance=None),  # type: ignore[arg-type]  # that is what is refused
    "update of an unknown field": lambda memory, id_: memory.update(id_, colour="red"),  # type: ignore[call-arg]  # that is what is refused
    "update of a wrong version": lambda memory, id_: memory.update(id_, if_version=1, memory="x"),
    "update of an unknown id": lambda memory, _: memory.update("nobody", memory="x"),
    "undo of the addition": lambda memory, id_: memory.undo(id_),
    "undo of no version": lambda memory, id_: memory.undo(id_, 12),
    "deletion by an unknown filter": lambda memory, _: memory.delete_all({"colour": "red"}),
    "deletion of another tenant": lambda memory, _: memory.delete_all({"tenant_id": "others"}),
    "deletion by no filter": lambda memory, _: memory.delete_all("everything"),  # type: ignore[arg-type]  # that is what is refused
    "deletion of no id": lambda memory, _: memory.delete("a b"),
    "search for nothing": lambda memory, _: memory.search(" "),
    "search for none": lambda memory, _: memory.search("x", limit=0),
    "search for too many": lambda memory, _: memory.search("x", limit=101),
    "search with an unknown filter": lambda memory, _: memory.search("x", filters={"colour": "red"}),
    "search of another tenant": lambda memory, _: memory.search("x", filters={"tenant_id": "others"}),
    "search with a filter of lists": lambda memory, _: memory.search("x", filters={"metadata": {"k": [1]}}),
    "search with no number": lambda memory, _: memory.search("x", threshold=NAN),
    "near to no number": lambda memory, _: memory.find_similar([NAN] * DIMENSION),
    "near to too few": lambda memory, _: memory.find_similar([1.0]),
    "near to texts": lambda memory, _: memory.find_similar(["a"] * DIMENSION),  # type: ignore[list-item]  # that is what is refused
    "recent of no thread": lambda memory, _: memory.recent("a{b}"),
    "recent by anything": lambda memory, _: memory.recent(order_by="luck"),  # type: ignore[arg-type]  # that is what is refused
    "a page from anywhere": lambda memory, _: memory.list(cursor="99999999999999999999.1"),
    "the past of no id": lambda memory, _: memory.history("a{b}"),
    "an import without ids": lambda memory, _: memory.import_([{"memory": "x"}]),
    "an import of junk": lambda memory, _: memory.import_([{"id": "a", "memory": "x", "ttl": "soon"}]),
}


# One test for all: hundreds of hubs would take long to open.
async def test_what_cannot_be_is_refused_and_nothing_is_written(place: Place, memory: Memories, namespace: str) -> None:
    added = await memory.add(INTERVIEW)
    before, stats = written(place, namespace), await memory.stats()

    for name, ask in REFUSED.items():
        with pytest.raises(SharedMemoryError) as refused:
            pytest.fail(f"{name} was let through: {await ask(memory, added.id)!r}")
        # A sentence, and no page of what was given.
        assert 10 < len(str(refused.value)) < 600, name
        assert written(place, namespace) == before, name
    assert await memory.stats() == stats


async def test_what_is_refused_in_a_narrow_view_is_refused_before_anything_is_written(
    place: Place, memory: Memories, namespace: str
) -> None:
    added = await memory.within(user_id="ada").add(INTERVIEW)
    bob = memory.within(user_id="bob")
    before = written(place, namespace)

    for refused in (
        bob.add("x", user_id="ada"),
        bob.update(added.id, memory="x"),
        bob.undo(added.id),
        bob.import_([MemoryItem(id=added.id, memory="x", user_id="bob")]),
        memory.within(user_id="ada").update(added.id, user_id="bob"),
    ):
        with pytest.raises(SharedMemoryError):
            await refused
    assert not await bob.delete(added.id)
    assert await bob.delete_all(MemoryFilter()) == 0

    assert written(place, namespace) == before


# -- clocks ----------------------------------------------------------------------------------------------


async def test_times_at_both_ends_of_the_calendar_are_kept_ordered_and_filtered(memory: Memories) -> None:
    moments = {
        "the dawn": datetime(1, 1, 2, tzinfo=UTC),
        "the epoch": datetime(1970, 1, 1, tzinfo=UTC),
        "the past": datetime(2001, 9, 9, 1, 46, 40, 123456, tzinfo=UTC),
        "the far future": datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    }
    await memory.add_many([MemoryItem(memory=text, timestamp=at) for text, at in moments.items()], dedup=False)

    listed = await memory.list()

    assert [item.memory for item in listed] == list(moments)[::-1]
    assert {item.memory: item.timestamp for item in listed} == moments
    late = await memory.search("the far future", filters={"since": datetime(3000, 1, 1, tzinfo=UTC)})
    assert [hit.item.memory for hit in late] == ["the far future"]
    early = await memory.list({"until": datetime(1970, 1, 1, tzinfo=UTC)})
    assert [item.memory for item in early] == ["the epoch", "the dawn"]
    assert [item.memory for item in await memory.recent()] == list(moments)[::-1]


async def test_a_hub_whose_clock_is_ahead_does_no_harm(settings: Settings) -> None:
    server, chosen = fakeredis.FakeServer(), settings.replace(embedder="hashing")
    now, ahead = ManualClock(), ManualClock(datetime(2036, 1, 1, tzinfo=UTC))
    async with (
        fake_hub(settings=chosen, server=server, clock=ahead) as early,
        fake_hub(settings=chosen, server=server, clock=now) as hub,
    ):
        there, here = early.store("team").memory, hub.store("team").memory
        await there.add(INTERVIEW)

        added = await here.add(HARBOUR)
        again = await here.add(INTERVIEW)
        changed = await here.update(again.id, tags=("seen",))

        assert again.merged
        assert changed.version > again.version > added.version
        for memory in (there, here):
            assert {hit.item.memory for hit in await memory.search("interview in the harbour")} == {INTERVIEW, HARBOUR}
            # Nothing is younger than new: the future counts as now.
            hits = await memory.search("interview", explain=True)
            assert hits[0].item.id == again.id
        assert [item.memory for item in await here.recent(order_by="turn_index")] == [HARBOUR, INTERVIEW]
        ahead.advance(timedelta(days=1).total_seconds())
        assert (await there.add(HARBOUR)).merged
        assert (await here.stats()).count == 2


async def test_a_conversation_of_odd_speakers_is_told_apart(memory: Memories) -> None:
    speakers = ("Ada", "ada", "@ada", "*", "a b", "ада", "🦄")
    for at, name in enumerate(speakers):
        said = MemoryMessage(role="user", name=name, content=f"I am number {at}")
        await memory.add(MemoryItem(memory=said.content, thread_id="talk |*", messages=(said,)))

    stats = await memory.thread_stats("talk |*")

    assert {one.name: one.turns for one in stats.participants} == dict.fromkeys(speakers, 1)
    for at, name in enumerate(speakers):
        hits = await memory.search(f"What did {name} say about number {at}?", limit=len(speakers))
        assert f"I am number {at}" in [hit.item.memory for hit in hits]


async def test_ids_that_callers_choose_may_be_anything_that_a_key_can_hold(memory: Memories) -> None:
    chosen = ["a:b", "*", "[x]", "a|b", "$memory", "ünï", "🦄", "-1", "a,b", "(x)", "x" * 100]

    await memory.add_many([MemoryItem(id=id_, memory=f"number {n} {new_id(6)}") for n, id_ in enumerate(chosen)])

    assert {item.id for item in await memory.list()} == set(chosen)
    for id_ in chosen:
        item = await memory.get(id_)
        assert item is not None
        assert [hit.item.id for hit in await memory.search(item.memory, limit=1)] == [id_]
        assert len(await memory.history(id_)) == 1
        assert await memory.delete(id_)
    assert (await memory.stats()).count == 0


def test_the_type_checker_knows_the_fields_of_a_memory() -> None:
    known = set(MemoryItem.model_fields) - {"hash", "version", "adaptive_ttl"}

    assert known - MemoryFields.__optional_keys__ == {"memory"}
    assert MemoryFields.__optional_keys__ | MemoryChanges.__optional_keys__ == known
