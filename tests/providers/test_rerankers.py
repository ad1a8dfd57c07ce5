"""docs/providers.md: rerankers of Cohere and Jina, and a language model as one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from pydantic import SecretStr
from support import openai_fixtures as fixtures
from support.openai_server import KEY, Answer, OpenAIServer, refusal, reranked

from sharedmem import Hub, MemoryItem, MemoryMessage, Settings
from sharedmem.errors import ConfigError, LimitedError, UnavailableError
from sharedmem.providers.extractive import ExtractiveSummarizer
from sharedmem.providers.factory import open_reranker
from sharedmem.providers.protocol import Reranker
from sharedmem.runtime import Counters
from sharedmem.testing import ScriptedModel, fake_hub
from sharedmem.testing.clock import ManualClock

server = fixtures.server
COHERE, JINA = "cohere:rerank-v3.5", "jina:jina-reranker-v2-base-multilingual"
TEXTS = ["bread and butter", "the lift is broken", "a lift"]
QUERY = "which lift is broken"


def chosen(server: OpenAIServer, name: str = JINA) -> Settings:
    return Settings(
        reranker=name,
        reranker_url=server.url,
        reranker_key=SecretStr(KEY),
        provider_retry_for_s=0.9,
        reranker_timeout_s=0.3,
        reranker_budget_ms=60_000,
    )


@pytest.fixture(params=[COHERE, JINA])
async def reranker(
    request: pytest.FixtureRequest, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> AsyncIterator[Reranker]:
    reranker = open_reranker(chosen(server, request.param), clock, counters)
    assert reranker is not None
    yield reranker
    await reranker.close()


# -- the protocol ---------------------------------------------------------------------------------


async def test_texts_get_scores_in_their_order(reranker: Reranker, server: OpenAIServer) -> None:
    assert await reranker.score(QUERY, TEXTS) == [0.0, 0.75, 0.25]

    (request,) = server.requests
    assert request.path == "/v1/rerank"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    sent = {"model": reranker.name.partition(":")[2], "query": QUERY, "documents": TEXTS, "top_n": 3}
    assert request.body == sent if reranker.name == COHERE else {**sent, "return_documents": False}


async def test_what_a_service_counts_is_counted(reranker: Reranker, server: OpenAIServer, counters: Counters) -> None:
    await reranker.score(QUERY, TEXTS)

    spent = [counters.read(name, model=reranker.name) for name in ("rerank_tokens", "rerank_search_units")]
    assert spent == ([0, 1] if reranker.name == COHERE else [30, 0])
    assert counters.read("rerank_requests", model=reranker.name, outcome="ok") == 1


async def test_without_texts_no_request_is_sent(reranker: Reranker, server: OpenAIServer) -> None:
    assert await reranker.score(QUERY, []) == []
    assert not server.requests


async def test_a_long_text_is_cut(reranker: Reranker, server: OpenAIServer) -> None:
    await reranker.score(QUERY, ["lift " * 100_000])

    assert len(server.requests[0].body["documents"][0]) == 16_000


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>a proxy</html>"),
        Answer(body=b"[]"),
        Answer(body=b'{"results": 7}'),
        Answer(body=b'{"results": [7, 8, 9]}'),
        reranked({0: 1.0, 1: 0.5}),
        reranked({0: 1.0, 1: 0.5, 3: 0.1}),
        reranked({0: 1.0, 1: 0.5, 2: "best"}),
        reranked({0: 1.0, 1: 0.5, 2: None}),
        Answer(status=503, body=b'{"message": "busy"}'),
        Answer(hangs=True),
    ],
    ids=["html", "list", "number", "numbers", "too-few", "strange", "text", "null", "busy", "silent"],
)
async def test_an_answer_that_does_not_fit_is_asked_for_again(
    reranker: Reranker, server: OpenAIServer, answer: Answer
) -> None:
    server.will(answer)

    assert await reranker.score(QUERY, TEXTS) == [0.0, 0.75, 0.25]
    assert len(server.requests) == 2


async def test_a_service_that_answers_wrongly_for_long_is_unavailable(reranker: Reranker, server: OpenAIServer) -> None:
    server.will(*[reranked({0: 1.0})] * 100)

    with pytest.raises(UnavailableError, match="scores for 1 of 3 texts; check reranker_url"):
        await reranker.score(QUERY, TEXTS)


@pytest.mark.parametrize(
    ("body", "said"), [(b'{"message": "invalid model"}', "invalid model"), (b'{"detail": "no such"}', "no such")]
)
async def test_a_refusal_is_raised_with_the_words_of_the_service(
    reranker: Reranker, server: OpenAIServer, body: bytes, said: str
) -> None:
    server.will(Answer(status=422, body=body))

    with pytest.raises(ConfigError, match=rf"reranker.*HTTP 422\): {said}"):
        await reranker.score(QUERY, TEXTS)


async def test_a_limit_that_lasts_is_raised(reranker: Reranker, server: OpenAIServer) -> None:
    server.will(*[refusal(429, "too many")] * 100)

    with pytest.raises(LimitedError, match="asks for fewer requests"):
        await reranker.score(QUERY, TEXTS)


async def test_a_refused_key_is_named_and_never_shown(
    server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    reranker = open_reranker(chosen(server).replace(reranker_key=SecretStr("jina-wrong")), clock, counters)
    assert reranker is not None

    with pytest.raises(ConfigError, match=r"reranker_key.*HTTP 401") as refused:
        await reranker.score(QUERY, TEXTS)

    await reranker.close()
    assert "jina-wrong" not in str(refused.value)
    assert "jina-wrong" not in repr(reranker)


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["cohere", "cohere:", "openai:gpt-4o", "none:x", "model:x", "", 7])
def test_a_reranker_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="reranker"):
        Settings().replace(reranker=value)


@pytest.mark.parametrize("name", [COHERE, JINA])
def test_without_a_key_and_a_url_the_missing_setting_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"reranker_key.*(Cohere|Jina) needs it; set it, or set reranker_url"):
        open_reranker(Settings(reranker=name), ManualClock(), Counters())


@pytest.mark.parametrize(
    ("name", "variable"), [(COHERE, "COHERE_API_KEY"), (COHERE, "CO_API_KEY"), (JINA, "JINA_API_KEY")]
)
def test_the_variable_of_the_provider_has_the_key_unless_the_setting_does(name: str, variable: str) -> None:
    environment = {"SHAREDMEM_RERANKER": name, variable: KEY}

    usual = Settings.load(environment=environment)
    own = Settings.load(environment={**environment, "SHAREDMEM_RERANKER_KEY": "own"})
    other = Settings.load(environment={variable: KEY})
    elsewhere = Settings.load(environment={**environment, "SHAREDMEM_RERANKER_URL": "http://proxy/v1"})

    assert usual.reranker_key == SecretStr(KEY)
    assert usual.origin("reranker_key") == f"environment {variable}"
    assert KEY not in repr(usual)
    assert own.reranker_key == SecretStr("own")
    assert other.reranker_key is None
    assert elsewhere.reranker_key is None, "the key of a service is not sent to another address"


# -- searches -------------------------------------------------------------------------------------


@pytest.fixture
async def hub(server: OpenAIServer) -> AsyncIterator[Hub]:
    async with fake_hub(settings=chosen(server)) as hub:
        memory = hub.store("team").memory
        await memory.add_many(TEXTS, dedup=False)
        yield hub


async def found(hub: Hub) -> list[str]:
    return [hit.item.memory for hit in await hub.store("team").memory.search("bread lift")]


async def test_hybrid_searches_have_the_order_of_the_reranker(hub: Hub, server: OpenAIServer) -> None:
    memory = hub.store("team").memory
    plain = await memory.search("bread lift", rerank=False)
    best = plain[-1].item.memory

    def favour(texts: Sequence[str]) -> Answer:
        return reranked({index: float(best in text) for index, text in enumerate(texts)})

    sent = [hit.item.memory for hit in plain]
    server.will(favour(sent), favour(sent))
    hits = await memory.search("bread lift", explain=True)
    hybrid = await memory.search_hybrid("bread lift")

    assert [hits[0].item.memory, hybrid[0].item.memory] == [best, best]
    assert hits[0].why is not None
    assert "reranker" in {signal.name for signal in hits[0].why.signals}
    assert server.requests[0].body["documents"] == sent
    assert len(server.requests) == 2


async def test_scores_that_mean_something_stay_and_cost_nothing(hub: Hub, server: OpenAIServer) -> None:
    memory = hub.store("team").memory

    await memory.search("lift", mode="semantic")
    await memory.search("lift", mode="keywords")
    await memory.search_semantic("lift")
    await memory.search_keywords("lift")
    await memory.search("lift", rerank=False)

    assert not server.requests


async def test_the_reranker_of_a_call_comes_before_that_of_the_settings(hub: Hub, server: OpenAIServer) -> None:
    async def none_of_it(_: str, items: Sequence[MemoryItem]) -> None:
        assert items

    plain = await hub.store("team").memory.search("bread lift", rerank=False)
    hits = await hub.store("team").memory.search("bread lift", rerank=none_of_it)

    assert [hit.score for hit in hits] == [hit.score for hit in plain]
    assert not server.requests


@pytest.mark.parametrize("failure", [refusal(401, "no"), refusal(422, "no"), refusal(503, "no")])
async def test_a_failing_reranker_leaves_the_order_and_logs_one_warning(
    hub: Hub, server: OpenAIServer, failure: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sharedmem.memory")
    plain = [hit.item.memory for hit in await hub.store("team").memory.search("bread lift", rerank=False)]
    server.will(*[failure] * 100)

    assert [await found(hub), await found(hub)] == [plain, plain]
    (warning,) = caplog.records
    assert JINA in warning.message
    assert KEY not in caplog.text
    skipped = [one.value for one in hub.counters.snapshot() if one.name == "sharedmem_memory_not_reranked"]
    assert sum(skipped) == 2

    server.answers.clear()
    await found(hub)
    server.will(*[failure] * 100)
    await found(hub)
    assert len(caplog.records) == 2, "after a success the next failure is logged again"


async def test_a_search_waits_for_the_reranker_no_longer_than_its_budget(
    server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sharedmem.memory")
    settings = chosen(server).replace(reranker_timeout_s=60, reranker_budget_ms=50)
    async with fake_hub(settings=settings) as hub:
        await hub.store("team").memory.add_many(TEXTS, dedup=False)
        plain = [hit.item.memory for hit in await hub.store("team").memory.search("bread lift", rerank=False)]
        server.will(Answer(hangs=True))

        assert await found(hub) == plain
    (warning,) = caplog.records
    assert "did not answer within 50 ms, reranker_budget_ms" in warning.message


# -- a language model -----------------------------------------------------------------------------


def scored(scores: Mapping[int, float]) -> ScriptedModel:
    given = [{"number": number, "score": score} for number, score in scores.items()]
    return ScriptedModel({"RelevanceScores": {"scores": given}})


def by_model(model: ScriptedModel) -> Reranker:
    reranker = open_reranker(Settings(reranker="model"), ManualClock(), Counters(), model=model)
    assert reranker is not None
    return reranker


async def test_the_language_model_scores_numbered_texts() -> None:
    model = scored({2: 10, 1: 2.5})

    assert await by_model(model).score(QUERY, TEXTS) == [0.25, 1.0, 0.0], "a text that it leaves out gets nothing"

    (request,) = model.requests
    asked = request.messages[-1].content
    assert QUERY in asked
    assert "[1] bread and butter" in asked
    assert await by_model(model).score(QUERY, []) == []
    assert len(model.requests) == 1


async def test_scores_beyond_the_scale_and_unknown_numbers_do_no_harm() -> None:
    assert await by_model(scored({1: 99, 2: -5, 7: 3})).score(QUERY, TEXTS) == [1.0, 0.0, 0.0]


async def test_a_long_text_is_cut_for_the_language_model() -> None:
    model = scored({1: 1})

    await by_model(model).score(QUERY, ["lift " * 100_000])

    assert len(model.requests[0].messages[-1].content) < 3_000


async def test_hybrid_searches_have_the_order_of_the_language_model() -> None:
    model = scored({1: 0, 2: 0, 3: 10})
    async with fake_hub(settings=Settings(reranker="model", embedder="hashing"), model=model) as hub:
        memory = hub.store("team").memory
        await memory.add_many(TEXTS, dedup=False)
        plain = [hit.item.memory for hit in await memory.search("bread lift", rerank=False)]

        assert (await memory.search("bread lift"))[0].item.memory == plain[2]


def test_a_reranking_model_has_to_be_a_language_model() -> None:
    with pytest.raises(ConfigError, match=r"reranker.*set llm, as in llm=openai:<model>"):
        open_reranker(Settings(reranker="model"), ManualClock(), Counters(), model=ExtractiveSummarizer())


# -- turns of a conversation ----------------------------------------------------------------------


def turn(name: str, text: str, **fields: Any) -> MemoryItem:
    message = MemoryMessage(role="user", name=name, content=text)
    return MemoryItem(memory=text, thread_id="t", messages=(message,), **fields)


async def test_a_reranker_reads_a_turn_with_its_author_and_the_turn_before_it(server: OpenAIServer) -> None:
    async with fake_hub(settings=chosen(server)) as hub:
        memory = hub.store("team").memory
        await memory.add(turn("Ada", f"{'Well. ' * 100}When is the lift repaired?"))
        await memory.add(turn("Bo", "In May, they said."))
        await memory.add("The lift is in house four.")

        await memory.search("When is the lift repaired?")

    sent = set(server.requests[0].body["documents"])
    assert "The lift is in house four." in sent
    (answer,) = [text for text in sent if text.endswith("\nBo: In May, they said.")]
    assert answer.startswith("Ada: ")
    assert "When is the lift repaired?" in answer
    assert len(answer) < 350, "of a long turn before only the end is read"
    assert any(text.startswith("Ada: Well.") for text in sent), "the first turn has none before it"


async def test_a_turn_that_the_filters_leave_out_is_not_sent_to_a_reranker(server: OpenAIServer) -> None:
    async with fake_hub(settings=chosen(server)) as hub:
        memory = hub.store("team").memory
        await memory.add(turn("Ada", "The lift has a secret door.", user_id="ada"))
        await memory.add(turn("Bo", "The lift is repaired in May.", user_id="bo"))

        await memory.search("When is the lift repaired?", filters={"user_id": "bo"})

    assert server.requests[0].body["documents"] == ["Bo: The lift is repaired in May."]


async def test_a_turn_of_a_role_without_a_name_is_read_alone(server: OpenAIServer) -> None:
    async with fake_hub(settings=chosen(server)) as hub:
        memory = hub.store("team").memory
        for text in ("Is the lift repaired?", "The lift is repaired."):
            await memory.add(turn("user", text))

        await memory.search("the lift")

    assert set(server.requests[0].body["documents"]) == {"Is the lift repaired?", "The lift is repaired."}
