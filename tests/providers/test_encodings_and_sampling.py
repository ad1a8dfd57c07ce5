"""docs/providers.md: the encoding of vectors, the options of models, and their timeouts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator

import numpy as np
import orjson
import pytest
from pydantic import BaseModel, SecretStr
from support import openai_fixtures as fixtures
from support.openai_fixtures import SHORT, opened
from support.openai_server import KEY, Answer, OpenAIServer, chat, refusal, stream

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError, UnavailableError
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.factory import open_model
from sharedmem.providers.protocol import ChatMessage, LanguageModel
from sharedmem.runtime import Counters
from sharedmem.testing.clock import ManualClock

server = fixtures.server
settings, embedder = fixtures.settings, fixtures.embedder
ASKED = [ChatMessage(role="user", content="Who owns the deploy?")]


class Fact(BaseModel):
    title: str


def vectors(*rows: object) -> Answer:
    return Answer(body=orjson.dumps({"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]}))


# -- encoding of vectors --------------------------------------------------------------------------


async def test_base64_gives_the_same_vectors_as_numbers_for_a_quarter_of_the_bytes(
    embedder: CachedEmbedder, settings: Settings, clock: ManualClock, counters: Counters
) -> None:
    as_numbers = opened(settings.replace(embedding_encoding="float"), clock, counters)

    coded, _ = await embedder.embed(["the lift is broken"])
    plain, _ = await as_numbers.embed(["the lift is broken"])
    await as_numbers.close()

    assert np.array_equal(coded, plain)
    row = np.random.default_rng(7).standard_normal(1536).astype("<f4")
    assert len(b64encode(row.tobytes())) * 3.5 < len(orjson.dumps(row.tolist()))


async def test_a_service_that_refuses_base64_is_asked_for_numbers_from_then_on(
    embedder: CachedEmbedder, server: OpenAIServer
) -> None:
    server.will(refusal(400, "encoding_format base64 is not supported"))
    await embedder.embed(["one"])

    await embedder.embed(["two"])

    assert [request.body["encoding_format"] for request in server.requests] == ["base64", "float", "float"]


async def test_another_refusal_is_not_taken_for_one_of_the_encoding(
    embedder: CachedEmbedder, server: OpenAIServer
) -> None:
    server.will(refusal(400, "the input is too long"))

    with pytest.raises(ConfigError, match="the input is too long"):
        await embedder.embed(["one"])

    assert len(server.requests) == 1


async def test_a_service_that_ignores_the_encoding_may_answer_with_numbers(
    embedder: CachedEmbedder, server: OpenAIServer
) -> None:
    server.will(vectors([1.0] + [0.0] * (SHORT - 1)))

    found, _ = await embedder.embed(["one"])

    assert found[0, 0] == 1


@pytest.mark.parametrize("wrong", ["no base64!", b64encode(b"123").decode(), b64encode(b"\xff" * 4 * SHORT).decode()])
async def test_what_is_not_the_base64_of_finite_numbers_is_an_error(
    embedder: CachedEmbedder, server: OpenAIServer, wrong: str
) -> None:
    server.will(*[vectors(wrong)] * 100)

    with pytest.raises(UnavailableError, match="a vector is not"):
        await embedder.embed(["one"])


# -- options of a model ---------------------------------------------------------------------------


@pytest.fixture
def chosen(server: OpenAIServer) -> Settings:
    return Settings(llm="openai:gpt-4o-mini", llm_url=server.url, llm_key=SecretStr(KEY), provider_retry_for_s=0.9)


@pytest.fixture
async def model(chosen: Settings, clock: ManualClock, counters: Counters) -> AsyncIterator[LanguageModel]:
    model = open_model(chosen, clock, counters)
    yield model
    await model.close()


async def test_a_model_gets_temperature_top_p_and_the_limit_of_tokens(
    model: LanguageModel, server: OpenAIServer
) -> None:
    server.will(chat('{"title": "a"}'), stream(["b"]), stream(["c"]))

    await model.complete(ASKED, Fact)
    await model.write(ASKED, max_tokens=600)
    await model.write(ASKED, max_tokens=9000)

    sent = [(one.body["temperature"], one.body["top_p"], one.body["max_tokens"]) for one in server.requests]
    assert sent == [(0.4, 0.9, 3000), (0.4, 0.9, 600), (0.4, 0.9, 3000)]


async def test_what_a_model_refuses_is_left_out_from_then_on(model: LanguageModel, server: OpenAIServer) -> None:
    server.will(
        refusal(400, "Unsupported value: 'temperature' does not support 0.4 with this model."),
        refusal(400, "Unsupported parameter: 'top_p'"),
        stream(["a"]),
        stream(["b"]),
    )
    assert await model.write(ASKED) == "a"

    assert await model.write(ASKED) == "b"

    assert {"temperature", "top_p"}.isdisjoint(server.requests[-1].body)
    assert server.requests[-1].body["max_tokens"] == 500
    assert len(server.requests) == 4


async def test_an_option_of_none_is_not_sent(chosen: Settings, server: OpenAIServer, counters: Counters) -> None:
    model = open_model(chosen.replace(llm_temperature=None, llm_top_p=None), ManualClock(), counters)
    server.will(stream(["a"]))

    await model.write(ASKED)
    await model.close()

    assert {"temperature", "top_p"}.isdisjoint(server.requests[0].body)


async def test_a_structured_answer_that_is_cut_off_names_the_setting(
    model: LanguageModel, server: OpenAIServer
) -> None:
    server.will(chat('{"title": "cut o', finish="length"))

    with pytest.raises(InvalidError, match="llm_max_tokens = 3000; raise it"):
        await model.complete(ASKED, Fact)

    assert len(server.requests) == 1, "a second answer would be cut off as well"


# -- timeouts -------------------------------------------------------------------------------------


async def test_models_and_embedders_have_timeouts_of_their_own(
    settings: Settings, chosen: Settings, server: OpenAIServer, counters: Counters
) -> None:
    quick = {"provider_timeout_s": 600, "provider_retry_for_s": 0}
    embedder = opened(settings.replace(embedding_timeout_s=0.05, **quick), ManualClock(), counters)
    model = open_model(chosen.replace(llm_timeout_s=0.07, **quick), ManualClock(), counters)
    server.will(Answer(hangs=True), Answer(hangs=True))

    with pytest.raises(UnavailableError, match=r"no answer within 0\.05 s"):
        await embedder.embed(["one"])
    with pytest.raises(UnavailableError, match=r"no answer within 0\.07 s"):
        await model.write(ASKED)

    await embedder.close()
    await model.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("llm_temperature", 2.1),
        ("llm_temperature", "warm"),
        ("llm_top_p", 0),
        ("llm_max_tokens", 0),
        ("llm_timeout_s", 0),
        ("embedding_timeout_s", float("nan")),
        ("embedding_encoding", "base32"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        Settings().replace(**{field: value})


async def test_a_process_caches_512_embeddings_by_default(embedder: CachedEmbedder, server: OpenAIServer) -> None:
    texts = [f"text {number}" for number in range(513)]
    await embedder.embed(texts)
    server.requests.clear()

    await embedder.embed(texts[1:])
    await embedder.embed(texts[:1])

    assert server.texts == ["text 0"], "the least recently used one is dropped"
