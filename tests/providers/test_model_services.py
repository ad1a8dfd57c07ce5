"""docs/models.md: language models by the name of their service, and Anthropic's own API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from pydantic import BaseModel, SecretStr
from support import openai_fixtures as fixtures
from support.openai_server import KEY, Answer, OpenAIServer, chat, refusal

from sharedmem.config import Settings
from sharedmem.config.model_services import MODEL_SERVICES
from sharedmem.errors import ConfigError, InvalidError, UnavailableError
from sharedmem.providers.factory import open_embedder, open_model
from sharedmem.providers.protocol import ChatMessage, LanguageModel
from sharedmem.runtime import Counters
from sharedmem.testing.clock import ManualClock

server = fixtures.server
CLAUDE = "anthropic:claude-sonnet-4-5"
ASKED = [
    ChatMessage(role="system", content="Be short."),
    ChatMessage(role="user", content="Who owns the deploy? \ud83d"),
]
WITH_KEYS = [(name, service.key_variables[0]) for name, service in MODEL_SERVICES.items() if service.key_variables]
LOCAL = ["ollama", "vllm", "lmstudio"]


class Owner(BaseModel):
    name: str
    since: int = 0


def replied(*content: object, stop: str = "end_turn") -> Answer:
    """A whole answer of Anthropic's API."""
    usage = {"input_tokens": 21, "output_tokens": 9}
    return Answer(body=orjson.dumps({"content": content, "stop_reason": stop, "usage": usage}))


def called(**values: object) -> dict[str, object]:
    return {"type": "tool_use", "id": "t1", "name": "Owner", "input": values}


def events(*some: dict[str, object]) -> Answer:
    """Anthropic's stream of server-sent events."""
    lines = [f"event: {event['type']}\ndata: {orjson.dumps(event).decode()}\n" for event in some]
    return Answer(headers={"Content-Type": "text/event-stream"}, body="\n".join(lines).encode() + b"\n")


def delta(text: str) -> dict[str, object]:
    return {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}


START: dict[str, object] = {"type": "message_start", "message": {"usage": {"input_tokens": 21, "output_tokens": 1}}}
DONE: dict[str, object] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
STOP: dict[str, object] = {"type": "message_stop"}


@pytest.fixture
async def claude(server: OpenAIServer, clock: ManualClock, counters: Counters) -> AsyncIterator[LanguageModel]:
    settings = Settings(llm=CLAUDE, llm_url=server.url, llm_key=SecretStr(KEY), provider_retry_for_s=0.9)
    model = open_model(settings, clock, counters)
    yield model
    await model.close()


# -- services by name -----------------------------------------------------------------------------


@pytest.mark.parametrize("service", [*LOCAL, "gemini", "mistral", "groq", "deepseek", "openrouter"])
async def test_a_service_with_the_api_of_openai_is_asked_by_its_name(
    server: OpenAIServer, clock: ManualClock, counters: Counters, service: str
) -> None:
    settings = Settings(llm=f"{service}:small", llm_url=server.url, llm_key=SecretStr(KEY))
    model = open_model(settings, clock, counters)
    server.will(chat('{"name": "Ada"}'))

    owner = await model.complete(ASKED, Owner)
    await model.close()

    assert (owner.name, model.name) == ("Ada", f"{service}:small")
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "max_tokens" in request.body, "its older name is known to all of them"
    assert counters.read("llm_requests", model=f"{service}:small", outcome="ok") == 1


@pytest.mark.parametrize("service", LOCAL)
def test_a_service_on_this_machine_needs_neither_url_nor_key(
    clock: ManualClock, counters: Counters, service: str
) -> None:
    model = open_model(Settings(llm=f"{service}:small"), clock, counters)

    assert "localhost" in repr(model)


def test_a_named_service_embeds_too(clock: ManualClock, counters: Counters) -> None:
    embedder = open_embedder(Settings(embedder="ollama:nomic-embed-text", embedding_dimension=768), clock, counters)

    assert embedder is not None
    assert (embedder.name, embedder.dimension) == ("ollama:nomic-embed-text", 768)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("embedder", "anthropic:x"), ("embedder", "groq:x"), ("llm", "cohere:x"), ("llm", "ollama"), ("llm", "olama:x")],
)
def test_a_service_that_does_not_offer_this_is_refused(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting}.*should be one of"):
        Settings().replace(**{setting: value})


@pytest.mark.parametrize(("service", "variable"), WITH_KEYS)
def test_the_variable_of_a_service_has_its_key_unless_a_setting_says_otherwise(service: str, variable: str) -> None:
    chooser = next(iter(sorted(MODEL_SERVICES[service].offers, reverse=True)))
    key = "reranker_key" if chooser == "reranker" else "llm_key"
    environment = {f"SHAREDMEM_{chooser.upper()}": f"{service}:m", variable: KEY}

    usual = Settings.load(environment=environment)
    own = Settings.load(environment={**environment, f"SHAREDMEM_{key.upper()}": "own"})
    elsewhere = Settings.load(environment={**environment, f"SHAREDMEM_{key[:-4].upper()}_URL": "http://proxy/v1"})
    other = Settings.load(environment={variable: KEY})

    assert (getattr(usual, key), usual.origin(key)) == (SecretStr(KEY), f"environment {variable}")
    assert getattr(own, key) == SecretStr("own")
    assert getattr(elsewhere, key) is None, "the key of a service is not sent to another address"
    assert getattr(other, key) is None


def test_a_service_without_its_key_says_which_setting_lacks(clock: ManualClock, counters: Counters) -> None:
    with pytest.raises(ConfigError, match=r"llm_key.*Anthropic needs it; set it, or set llm_url"):
        open_model(Settings(llm=CLAUDE), clock, counters)


# -- Anthropic ------------------------------------------------------------------------------------


async def test_a_structured_answer_is_the_input_of_a_tool(
    claude: LanguageModel, server: OpenAIServer, counters: Counters
) -> None:
    server.will(replied({"type": "text", "text": "Let me see."}, called(name="Ada", since=2020), stop="tool_use"))

    assert await claude.complete(ASKED, Owner) == Owner(name="Ada", since=2020)

    (request,) = server.requests
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    body = request.body
    assert (body["system"], [message["role"] for message in body["messages"]]) == ("Be short.", ["user"])
    assert body["tool_choice"] == {"type": "tool", "name": "Owner"}
    assert body["tools"][0]["input_schema"]["required"] == ["name"]
    assert body["max_tokens"] == 3000
    counted = [counters.read("llm_tokens", model=CLAUDE, direction=way) for way in ("read", "written")]
    assert counted == [21, 9]


@pytest.mark.parametrize(
    "wrong",
    [replied(called(since=1)), replied({"type": "text", "text": "Ada."}), replied(stop="refusal")],
    ids=["lacking", "text", "declined"],
)
async def test_a_wrong_answer_goes_back_once(claude: LanguageModel, server: OpenAIServer, wrong: Answer) -> None:
    server.will(wrong, replied(called(name="Ada")))

    assert (await claude.complete(ASKED, Owner)).name == "Ada"

    *_, answer, correction = server.requests[1].body["messages"]
    assert (answer["role"], bool(answer["content"])) == ("assistant", True), "the API refuses an empty text"
    assert "does not have the form" in correction["content"]


async def test_an_answer_that_is_cut_off_is_an_error(claude: LanguageModel, server: OpenAIServer) -> None:
    server.will(replied(called(), stop="max_tokens"))

    with pytest.raises(InvalidError, match="stopped after llm_max_tokens = 3000; raise it"):
        await claude.complete(ASKED, Owner)


async def test_a_text_comes_as_a_stream(claude: LanguageModel, server: OpenAIServer, counters: Counters) -> None:
    server.will(events(START, delta("Ada owns"), {"type": "ping"}, delta(" it."), DONE, STOP))

    assert await claude.write(ASKED, max_tokens=40) == "Ada owns it."

    (request,) = server.requests
    assert (request.body["stream"], request.body["max_tokens"]) == (True, 40)
    counted = [counters.read("llm_tokens", model=CLAUDE, direction=way) for way in ("read", "written")]
    assert counted == [21, 9]


@pytest.mark.parametrize(
    "broken",
    [
        events(START, delta("Ada")),
        events(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        refusal(529, "Overloaded"),
        Answer(body=b'{"content": 7}'),
    ],
    ids=["ends", "error", "overloaded", "strange"],
)
async def test_what_is_interrupted_is_asked_for_again(
    claude: LanguageModel, server: OpenAIServer, broken: Answer
) -> None:
    server.will(broken, events(START, delta("Ada."), STOP))

    assert await claude.write(ASKED) == "Ada."
    assert len(server.requests) == 2


async def test_an_answer_in_no_form_of_the_api_is_an_outage(claude: LanguageModel, server: OpenAIServer) -> None:
    server.will(*[Answer(body=b'{"content": []}')] * 20)

    with pytest.raises(UnavailableError, match="neither a call of the tool nor a text"):
        await claude.complete(ASKED, Owner)


async def test_a_refused_option_is_left_out_from_then_on(claude: LanguageModel, server: OpenAIServer) -> None:
    both = "`temperature` and `top_p` cannot both be specified for this model"
    server.will(refusal(400, both), replied(called(name="Ada")), replied(called(name="Bo")))

    await claude.complete(ASKED, Owner)
    await claude.complete(ASKED, Owner)

    sent = [("temperature" in one.body, "top_p" in one.body) for one in server.requests]
    assert sent == [(True, True), (False, True), (False, True)]
