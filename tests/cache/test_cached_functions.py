"""Functions answered from the cache: computed once, by one of all who ask, and never failed by the cache."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.angle_embedder import AngleEmbedder

from sharedmem import Hub, InvalidError, Settings, SharedMemoryStore, UnavailableError
from sharedmem.cache import SemanticCache
from sharedmem.testing import connect_to_fake


@pytest.fixture
def compass() -> AngleEmbedder:
    """Two prompts that mean the same."""
    return AngleEmbedder(**{"who owns the deploy?": 0, "tell me who owns the deploy": 4})


@pytest.fixture(params=["server", "fake"])
async def hub(request: pytest.FixtureRequest, settings: Settings, compass: AngleEmbedder) -> AsyncIterator[Hub]:
    """A hub whose embedder is the compass."""
    if request.param == "fake":
        made = Hub(settings=settings, connect=connect_to_fake(), embedder=compass)
    else:
        # Its own prefix: one server's index holds the vectors of one embedder.
        apart = settings.replace(prefix="compass")
        made = Hub(request.getfixturevalue("redis_url"), settings=apart, embedder=compass)
    async with made as hub:
        yield hub


@pytest.fixture
def cache(store: SharedMemoryStore) -> SemanticCache:
    """The cache of the test's namespace."""
    return store.cache


class Model:
    """Answers, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()

    async def answer(self, prompt: str, temperature: float = 0.0) -> str:
        """Answer as soon as the gate is open."""
        self.asked.append(prompt)
        self.began.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return f"{prompt} at {temperature}"


@pytest.fixture
async def model() -> Model:
    """A model that answers."""
    return Model()


async def test_an_answer_is_computed_once(cache: SemanticCache, model: Model) -> None:
    ask = cache.cached()(model.answer)

    assert await ask("who owns the deploy?") == "who owns the deploy? at 0.0"
    assert await ask("Who owns  the deploy?") == "who owns the deploy? at 0.0"
    assert await ask("tell me who owns the deploy") == "who owns the deploy? at 0.0"
    assert model.asked == ["who owns the deploy?"]


async def test_other_arguments_ask_for_another_answer(cache: SemanticCache, model: Model) -> None:
    ask = cache.cached()(model.answer)

    assert await ask("hello", 0.5) == "hello at 0.5"
    assert await ask("hello", temperature=0.7) == "hello at 0.7"
    assert await ask("hello", temperature=0.5) == "hello at 0.5"
    assert len(model.asked) == 2


async def test_two_functions_do_not_share_answers_unless_they_share_a_key(cache: SemanticCache) -> None:
    @cache.cached()
    async def one(prompt: str) -> str:
        return f"one {prompt}"

    @cache.cached()
    async def two(prompt: str) -> str:
        return f"two {prompt}"

    @cache.cached(key="same")
    async def three(prompt: str) -> str:
        return f"three {prompt}"

    @cache.cached(key=lambda prompt: f"sa{prompt[:2]}")
    async def four(prompt: str) -> str:
        return f"four {prompt}"

    assert (await one("me"), await two("me")) == ("one me", "two me")
    assert (await three("me"), await four("me")) == ("three me", "three me")


async def test_a_function_may_say_what_its_prompt_is(cache: SemanticCache) -> None:
    class Request:
        def __init__(self, text: str) -> None:
            self.text = text

    asked = []

    @cache.cached(prompt=lambda request: request.text, key="chat", tags=["chat"])
    async def ask(request: Request) -> str:
        asked.append(request.text)
        return request.text.upper()

    assert await ask(Request("hi")) == await ask(Request("hi")) == "HI"
    assert asked == ["hi"]
    assert await cache.delete(tag="chat") == 1


async def test_a_function_that_is_no_coroutine_runs_in_a_thread(cache: SemanticCache) -> None:
    threads = []

    @cache.cached()
    def ask(prompt: str) -> str:
        """Ask slowly."""
        threads.append(threading.current_thread())
        return prompt.upper()

    assert await ask("hi") == await ask("hi") == "HI"
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    assert ask.__doc__ == "Ask slowly."


async def test_of_all_who_ask_at_once_one_computes(cache: SemanticCache, model: Model) -> None:
    ask = cache.cached()(model.answer)
    model.gate.clear()

    crowd = [asyncio.create_task(ask("hello")) for _ in range(20)]
    await model.began.wait()
    model.gate.set()

    assert set(await asyncio.gather(*crowd)) == {"hello at 0.0"}
    assert model.asked == ["hello"]
    stats = await cache.stats()
    assert (stats.misses, stats.hits) == (1, 19)


async def test_hubs_wait_for_each_other(hub: Hub, namespace: str, model: Model) -> None:
    stores = [hub.store(namespace, actor=f"a{number}") for number in range(4)]
    asks = [store.cache.cached(key="shared")(model.answer) for store in stores]

    answers = await asyncio.gather(*(ask("hello") for ask in asks))

    assert set(answers) == {"hello at 0.0"}
    assert model.asked == ["hello"]


async def test_a_failure_goes_to_its_caller_and_the_next_one_tries(cache: SemanticCache, model: Model) -> None:
    ask = cache.cached()(model.answer)
    model.failures = [ValueError("overloaded"), UnavailableError("the model", "it sleeps")]
    model.gate.clear()

    crowd = [asyncio.create_task(ask("hello")) for _ in range(5)]
    await model.began.wait()
    model.gate.set()
    outcomes = await asyncio.gather(*crowd, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "UnavailableError",
        "ValueError",
        "str",
        "str",
        "str",
    ]
    assert len(model.asked) == 3


async def test_a_caller_that_leaves_lets_the_next_one_compute(cache: SemanticCache, model: Model) -> None:
    ask = cache.cached()(model.answer)
    model.gate.clear()
    first = asyncio.create_task(ask("hello"))
    await model.began.wait()
    second = asyncio.create_task(ask("hello"))

    first.cancel()
    model.gate.set()

    assert await second == "hello at 0.0"
    assert first.cancelled() or first.done()


async def test_who_has_waited_long_enough_computes_by_himself(cache: SemanticCache, model: Model) -> None:
    slow, quick = cache.cached(key="k")(model.answer), cache.cached(key="k", wait=0)(_at_once)
    model.gate.clear()
    first = asyncio.create_task(slow("hello"))
    await model.began.wait()

    assert await quick("hello") == "at once"
    model.gate.set()
    assert await first == "hello at 0.0"


async def _at_once(prompt: str) -> str:
    return "at once" if prompt else ""


async def test_an_answer_that_cannot_be_kept_is_given_all_the_same(cache: SemanticCache, hub: Hub) -> None:
    @cache.cached()
    async def ask(prompt: str) -> object:
        return object() if prompt else None

    assert type(await ask("hi")) is object
    assert hub.counters.read("cache_failures", doing="keep", error="InvalidError") == 1


async def test_an_embedder_that_fails_in_any_way_does_not_fail_the_call(
    cache: SemanticCache, compass: AngleEmbedder, model: Model
) -> None:
    compass.failure = ZeroDivisionError("a bug of the caller")
    ask = cache.cached()(model.answer)

    assert await ask("hello") == await ask("hello") == "hello at 0.0"


async def test_a_server_that_is_gone_does_not_fail_the_call(
    settings: Settings, compass: AngleEmbedder, model: Model
) -> None:
    async with Hub(settings=settings.replace(retry_for_s=0.01), connect=connect_to_fake(), embedder=compass) as hub:
        ask = hub.store("gone").cache.cached()(model.answer)

    assert await ask("hello") == "hello at 0.0"


async def test_what_an_answer_cost_may_depend_on_it(cache: SemanticCache, model: Model) -> None:
    ask = cache.cached(cost=lambda text: len(text) / 4, tokens=len)(model.answer)

    await ask("hello")
    await ask("hello")

    stats = await cache.stats()
    assert (stats.saved_cost, stats.saved_tokens) == (3.0, 12)


@pytest.mark.parametrize(
    "wrong",
    [{"ttl": 0}, {"tags": "geo"}, {"threshold": 2}, {"lease": 0}, {"wait": -1}, {"model": None}],
)
async def test_a_wrong_argument_is_told_when_the_function_is_made(cache: SemanticCache, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        cache.cached(**wrong)


async def test_a_call_without_a_text_or_with_unknowable_arguments_is_told(cache: SemanticCache) -> None:
    @cache.cached()
    async def ask(thing: object, other: object = None) -> str:
        return f"{thing}{other}"

    with pytest.raises(InvalidError, match="prompt=lambda"):
        await ask(7)
    with pytest.raises(InvalidError, match="key="):
        await ask("seven", object())
    with pytest.raises(TypeError):
        await ask("seven", wrong=1)  # type: ignore[call-arg]  # what the test is about
