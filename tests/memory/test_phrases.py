"""docs/memory.md: words in quotation marks are found as a phrase, with both indexes alike."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support import memory_fixtures
from support.redis_process import RedisProcess

from sharedmem import Hub, InvalidError, Settings
from sharedmem.memory.memories import Memories
from sharedmem.text.analysis import contains_phrases, find_phrases

index_server = memory_fixtures.index_server


@pytest.fixture
async def memory(index_server: RedisProcess, namespace: str) -> AsyncIterator[Memories]:
    settings = Settings(redis_url=index_server.url, embedder="none", durable_url="none")
    async with Hub.open(settings=settings) as hub:
        yield hub.store(namespace).memory


async def found(memory: Memories, query: str) -> list[str]:
    return sorted(hit.item.memory for hit in await memory.search_keywords(query))


async def test_a_phrase_finds_only_memories_that_contain_it(memory: Memories) -> None:
    solid, granite = "The house stands on solid ground.", "The foundation is solid granite; the ground is wet."
    await memory.add_many([solid, granite, "The ground is solid.", "Nothing of it."])

    assert await found(memory, '"solid ground"') == [solid]
    assert len(await found(memory, "solid ground")) == 3
    assert [hit.item.memory for hit in await memory.search('"Solid  GROUND" house', mode="keywords")] == [solid]
    assert await found(memory, '"solid ground" "is wet"') == []
    assert await found(memory, '"ground solid"') == []


async def test_further_words_only_rank_and_the_newest_first_is_possible(memory: Memories) -> None:
    await memory.add("solid ground here", timestamp="2026-01-01T00:00:00Z")
    await memory.add("solid ground near the zebra", timestamp="2026-01-02T00:00:00Z")

    by_words = await memory.search_keywords('"solid ground" zebra')
    by_time = await memory.search_keywords('"solid ground"', order_by="timestamp")

    assert [hit.item.memory for hit in by_words] == ["solid ground near the zebra", "solid ground here"]
    assert [hit.item.memory for hit in by_time] == ["solid ground near the zebra", "solid ground here"]


async def test_a_phrase_is_found_behind_many_memories_with_its_words(memory: Memories) -> None:
    await memory.add_many([f"ground {n} solid" for n in range(150)], dedup=False)
    await memory.add("a long text about many things, in which the solid ground is one of the last words of all")

    assert len(await memory.search_keywords('"solid ground"', limit=1)) == 1


async def test_a_phrase_is_within_one_text_of_a_memory_and_its_filters(memory: Memories) -> None:
    said = [{"role": "user", "content": "on solid"}, {"role": "agent", "content": "ground we stand"}]
    await memory.add("first", messages=said)
    await memory.add("second", messages=[{"role": "user", "content": "on solid ground"}], category="soil")

    assert await found(memory, '"solid ground"') == ["second"]
    assert len(await memory.search_keywords('"solid ground"', filters={"category": "other"})) == 0


async def test_a_phrase_of_stop_words_is_refused_and_a_lone_mark_has_no_meaning(memory: Memories) -> None:
    await memory.add("solid ground")

    for refused in (memory.search_keywords('"to be or not"'), memory.search('x "of the"', mode="keywords")):
        with pytest.raises(InvalidError, match="has stop words only"):
            await refused

    assert await found(memory, 'solid " ground') == ["solid ground"]
    assert await found(memory, '"" solid') == ["solid ground"]
    assert len(await memory.search('"ground solid"')) == 1, "only searches by words read quotation marks"


@pytest.mark.parametrize(
    ("text", "phrase", "is_in"),
    [
        ("Solid-Ground!", "solid ground", True),
        ("solid grounds", "solid ground", False),
        ("unsolid ground", "solid ground", False),
        ("ein fester Gru\u00df", "FESTER GRUSS", True),
        ("\u4eca\u65e5\u4f60\u597d\u5417", "\u4f60\u597d", True),
        ("\u597d\u4f60", "\u4f60\u597d", False),
        ("a+b (c)", "a+b c", True),
        ("\uff33olid\u00a0ground", "solid ground", True),
    ],
)
def test_a_phrase_is_its_words_side_by_side(text: str, phrase: str, is_in: bool) -> None:
    assert contains_phrases([text], [phrase]) is is_in


def test_phrases_are_what_stands_in_quotation_marks() -> None:
    assert find_phrases('"a b" c "a b" \u201cd e\u201d "--" "f') == ("a b", "d e")
