"""`store.cache`: the semantic cache of a namespace, which answers repeated and similar prompts.

A decorator caches the results of a function: concurrent callers with the same prompt share one call through `Once`,
whose lease holds across all processes; a `SingleFlight` holds in this process only.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from sharedmem.cache.repository import (
    CACHE,
    CacheHit,
    CacheQuery,
    CacheRepository,
    cache_query,
    check_name,
    check_prompt,
    check_tags,
    encode_cost,
    key_scope,
    prompt_scope,
)
from sharedmem.coordination.names import NameAccess, check_lease_ms, check_wait
from sharedmem.coordination.once import Once
from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import CachedResult, CachePage, CacheStats
from sharedmem.redis.codec import encode_set_member
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters, get_logger, measured
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.search.protocol import Condition, Every, Tagged

_MOST_LISTED = 1000
_LONGEST_CURSOR = 12
_COUNTS = ("hits", "exact_hits", "misses", "false_hits", "guarded", "saved_tokens")


class SemanticCache(ProcessBound):
    """Stored answers to prompts, shared by all actors of a namespace.

    An answer fits a prompt if `key`, `model` and `prompt_version` are equal, it has all requested tags, and the prompts
    are the same but for blanks, case and width of letters (one read); or else if their meaning is near enough and no
    guard distinguishes them.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: builds keys within the actor's rights.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._counters: Counters = context.counters
        self._answers = CacheRepository(context, scope)
        self._once = Once(NameAccess(context, scope))

    # -- lookup and store

    @measured("cache.check")
    async def check(
        self,
        prompt: str,
        *,
        threshold: float | None = None,
        key: str = "",
        model: str = "",
        prompt_version: str = "",
        tags: Sequence[str] = (),
    ) -> CachedResult | None:
        """Return the answer that fits a prompt, if there is one.

        One round trip if the same prompt has an answer; else two for a miss and three for a hit by meaning.
        Without an embedder, or when it fails, only the same prompt is found (counter `cache_blind`). If the setting
        `cache_enabled` turns the cache off, there is no answer, and no round trip.

        Args:
            prompt: the prompt for the model.
            threshold: cosine similarity from which meaning is near enough, above 0 to 1; None for the setting
                `cache_similarity`, whose default is that of the embedder.
            key: further values that the answer depends on: a user, a document, a temperature.
            model: name of the model that would answer.
            prompt_version: version of the template around the prompt.
            tags: tags that the answer must have, all of them.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError: this actor may not read the cache.
            UnavailableError: the server cannot be reached.
        """
        question = cache_query(prompt, key=key, model=model, prompt_version=prompt_version, tags=tags)
        least = self._answers.least(threshold)
        if not self._answers.is_enabled:
            return None
        found = await self._answers.find(question, least)
        return self._answers.result(found) if found else None

    @measured("cache.put")
    async def put(
        self,
        prompt: str,
        response: object,
        *,
        ttl: float | None = None,
        key: str = "",
        model: str = "",
        prompt_version: str = "",
        tags: Sequence[str] = (),
        cost: float = 0.0,
        tokens: int = 0,
    ) -> str:
        """Store the answer to a prompt; it replaces an earlier one. One round trip, and the embedding.

        If the setting `cache_enabled` turns the cache off, nothing is stored.

        Args:
            prompt: the prompt.
            response: the answer: any value that `write` takes.
            ttl: seconds until the answer expires; None for the setting `cache_ttl_s`.
            key, model, prompt_version: as `check`.
            tags: tags, to delete answers together.
            cost, tokens: the cost of the answer, which each hit saves.

        Returns:
            The id of the answer.

        Raises:
            InvalidError: an argument is invalid, or the response cannot be encoded.
            AccessDeniedError: this actor may not write the cache.
            UnavailableError: the server cannot be reached.
        """
        question = cache_query(prompt, key=key, model=model, prompt_version=prompt_version, tags=tags)
        ttl_ms, facts = self._answers.ttl_ms(ttl), encode_cost(cost, tokens)
        if self._answers.is_enabled:
            await self._answers.keep(question, response, ttl_ms=ttl_ms, facts=facts)
        return question.id

    def cached(  # noqa: PLR0913  # all are keyword arguments, and each has its use
        self,
        *,
        prompt: Callable[..., str] | None = None,
        key: str | Callable[..., str] | None = None,
        ttl: float | None = None,
        tags: Sequence[str] = (),
        model: str = "",
        prompt_version: str = "",
        threshold: float | None = None,
        cost: Amount = 0.0,
        tokens: Amount = 0,
        lease: float = 30.0,
        wait: float = 60.0,
    ) -> CacheDecorator:
        """Decorate a function so that it returns stored answers instead of computing them again.

        Of concurrent calls with the same prompt, in any process, one computes and the others wait for its answer. If it
        fails, its caller gets the error, and the next one tries; if its process dies, the next one begins as soon as
        the lease has expired. A failure of the cache never fails the call: then the function runs.

        Args:
            prompt: makes the prompt from the call's arguments; None takes the first argument that is a text.
            key: as `check`, or makes it from the call's arguments; None for the function and its other arguments.
            ttl, tags, model, prompt_version: as `put`.
            threshold: as `check`.
            cost, tokens: the cost of the answer; a function computes it from the answer.
            lease: seconds without a heartbeat of the computing process, after which another one may begin.
            wait: seconds to wait for another caller's answer before the function runs here.

        Returns:
            A decorator; the function becomes a coroutine function; a plain function runs in a thread.

        Raises:
            InvalidError: an argument is invalid; by the call: there is no prompt in its arguments, or other arguments
                that cannot be distinguished by their value.
        """
        check_lease_ms(lease)
        plan = CachePolicy(
            prompt,
            key,
            self._answers.ttl_ms(ttl),
            check_tags(tags),
            check_name("model", model),
            check_name("prompt_version", prompt_version),
            self._answers.least(threshold),
            cost,
            tokens,
            lease,
            check_wait(wait),
        )
        return CacheDecorator(self._answers, self._once, plan)

    # -- deletion

    async def delete(self, *, tag: str | None = None, prompt: str | None = None, key: str | None = None) -> int:
        """Delete the answers that match all given arguments; return how many were deleted.

        Two round trips, one more for every further 500.

        Args:
            tag: a tag of the answers.
            prompt: the prompt, with any key and model.
            key: as `check`.

        Raises:
            InvalidError: no argument is given; `clear` deletes all answers.
            AccessDeniedError, UnavailableError: as `put`.
        """
        wanted: list[Condition] = []
        if tag is not None:
            wanted.append(Tagged("tags", (check_name("tag", tag),)))
        if prompt is not None:
            wanted.append(Tagged("scope", (prompt_scope(check_prompt(prompt)),)))
        if key is not None:
            wanted.append(Tagged("scope", (key_scope(check_name("key", key)),)))
        if not wanted:
            raise InvalidError("delete", None, "give a tag, a prompt or a key; clear() deletes all answers")
        _ = self._answers.may_write
        return await self._answers.drop(await self._answers.matching(Every(tuple(wanted))))

    async def clear(self) -> int:
        """Delete every answer of the namespace; return how many were deleted. Two round trips for every 500.

        Raises:
            AccessDeniedError, UnavailableError: as `put`.
        """
        _ = self._answers.may_write
        dropped = 0
        while ids := await self._answers.oldest():
            dropped += await self._answers.drop(ids)
        return dropped

    # -- listing

    async def list(self, tag: str | None = None, *, limit: int = 100, cursor: str | None = None) -> CachePage:
        """Return a page of the stored answers: the last to expire come first; with a tag in any order.

        Answers that are stored or expire meanwhile move the others: one may come twice, or be missed. Two round trips.

        Args:
            tag: only answers with this tag.
            limit: size of a page, 1 to 1,000.
            cursor: of the page before; None begins.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `check`.
        """
        _ = self._answers.may_read
        if not 1 <= limit <= _MOST_LISTED:
            raise InvalidError("limit", limit, f"give 1 to {_MOST_LISTED}")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise InvalidError("cursor", cursor, "give that of the page before, or none to begin")
        offset = int((cursor or "0")[:_LONGEST_CURSOR])
        if tag is None:
            ids = await self._answers.newest(offset=offset, limit=limit)
        else:
            ids = await self._answers.tagged(check_name("tag", tag), offset=offset, limit=limit)
        following = str(offset + limit) if len(ids) == limit else None
        return CachePage(answers=await self._answers.entries(ids), cursor=following)

    # -- statistics

    async def report_false_hit(self, id_: str) -> None:
        """Report that an answer did not fit its prompt; this increments a counter.

        Args:
            id_: id of the `CachedResult`.

        Raises:
            InvalidError: the id is invalid.
            AccessDeniedError: this actor may not read the cache.
        """
        if not isinstance(id_, str) or not id_.isalnum():
            raise InvalidError("id", id_, "give the id of a CachedResult")
        _ = self._answers.may_read
        self._answers.tally.count("false_hits")

    async def stats(self) -> CacheStats:
        """Return the counts of hits, misses and savings. Two round trips.

        Raises:
            AccessDeniedError, UnavailableError: as `check`.
        """
        _ = self._answers.may_read
        counts, entries = await self._answers.counted()
        whole = {name: round(counts.get(name, 0)) for name in _COUNTS}
        return CacheStats(**whole, entries=entries, saved_cost=counts.get("saved_cost", 0.0))


# -- cached functions ----------------------------------------------------------------------------


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
