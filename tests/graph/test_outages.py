"""What a graph does while its language model, its embedder or its server fails: what is told is kept or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from redis import Redis
from support import memory_fixtures
from support.faulty_hubs import impatient_settings
from support.graph_rows import day
from support.memory_fixtures import FaultyEmbedder
from support.openai_server import KEY, Answer, OpenAIServer, chat, openai_server, refusal
from support.redis_process import RedisProcess
from support.scripted_extractor import ScriptedExtractor, ScriptLine, scripted_episode

from sharedmem import Hub, InvalidError, Settings, SharedMemoryError, UnavailableError
from sharedmem.graph.graph import Graph
from sharedmem.testing import fake_hub

index_server = memory_fixtures.index_server
server = memory_fixtures.server
raw = memory_fixtures.raw
provider = memory_fixtures.provider
GROUP = "acme:support"
QUIET: dict[str, Any] = {"durable_url": "none", "graph_summary_every": 0}


@pytest.fixture
async def hub(server: RedisProcess, provider: FaultyEmbedder) -> AsyncIterator[Hub]:
    async with Hub(settings=impatient_settings(server.url, **QUIET), embedder=provider) as hub:
        yield hub


@pytest.fixture
def graph(hub: Hub) -> Graph:
    return hub.store("team", actor="ann").graph.using(extractor=ScriptedExtractor())


def state_of(raw: Redis) -> dict[bytes, object]:
    """What the server holds, bar clocks and ledgers; of hashes the fields, whose order in memory changes by itself."""
    client: Any = raw  # redis-py types its answers for both of its faces at once
    keys = [key for key in client.scan_iter(count=1000) if b"$clock" not in key and b"$ops" not in key]
    return {key: client.hgetall(key) if client.type(key) == b"hash" else client.dump(key) for key in keys}


# -- the model -------------------------------------------------------------------------------------------


@pytest.fixture
async def speaker() -> AsyncIterator[OpenAIServer]:
    async with openai_server() as speaker:
        yield speaker


@pytest.fixture
async def modelled(speaker: OpenAIServer) -> AsyncIterator[Graph]:
    chosen = Settings(
        embedder="hashing",
        llm="openai:gpt-4o-mini",
        llm_url=speaker.url,
        llm_key=SecretStr(KEY),
        provider_retry_for_s=0.2,
        provider_timeout_s=1,
        **QUIET,
    )
    async with fake_hub(settings=chosen) as hub:
        yield hub.store("team").graph


def answer(*entities: str, related: object = (), ended: object = ()) -> Answer:
    found: list[dict[str, Any]] = [
        {"name": n, "type": "", "aliases": [], "attributes": [], "summary": "", "known": None} for n in entities
    ]
    return chat(orjson.dumps({"entities": found, "relationships": related, "ended": ended}).decode())


def relation(source: str, type_: str, target: str) -> dict[str, object]:
    ends = {"source": source, "type": type_, "target": target, "fact": ""}
    return {**ends, "valid_from": None, "valid_to": None, "has_ended": False}


TEXT = "Ann moved to Oslo, said the zebra."


@pytest.mark.parametrize(
    "bad",
    [
        [chat("{broken json")] * 3,
        [chat("")] * 3,
        [chat(None)] * 3,
        [chat("I am sorry, Dave.")] * 3,
        [chat('{"entities": 7}')] * 3,
        [refusal(500, "boom")] * 40,
        [Answer(hangs=True)] * 10,
        [Answer(body=b"<html>")] * 40,
        [refusal(400, "content policy")] * 3,
    ],
    ids=["broken", "empty", "nothing", "prose", "other form", "500", "time-out", "html", "refused"],
)
async def test_while_the_model_fails_the_episode_is_kept_and_found_and_extracted_later(
    modelled: Graph, speaker: OpenAIServer, bad: list[Answer]
) -> None:
    speaker.will(*bad)

    told = await modelled.add_episode(TEXT, group_id=GROUP, id="e", occurred_at=day(1))

    assert told.episode.extraction == "failed"
    assert told.facts == ()
    assert told.warnings
    assert [hit.item.id for hit in await modelled.text_search("zebra", group_id=GROUP)] == ["e"]
    assert [hit.item.id for hit in await modelled.vector_search(TEXT, group_id=GROUP)] == ["e"]
    speaker.answers.clear()
    speaker.will(answer("Ann", "Oslo", related=[relation("Ann", "lives_in", "Oslo")]))
    extracted = await modelled.extract("e", group_id=GROUP)
    assert [fact.fact for fact in extracted.facts] == ["Ann lives in Oslo"]
    assert extracted.episode.extraction == "done"
    assert (await modelled.stats(group_id=GROUP)).episodes == 1
    with pytest.raises(InvalidError, match="already"):
        await modelled.extract("e", group_id=GROUP)


async def test_an_extraction_that_fails_again_is_told_and_can_be_tried_again(
    modelled: Graph, speaker: OpenAIServer
) -> None:
    speaker.will(*[chat("{")] * 3)
    await modelled.add_episode(TEXT, group_id=GROUP, id="e")
    speaker.will(*[refusal(500, "boom")] * 40)

    with pytest.raises(SharedMemoryError):
        await modelled.extract("e", group_id=GROUP)

    speaker.answers.clear()
    speaker.will(answer("Ann"))
    assert (await modelled.extract("e", group_id=GROUP)).episode.extraction == "done"


async def test_what_the_model_invents_is_a_warning_and_the_rest_is_kept(modelled: Graph, speaker: OpenAIServer) -> None:
    invented = answer(
        *("Ann", "Oslo"),
        related=[relation("Ann", "lives_in", "Oslo"), relation("Ann", "works_for", "Initech")],
        ended=[{"number": 99, "when": None}],
    )
    speaker.will(invented, invented, invented)

    told = await modelled.add_episode(TEXT, group_id=GROUP, id="e", occurred_at=day(1))

    assert [fact.fact for fact in told.facts] == ["Ann lives in Oslo"]
    assert told.warnings
    assert {entity.name for entity in await modelled.entities(group_id=GROUP)} == {"Ann", "Oslo"}


# -- the embedder and the server -------------------------------------------------------------------------


async def test_while_the_embedder_is_down_words_and_graph_find_what_is_told(
    graph: Graph, provider: FaultyEmbedder
) -> None:
    provider.fail(UnavailableError("test:provider", "it is down"))

    told = await graph.add_episodes([scripted_episode("e", ScriptLine("Ann", "lives_in", "Zebratown", 1))])
    context = await graph.retrieve("zebratown", group_id=GROUP)

    assert [fact.fact for fact in told[0].facts] == ["Ann lives in Zebratown"]
    assert [hit.item.id for hit in await graph.text_search("zebratown", group_id=GROUP)] == ["e"]
    assert "down" in (context.degraded or "")
    assert context.items
    with pytest.raises(UnavailableError, match="down"):
        await graph.vector_search("zebratown", group_id=GROUP)


async def test_a_full_server_refuses_and_nothing_is_half_written(graph: Graph, raw: Redis) -> None:
    await refused_and_whole(graph, raw, "memory", ("maxmemory", 1), ("maxmemory", 0))


async def test_a_read_only_server_refuses_and_still_answers(graph: Graph, raw: Redis) -> None:
    await prepared(graph)
    before = state_of(raw)
    raw.replicaof("127.0.0.1", "1")
    try:
        await all_refused(graph, "replica")
        assert state_of(raw) == before
        assert [fact.target_name for fact in await graph.facts("Ann", group_id=GROUP)] == ["Oslo"]
    finally:
        raw.replicaof("NO", "ONE")
    await told_at_last(graph)


async def test_a_changed_password_is_told_and_nothing_is_written(graph: Graph, raw: Redis) -> None:
    await prepared(graph)
    before = state_of(raw)
    raw.config_set("requirepass", "open sesame")
    raw.client_kill_filter(_type="normal", skipme=True)
    try:
        with pytest.raises(SharedMemoryError, match="password"):
            await graph.add_episodes([scripted_episode("new", ScriptLine("Ann", "lives_in", "Bergen", 5))])
        assert state_of(raw) == before
    finally:
        raw.config_set("requirepass", "")
    await told_at_last(graph)


async def test_a_dead_server_is_told_by_every_call_in_time(tmp_path: Path, provider: FaultyEmbedder) -> None:
    with RedisProcess() as own:
        chosen = impatient_settings(own.url, data_dir=tmp_path, **QUIET)
        async with Hub(settings=chosen, embedder=provider) as hub:
            graph = hub.store("team").graph.using(extractor=ScriptedExtractor())
            await prepared(graph)
            own.kill()
            await asyncio.wait_for(all_refused(graph, r"."), 60)
            for read in (graph.facts("Ann", group_id=GROUP), graph.retrieve("Ann", group_id=GROUP)):
                with pytest.raises(UnavailableError):
                    await asyncio.wait_for(read, 60)


async def prepared(graph: Graph) -> None:
    await graph.add_episodes([scripted_episode("old", ScriptLine("Ann", "lives_in", "Oslo", 1))])
    await graph.add_entity("Annie", group_id=GROUP)


async def all_refused(graph: Graph, word: str) -> None:
    for refused in (
        graph.add_episodes([scripted_episode("new", ScriptLine("Ann", "lives_in", "Bergen", 5))]),
        graph.undo("old", group_id=GROUP),
        graph.merge("Annie", "Ann", group_id=GROUP),
        graph.add_alias("Ann", "A. N. N.", group_id=GROUP),
    ):
        with pytest.raises(UnavailableError, match=word):
            await refused


async def refused_and_whole(
    graph: Graph, raw: Redis, word: str, worse: tuple[str, int], better: tuple[str, int]
) -> None:
    await prepared(graph)
    before = state_of(raw)
    raw.config_set(*worse)
    try:
        await all_refused(graph, word)
        assert state_of(raw) == before
        assert [fact.target_name for fact in await graph.facts("Ann", group_id=GROUP)] == ["Oslo"]
    finally:
        raw.config_set(*better)
    await told_at_last(graph)


async def told_at_last(graph: Graph) -> None:
    (told,) = await graph.add_episodes([scripted_episode("new", ScriptLine("Ann", "lives_in", "Bergen", 5))])
    assert not told.repeated
    assert [fact.target_name for fact in await graph.facts("Ann", group_id=GROUP)] == ["Bergen"]
    assert (await graph.stats(group_id=GROUP)).episodes == 2
