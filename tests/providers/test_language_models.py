"""docs/providers.md: language models answer in a given form or say that they cannot; the offline one quotes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import orjson
import pytest
from pydantic import BaseModel, Field, SecretStr
from support.openai_server import KEY, Answer, OpenAIServer, chat, openai_server, refusal, stream

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError, UnavailableError, UnsupportedError
from sharedmem.providers.extractive import ExtractiveSummarizer
from sharedmem.providers.factory import open_model
from sharedmem.providers.openai import strict_schema
from sharedmem.providers.protocol import ChatMessage, LanguageModel
from sharedmem.runtime import Counters
from sharedmem.testing.clock import ManualClock

NAME = "openai:gpt-4o-mini"
ASKED = [
    ChatMessage(role="system", content="Be short."),
    ChatMessage(role="user", content="Who owns the deploy? \ud83d"),
]


class Place(BaseModel):
    city: str


class Fact(BaseModel):
    """A form with all that forms have."""

    title: str = Field(description="What it is about.")
    certainty: Literal["sure", "maybe"] = "maybe"
    places: list[Place] = []
    year: int | None = None


WHOLE = {"title": "deploys", "certainty": "sure", "places": [{"city": "Rome"}], "year": 2020}


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server() as server:
        yield server


@pytest.fixture
def settings(server: OpenAIServer) -> Settings:
    return Settings(llm=NAME, llm_url=server.url, llm_key=SecretStr(KEY), provider_retry_for_s=0.9)


@pytest.fixture
async def model(settings: Settings, counters: Counters) -> AsyncIterator[LanguageModel]:
    model = open_model(settings, ManualClock(), counters)
    yield model
    await model.close()


# -- structured answers ---------------------------------------------------------------------------


async def test_an_answer_comes_in_the_form_that_was_asked_for(
    model: LanguageModel, server: OpenAIServer, counters: Counters
) -> None:
    server.will(chat(orjson.dumps(WHOLE).decode()))

    fact = await model.complete(ASKED, Fact)

    assert fact.model_dump() == WHOLE
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body["model"] == "gpt-4o-mini"
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]
    form = request.body["response_format"]
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == ("json_schema", "Fact", True)
    assert counters.read("llm_tokens", model=NAME, direction="read") == 11
    assert counters.read("llm_tokens", model=NAME, direction="written") == 7
    assert counters.read("llm_requests", model=NAME, outcome="ok") == 1


def test_a_strict_form_requires_every_field_and_allows_no_other() -> None:
    schema = strict_schema(Fact)

    assert schema["required"] == ["title", "certainty", "places", "year"]
    assert schema["additionalProperties"] is False
    assert "title" not in schema
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert properties["title"] == {"description": "What it is about.", "type": "string"}
    assert "default" not in properties["certainty"]
    assert schema["$defs"] == {
        "Place": {
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "type": "object",
            "additionalProperties": False,
        }
    }


@pytest.mark.parametrize("wrong", ['{"certainty": "never"}', "no JSON at all", '{"title": "cut of'])
async def test_an_answer_in_another_form_goes_back_once_with_what_is_wrong(
    model: LanguageModel, server: OpenAIServer, wrong: str
) -> None:
    server.will(chat(wrong), chat(orjson.dumps(WHOLE).decode()))

    fact = await model.complete(ASKED, Fact)

    assert fact.title == "deploys"
    *_, answer, correction = server.requests[1].body["messages"]
    assert answer == {"role": "assistant", "content": wrong}
    assert "does not have the form" in correction["content"]


async def test_an_answer_that_is_wrong_twice_is_an_error(model: LanguageModel, server: OpenAIServer) -> None:
    server.will(chat("{}"), chat('{"title": 1}'))

    with pytest.raises(InvalidError, match=r"another form than Fact \(title: Input should be a valid string\)"):
        await model.complete(ASKED, Fact)

    assert len(server.requests) == 2


async def test_a_server_that_knows_no_schemas_is_told_the_form_in_words(
    model: LanguageModel, server: OpenAIServer
) -> None:
    server.will(refusal(400, "response_format json_schema is not supported"), chat('{"title": "a"}'))
    await model.complete(ASKED, Fact)
    server.will(chat('{"title": "b"}'))

    again = await model.complete(ASKED, Fact)

    assert again.title == "b"
    forms = [request.body["response_format"]["type"] for request in server.requests]
    assert forms == ["json_schema", "json_object", "json_object"], "it is not asked for what it refused"
    told = server.requests[1].body["messages"][0]
    assert told["role"] == "system"
    assert '"certainty"' in told["content"]


async def test_a_request_that_is_refused_anyway_does_not_blame_the_form(
    model: LanguageModel, server: OpenAIServer
) -> None:
    server.will(refusal(400, "too long"), refusal(400, "too long"))
    with pytest.raises(ConfigError, match=r"llm.*too long"):
        await model.complete(ASKED, Fact)
    server.will(chat('{"title": "a"}'))

    await model.complete(ASKED, Fact)

    assert server.requests[-1].body["response_format"]["type"] == "json_schema"


async def test_a_refusal_of_the_model_is_no_answer_in_the_form(model: LanguageModel, server: OpenAIServer) -> None:
    said = orjson.dumps({"choices": [{"message": {"content": None, "refusal": "I cannot help with that."}}]})
    server.will(Answer(body=said), Answer(body=said))

    with pytest.raises(InvalidError, match="I cannot help"):
        await model.complete(ASKED, Fact)


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"choices": []}', b'{"choices": [{"message": {}}]}'])
async def test_an_answer_that_is_none_is_asked_for_again(
    model: LanguageModel, server: OpenAIServer, body: bytes
) -> None:
    server.will(Answer(body=body), chat('{"title": "a"}'))

    assert (await model.complete(ASKED, Fact)).title == "a"


async def test_a_wrong_key_names_its_setting(settings: Settings, counters: Counters) -> None:
    model = open_model(settings.replace(llm_key=SecretStr("sk-wrong")), ManualClock(), counters)

    with pytest.raises(ConfigError, match=r"llm_key.*HTTP 401"):
        await model.complete(ASKED, Fact)
    await model.close()


# -- texts ----------------------------------------------------------------------------------------


async def test_a_text_comes_as_a_stream_and_is_given_whole(
    model: LanguageModel, server: OpenAIServer, counters: Counters
) -> None:
    server.will(stream(["Mary ", "owns\u2028", "it. 🎉"]))

    text = await model.write(ASKED, max_tokens=50)

    assert text == "Mary owns\u2028it. 🎉"
    body = server.requests[0].body
    assert (body["stream"], body["max_tokens"]) == (True, 50)
    assert counters.read("llm_tokens", model=NAME, direction="written") > 0, "estimated, since no usage was told"


async def test_the_usage_that_a_stream_tells_at_its_end_is_counted(
    model: LanguageModel, server: OpenAIServer, counters: Counters
) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 3}}
    events = [{"choices": [{"delta": {"content": "Yes."}, "finish_reason": "stop"}]}, usage]
    body = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)
    server.will(Answer(body=b": a comment\n\n" + body + b"data: [DONE]\n\n"))

    assert await model.write(ASKED) == "Yes."
    assert counters.read("llm_tokens", model=NAME, direction="read") == 100
    assert counters.read("llm_tokens", model=NAME, direction="written") == 3


@pytest.mark.parametrize(
    "broken",
    [
        stream(["Mary ", "ow"], ends=False),
        stream(["Mary ", "owns ", "it."])._replace(cuts=True),
        Answer(body=b'data: {"choices": [{"del\n\n'),
        Answer(body=b'data: {"error": {"message": "overloaded"}}\n\n'),
        Answer(body=b"<html></html>"),
        Answer(body=b""),
    ],
    ids=["no-end", "cut", "half-event", "error", "html", "nothing"],
)
async def test_a_stream_that_is_cut_off_is_never_given_as_a_text(
    model: LanguageModel, server: OpenAIServer, broken: Answer
) -> None:
    server.will(broken, stream(["whole"]))

    assert await model.write(ASKED) == "whole"
    assert len(server.requests) == 2


async def test_a_stream_that_is_always_cut_off_is_unavailable(model: LanguageModel, server: OpenAIServer) -> None:
    server.will(*[stream(["Mary "], ends=False)] * 100)

    with pytest.raises(UnavailableError, match="its stream ends before the text does"):
        await model.write(ASKED)


async def test_azure_is_told_the_limit_as_openai_words_it_now(server: OpenAIServer, counters: Counters) -> None:
    resource = server.url.removesuffix("/v1")
    settings = Settings(llm="azure:writer", llm_url=resource, llm_key=SecretStr(KEY))
    model = open_model(settings, ManualClock(), counters)
    server.will(stream(["ok"]))

    await model.write(ASKED, max_tokens=9)
    await model.close()

    (request,) = server.requests
    assert request.path == "/openai/deployments/writer/chat/completions?api-version=2024-10-21"
    assert request.body["max_completion_tokens"] == 9
    assert "max_tokens" not in request.body


# -- offline --------------------------------------------------------------------------------------

TALK = [
    ChatMessage(role="system", content="Secret instructions that are not to be quoted."),
    ChatMessage(role="user", content="The deploy of 12 May failed. Mary found the expired token. Nice weather."),
    ChatMessage(role="assistant", content="The deploy failed because the token had expired, and Mary renewed it."),
]


async def test_the_offline_model_quotes_and_invents_nothing() -> None:
    text = await ExtractiveSummarizer().write(TALK)

    said = " ".join(message.content for message in TALK[1:])
    assert text
    assert all(line in said for line in text.splitlines())
    assert "Secret" not in text


async def test_the_offline_model_keeps_to_the_length_it_is_given() -> None:
    long = [ChatMessage(role="user", content=f"Sentence number {number} is about deploys.") for number in range(200)]

    assert len(await ExtractiveSummarizer().write(long, max_tokens=30)) <= 120
    assert await ExtractiveSummarizer().write([]) == ""


class Summary(BaseModel):
    summary: str
    points: list[str] | None
    mood: str = "unknown"


class Verdict(BaseModel):
    summary: str
    winner: str


async def test_the_offline_model_fills_what_a_summary_can_fill() -> None:
    found = await ExtractiveSummarizer().complete(TALK, Summary)

    assert found.points == found.summary.splitlines()
    assert found.mood == "unknown"


async def test_the_offline_model_says_what_it_cannot_fill() -> None:
    with pytest.raises(UnsupportedError, match=r"in the form Verdict.*'winner'.*set llm to openai:<model>"):
        await ExtractiveSummarizer().complete(TALK, Verdict)
