"""docs/providers.md: what happens when a service is slow, wrong, busy or gone; and where the key is not."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import timedelta
from email.utils import format_datetime

import orjson
import pytest
from pydantic import SecretStr
from support import openai_fixtures as fixtures
from support.openai_fixtures import MODEL, SHORT, opened
from support.openai_server import KEY, Answer, OpenAIServer, openai_server, refusal

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, LimitedError, SharedMemoryError, UnavailableError, UnsupportedError
from sharedmem.providers import http_client
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.runtime import Counters
from sharedmem.testing.clock import ManualClock

server = fixtures.server
settings, embedder = fixtures.settings, fixtures.embedder
patient, hasty = fixtures.patient, fixtures.hasty


# -- what goes wrong and passes -------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_passes_is_tried_again(
    embedder: CachedEmbedder, server: OpenAIServer, counters: Counters, status: int
) -> None:
    server.will(refusal(status, "not now"))

    vectors, _ = await embedder.embed(["one"])

    assert vectors.any()
    assert len(server.requests) == 2
    assert counters.read("provider_retries", model=MODEL) == 1
    assert counters.read("embedding_requests", model=MODEL, outcome="refused") == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>a proxy</html>"),
        Answer(body=b'{"data": [{"index": 0, "embedd'),
        Answer(body=b"[]"),
        Answer(body=b'{"data": "none"}'),
        Answer(body=b'{"data": [1]}'),
        Answer(body=orjson.dumps({"data": [{"index": 0, "embedding": "AAAA"}]})),
        Answer(body=orjson.dumps({"data": [{"index": 0, "embedding": [None] * SHORT}]})),
        Answer(body=orjson.dumps({"data": [{"index": 0, "embedding": [1e300] * SHORT}]})),
        Answer(body=b'{"data": []}'),
        Answer(body=b'{"data": [{"index": 0, "embedding": [1, 2', cuts=True),
        Answer(status=200, body=b"", cuts=True),
    ],
    ids=["html", "half", "list", "no-list", "numbers", "base64", "nulls", "infinite", "none", "cut", "empty"],
)
async def test_an_answer_that_is_none_is_asked_for_again(
    embedder: CachedEmbedder, server: OpenAIServer, answer: Answer
) -> None:
    server.will(answer)

    vectors, _ = await embedder.embed(["one"])

    assert vectors.any()
    assert len(server.requests) == 2


async def test_a_service_that_answers_too_few_vectors_for_long_is_unavailable(
    embedder: CachedEmbedder, server: OpenAIServer
) -> None:
    one = orjson.dumps({"data": [{"index": 0, "embedding": [1.0] * SHORT}]})
    server.will(*[Answer(body=one)] * 100)

    with pytest.raises(UnavailableError, match=r"1 vectors came for 2 texts; check embedding_url"):
        await embedder.embed(["one", "two"])


async def test_a_service_that_says_nothing_is_given_up_and_asked_again(
    hasty: CachedEmbedder, server: OpenAIServer
) -> None:
    server.will(Answer(hangs=True))

    vectors, _ = await hasty.embed(["one"])

    assert vectors.any()
    assert len(server.requests) == 2


async def test_a_service_that_never_answers_is_unavailable(hasty: CachedEmbedder, server: OpenAIServer) -> None:
    server.will(*[Answer(hangs=True)] * 100)

    with pytest.raises(UnavailableError, match=r"no answer within 0\.5 s"):
        await hasty.embed(["one"])


async def test_a_service_that_is_not_there_is_unavailable_and_named(
    settings: Settings, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    async with openai_server() as gone:
        url = gone.url
    embedder = opened(settings.replace(embedding_url=url), clock, counters)

    with pytest.raises(UnavailableError, match=rf"{MODEL} at 127\.0\.0\.1:\d+: ConnectError"):
        await embedder.embed(["one"])
    await embedder.close()


async def test_after_retry_after_it_is_asked_again_and_not_before(
    patient: CachedEmbedder, server: OpenAIServer, clock: ManualClock
) -> None:
    server.will(refusal(429, "slow down", Retry_After="7"))
    asked = asyncio.create_task(patient.embed(["one"]))
    await clock.until_asleep()

    clock.advance(6.9)
    await asyncio.sleep(0.02)
    assert len(server.requests) == 1

    clock.advance(0.2)
    vectors, _ = await asked
    assert vectors.any()
    assert len(server.requests) == 2


async def test_retry_after_may_be_a_date(patient: CachedEmbedder, server: OpenAIServer, clock: ManualClock) -> None:
    at = clock.now() + timedelta(seconds=30)
    server.will(refusal(503, "maintenance", Retry_After=format_datetime(at, usegmt=True)))
    asked = asyncio.create_task(patient.embed(["one"]))
    await clock.until_asleep()

    assert clock.sleepers[0] == pytest.approx(30, abs=1)

    clock.advance(31)
    await asked


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:10 GMT"}, 10),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:10 -0000"}, 10),
        ({"retry-after": "Thu, 01 Jan 2025 00:00:10 GMT"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "inf"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": ""}, 0),
        ({}, 0),
    ],
)
def test_every_spelling_of_retry_after_is_understood(headers: dict[str, str], wait_s: float) -> None:
    assert http_client.retry_after_s(headers, ManualClock().now()) == wait_s


async def test_a_wait_beyond_the_time_there_is_is_told_at_once(embedder: CachedEmbedder, server: OpenAIServer) -> None:
    server.will(refusal(429, "slow down", Retry_After="40"))

    with pytest.raises(LimitedError, match="slow down") as refused:
        await embedder.embed(["one"])

    assert refused.value.retry_after == 40
    assert len(server.requests) == 1


async def test_a_used_up_account_is_not_asked_again(patient: CachedEmbedder, server: OpenAIServer) -> None:
    server.will(refusal(429, "You exceeded your quota", code="insufficient_quota"))

    with pytest.raises(LimitedError, match="exceeded your quota"):
        await patient.embed(["one"])

    assert len(server.requests) == 1


# -- what goes wrong and stays --------------------------------------------------------------------


async def test_vectors_of_another_dimension_name_both(embedder: CachedEmbedder, server: OpenAIServer) -> None:
    server.will(Answer(body=orjson.dumps({"data": [{"index": 0, "embedding": [1.0] * 768}]})))

    with pytest.raises(ConfigError, match=r"embedding_dimension.*vectors of 768 numbers, expected 16"):
        await embedder.embed(["one"])

    assert len(server.requests) == 1


async def test_a_wrong_key_is_told_with_its_setting_and_not_tried_again(
    settings: Settings, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    embedder = opened(settings.replace(embedding_key=SecretStr("sk-wrong-1234567890")), clock, counters)

    with pytest.raises(ConfigError, match=r"embedding_key.*HTTP 401") as refused:
        await embedder.embed(["one"])
    await embedder.close()

    assert "1234567890" not in "".join(traceback.format_exception(refused.value))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refusal(404, "The model does not exist"), "embedder.*HTTP 404.*does not exist.*check embedding_url"),
        (Answer(301, {"Location": "https://elsewhere/"}), "embedder.*HTTP 301.*check embedding_url"),
        (refusal(400, "dimensions is not allowed"), "embedder.*HTTP 400.*dimensions is not allowed"),
        (Answer(422, body=b'{"error": "plain words"}'), "plain words"),
        (Answer(418, body=b"a teapot " * 100), "a teapot"),
        (Answer(400), "no reason given"),
    ],
    ids=["model", "moved", "request", "words", "long", "silent"],
)
async def test_what_does_not_pass_is_told_at_once(
    patient: CachedEmbedder, server: OpenAIServer, answer: Answer, problem: str
) -> None:
    server.will(answer)

    with pytest.raises(ConfigError, match=problem) as refused:
        await patient.embed(["one"])

    assert len(str(refused.value)) < 400
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"embedder": MODEL}, "embedding_key.*OpenAI needs it"),
        ({"embedder": "azure:x", "embedding_key": KEY}, "embedding_url.*azure needs it"),
        ({"embedder": MODEL, "embedding_key": "ключ"}, "embedding_key.*ASCII"),
        ({"embedder": MODEL, "embedding_key": "one\r\ntwo"}, "embedding_key.*ASCII"),
    ],
)
def test_what_is_missing_is_told_before_anybody_is_asked(
    chosen: dict[str, object], problem: str, clock: ManualClock, counters: Counters
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        opened(Settings().replace(**chosen), clock, counters)

    assert "ключ" not in str(refused.value)


def test_a_missing_http_client_is_told_with_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, counters: Counters
) -> None:
    monkeypatch.setattr(http_client, "find_spec", lambda _: None)

    with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[openai\]'"):
        opened(settings, clock, counters)


async def test_one_failed_batch_fails_the_call_and_stops_the_others(
    settings: Settings, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    embedder = opened(settings.replace(embedding_batch=1, provider_concurrency=3), clock, counters)
    server.will(Answer(hangs=True), refusal(400, "no"), Answer(hangs=True))

    with pytest.raises(ConfigError):
        await embedder.embed(["one", "two", "three", "four"])

    await embedder.close()
    assert not [task for task in asyncio.all_tasks() if "_ask" in repr(task)]


# -- the key --------------------------------------------------------------------------------------


async def test_the_key_is_in_no_log_no_repr_and_no_error(
    settings: Settings,
    server: OpenAIServer,
    caplog: pytest.LogCaptureFixture,
    clock: ManualClock,
    counters: Counters,
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    embedder = opened(settings, clock, counters)
    for status in (400, 401, 403, 404, 418, 422, 429, 500):
        server.will(*[refusal(status, f"you sent {KEY}")] * 100)
        with pytest.raises(SharedMemoryError) as refused:
            await embedder.embed(["one"])
        told += traceback.format_exception(refused.value)
        server.answers.clear()
    await embedder.embed(["one"])
    await embedder.close()

    service = embedder._inner._service  # type: ignore[attr-defined]  # as an accidental print would
    shown = [caplog.text, *told, repr(embedder), repr(settings), repr(embedder._inner), repr(service)]
    shown += [repr(service.endpoint), str(service.endpoint), repr(counters.snapshot())]
    assert server.requests
    assert not [text for text in shown if KEY in text]
