"""Cache the results of a function: concurrent callers with the same prompt share one call.

They share it through `Once`, whose lease holds across all processes; a `SingleFlight` holds in this process only.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from sharedmem.cache.repository import CACHE, CacheHit, CacheQuery, CacheRepository, cache_query, encode_cost
from sharedmem.coordination.once import Once
from sharedmem.errors import InvalidError
from sharedmem.redis.codec import encode_set_member
from sharedmem.runtime import get_logger
from sharedmem.runtime.process_bound import ProcessBound

P = ParamSpec("P")
T = TypeVar("T")
Amount: TypeAlias = "float | Callable[[Any], float]"
"""A number, or a function that computes it from an answer."""

# A waiting caller is notified at once and reads the answer from the cache, so `once` stores its result only briefly.
_RESULT_TTL_S = 1.0
_logger = get_logger("cache")


@dataclass(frozen=True)
class CachePolicy:
    """How the calls of one function are cached; see `SemanticCache.cached`."""

    prompt: Callable[..., str] | None
    key: str | Callable[..., str] | None
    ttl_ms: int
    tags: tuple[str, ...]
    model: str
    prompt_version: str
    least: float
    cost: Amount
    tokens: Amount
    lease_s: float
    wait_s: float | None


class CacheDecorator(ProcessBound):
    """Wraps functions so that their results are cached; made by `SemanticCache.cached`."""

    def __init__(self, answers: CacheRepository, once: Once, plan: CachePolicy) -> None:
        self._answers = answers
        self._once = once
        self._plan = plan

    @overload
    def __call__(self, fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __call__(self, fn: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __call__(self, fn: Callable[P, object]) -> Callable[P, Coroutine[Any, Any, Any]]:
        """Return the function with a cache in front of it."""
        if not callable(fn):
            raise InvalidError("fn", fn, "decorate a function or coroutine function: @store.cache.cached()")
        reader = _ArgumentReader(self._plan, fn)

        @wraps(fn)
        async def answered(*args: P.args, **kwargs: P.kwargs) -> Any:
            question = reader.question(args, kwargs)
            call = _CachedCall(
                self._answers, self._once, self._plan, question, lambda: _call_function(fn, *args, **kwargs)
            )
            return await call.answer()

        return answered


async def _call_function(fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Call the function; one that is not a coroutine function runs in a thread, so that it does not block."""
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004  # an object whose __call__ is a coroutine function
        value = fn(*args, **kwargs)
    else:
        value = await asyncio.to_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


class _ArgumentReader:
    """Reads the prompt and the key from a call's arguments."""

    def __init__(self, plan: CachePolicy, fn: Callable[..., object]) -> None:
        self._plan = plan
        self._name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        try:
            self._signature = inspect.signature(fn)
        except (ValueError, TypeError):
            raise InvalidError("fn", fn, "it has no signature; wrap it in a function of yours") from None

    def question(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CacheQuery:
        """Return the query for a call.

        Raises:
            InvalidError: there is no prompt, or another argument cannot be identified by its value.
            TypeError: the function does not take these arguments.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        plan, others = self._plan, dict(bound.arguments)
        prompt = plan.prompt(*args, **kwargs) if plan.prompt else _first_text(others)
        if plan.key is None:
            key = self._name + (f" {_arguments_key(others)}" if others else "")
        else:
            key = plan.key if isinstance(plan.key, str) else plan.key(*args, **kwargs)
        return cache_query(prompt, key=key, model=plan.model, prompt_version=plan.prompt_version, tags=plan.tags)


def _first_text(arguments: dict[str, Any]) -> str:
    """Remove the first text from the arguments and return it."""
    name = next((name for name, value in arguments.items() if isinstance(value, str)), None)
    if name is None:
        raise InvalidError("arguments", list(arguments), "no argument is a text; use cached(prompt=lambda ...: ...)")
    return cast("str", arguments.pop(name))


def _arguments_key(arguments: Mapping[str, Any]) -> str:
    try:
        coded = encode_set_member(arguments)
    except InvalidError as error:
        advice = f"{error}; use cached(key=...) with the values that the answer depends on"
        raise InvalidError("arguments", list(arguments), advice) from error
    return hashlib.blake2b(coded, digest_size=16).hexdigest()


class _CachedCall:
    """One call of a cached function."""

    def __init__(
        self,
        answers: CacheRepository,
        once: Once,
        plan: CachePolicy,
        question: CacheQuery,
        compute: Callable[[], Awaitable[Any]],
    ) -> None:
        self._answers = answers
        self._once = once
        self._plan = plan
        self._question = question
        self._compute = compute
        self._outcome: list[Any] = []
        self._failure: Exception | None = None
        self._is_cut_off = False
        self._began = time.perf_counter()

    async def answer(self) -> Any:
        """Return the answer: from the cache, from a caller that computes it already, or computed here.

        Raises:
            Exception: what the function raises; never an error of the cache.
        """
        if not self._answers.is_enabled:
            return await self._compute()
        if await self._found_by_now() or await self._found_near():
            return self._outcome[0]
        if self._is_cut_off:
            return await self._compute()
        return await self._answer_with_others()

    async def _answer_with_others(self) -> Any:
        """Compute the answer, unless another caller does."""
        name = f"{CACHE}.{self._question.id}"
        try:
            await self._once.once(
                name, self._take_turn, ttl=_RESULT_TTL_S, lease=self._plan.lease_s, wait=self._plan.wait_s
            )
        except Exception as error:
            if error is self._failure:
                raise
            self._give_up("wait", error)
        if not self._outcome:
            await self._take_turn()
        return self._outcome[0]

    async def _take_turn(self) -> None:
        """Compute and store the answer, unless another caller has just stored one."""
        if await self._found_by_now():
            return
        try:
            value = await self._compute()
        except Exception as error:
            self._failure = error
            raise
        self._outcome.append(value)
        self._answers.report(None, self._began)
        try:
            await self._keep(value)
        except Exception as error:  # noqa: BLE001  # a failure to store the answer must not lose it
            self._give_up("keep", error)

    async def _found_by_now(self) -> bool:
        """Return whether the cache has an answer to the same prompt."""
        try:
            _ = self._answers.may_read
            found = await self._answers.same(self._question)
        except Exception as error:  # noqa: BLE001  # an error of the cache must not fail the call
            self._is_cut_off = True
            self._give_up("look", error)
            return False
        return self._take(found)

    async def _found_near(self) -> bool:
        """Return whether the cache has an answer to a near prompt; an index or an embedder may fail, or have a bug."""
        try:
            found = None if self._is_cut_off else await self._answers.near(self._question, self._plan.least)
        except Exception as error:  # noqa: BLE001  # likewise
            self._give_up("search", error)
            return False
        return self._take(found)

    def _take(self, found: CacheHit | None) -> bool:
        if found is None:
            return False
        self._outcome.append(found.answer.value())
        self._answers.report(found, self._began)
        return True

    async def _keep(self, value: object) -> None:
        plan = self._plan
        cost, tokens = (amount(value) if callable(amount) else amount for amount in (plan.cost, plan.tokens))
        facts = encode_cost(cost, cast("int", tokens))
        await self._answers.keep(self._question, value, ttl_ms=plan.ttl_ms, facts=facts)

    def _give_up(self, doing: str, error: Exception) -> None:
        self._answers.note(doing, error)
        _logger.warning("the cache could not %s for a call, which continues without it: %s", doing, error)
