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
from sharedmem.models import CachedResult, CacheStats
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.process_bound import ProcessBound
from sharedmem.search.protocol import Condition, Every, Tagged

_COUNTS = ("hits", "exact_hits", "misses", "false_hits", "guarded", "saved_tokens")


class SemanticCache(ProcessBound):
    """Answers that somebody has paid for already, shared by all actors of a namespace.

    An answer fits a prompt when `key`, `model` and `prompt_version` are the same, its tags are among the wanted ones,
    and the prompts are the same but for blanks, case and width of letters (one read); or else when their meaning is
    near enough and no guard distinguishes them.

    Args:
        context: what the hub shares with its stores.
        scope: hands out keys within the actor's rights.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._counters: Counters = context.counters
        self._answers = CacheRepository(context, scope)
        self._once = Once(NameAccess(context, scope))

    # -- asking and answering

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

        One round trip when the same prompt was answered; else two for a miss and three for a hit by meaning.
        Without an embedder, or when it fails, only the same prompt is found (counter `cache_blind`).

        Args:
            prompt: what would be asked.
            threshold: cosine similarity from which meaning is near enough, above 0 to 1; None for the setting
                `cache_similarity`; its default gives way to what was calibrated for the embedder if that is higher.
            key: what else the answer depends on: a user, a document, a temperature.
            model: the model that would answer.
            prompt_version: of the template around the prompt.
            tags: all of them must be on the answer.

        Raises:
            InvalidError: an argument is refused.
            AccessDeniedError: this actor may not read the cache.
            UnavailableError: the server cannot be reached.
        """
        question = cache_query(prompt, key=key, model=model, prompt_version=prompt_version, tags=tags)
        found = await self._answers.find(question, self._answers.least(threshold))
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
        """Keep the answer to a prompt, in place of an earlier one. One round trip, and the embedding.

        Args:
            prompt: what was asked.
            response: the answer: any value that `write` takes.
            ttl: seconds for which it is kept; None for the setting `cache_ttl_s`.
            key, model, prompt_version: as `check`.
            tags: by which answers can be invalidated together.
            cost, tokens: what the answer cost, which each hit saves.

        Returns:
            The id of the answer.

        Raises:
            InvalidError: an argument is refused, or the response cannot be coded.
            AccessDeniedError: this actor may not write the cache.
            UnavailableError: the server cannot be reached.
        """
        question = cache_query(prompt, key=key, model=model, prompt_version=prompt_version, tags=tags)
        ttl_ms = self._answers.ttl_ms(ttl)
        await self._answers.keep(question, response, ttl_ms=ttl_ms, facts=encode_cost(cost, tokens))
        return question.id

    def cached(  # noqa: PLR0913  # all are named, and each matters to somebody
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
        """Decorate a function so that what it answered before is not computed again.

        Of all that ask the same at the same time, in whatever process, one computes and the others wait for its
        answer. When it fails, its caller gets the error, and the next one tries; when its process dies, the next one
        begins as soon as the lease has ended. A failure of the cache never fails the call: it computes then.

        Args:
            prompt: makes the prompt of the call's arguments; None takes the first argument that is a text.
            key: as `check`, or makes it of the call's arguments; None names the function and its other arguments.
            ttl, tags, model, prompt_version: as `put`.
            threshold: as `check`.
            cost, tokens: what the answer cost; a function is given the answer.
            lease: seconds after which another process may begin when the process that computes sends no heartbeat.
            wait: seconds to wait for somebody else's answer before computing one's own.

        Returns:
            A decorator; the function becomes a coroutine function, and one that was none runs in a thread.

        Raises:
            InvalidError: an argument is refused; by the call: there is no prompt in its arguments, or other arguments
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

    # -- forgetting

    async def invalidate(self, *, tag: str | None = None, prompt: str | None = None, key: str | None = None) -> int:
        """Forget the answers to which all that is given applies; returns how many there were.

        Two round trips, one more for every further 500.

        Args:
            tag: a tag of theirs.
            prompt: what was asked, whatever key and model.
            key: as `check`.

        Raises:
            InvalidError: nothing is given; `clear` forgets all.
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
            raise InvalidError("invalidate", None, "say which: a tag, a prompt or a key; clear() forgets all")
        _ = self._answers.may_write
        return await self._answers.drop(await self._answers.matching(Every(tuple(wanted))))

    async def clear(self) -> int:
        """Forget every answer of the namespace; returns how many there were. Two round trips for every 500.

        Raises:
            AccessDeniedError, UnavailableError: as `put`.
        """
        _ = self._answers.may_write
        dropped = 0
        while ids := await self._answers.oldest():
            dropped += await self._answers.drop(ids)
        return dropped

    # -- how it does

    async def report_false_hit(self, id_: str) -> None:
        """Tell that an answer did not fit the prompt it was given for; it is counted.

        Args:
            id_: of the `CachedResult`.

        Raises:
            InvalidError: it is no id.
            AccessDeniedError: this actor may not read the cache.
        """
        if not isinstance(id_, str) or not id_.isalnum():
            raise InvalidError("id", id_, "give the id of a CachedResult")
        _ = self._answers.may_read
        self._answers.tally.count("false_hits")

    async def stats(self) -> CacheStats:
        """Return how the cache has done. Two round trips.

        Raises:
            AccessDeniedError, UnavailableError: as `check`.
        """
        _ = self._answers.may_read
        counts, entries = await self._answers.counted()
        whole = {name: round(counts.get(name, 0)) for name in _COUNTS}
        return CacheStats(**whole, entries=entries, saved_cost=counts.get("saved_cost", 0.0))
