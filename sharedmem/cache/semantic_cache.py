"""`store.cache`: the semantic cache of a namespace, which answers repeated and similar prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharedmem.cache.decorator import Amount, CacheDecorator, CachePolicy
from sharedmem.cache.repository import (
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
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.process_bound import ProcessBound
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
