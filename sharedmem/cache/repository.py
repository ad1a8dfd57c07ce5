"""Entries of the semantic cache in Redis: their hash form, exact and near lookups, writes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite
from typing import NamedTuple, TypeVar

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.errors import AccessDeniedError, InvalidError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import CachedResult, CacheEntry
from sharedmem.providers.embedding import embed_query
from sharedmem.providers.protocol import cache_similarity
from sharedmem.record_family import RecordFamily
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.durability import check_ttl_ms
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Command, Reply, ServerError, public_key_error
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.knowledge import CachePutKeys, CacheScripts
from sharedmem.redis.vectors import Vector, to_half
from sharedmem.runtime import elapsed_ms, get_logger, log_event
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.search.protocol import Every, Tagged
from sharedmem.text.analysis import join_tags, normalize_text, split_tags
from sharedmem.text.contradictions import find_contradiction

CACHE = "cache"
CACHE_RECORDS = RecordFamily(CACHE, ("ns", "scope", "tags"), ())
"""Answers, as an index finds them; the durable store does not store them."""
LONGEST_EMBEDDED = 32_768
"""Characters of the longest prompt that is compared by meaning; a longer one is found by its exact text alone."""
MOST_TAGS = 64
FIELDS = ("prompt", "response", "version", "facts", "tags")
"""The fields of an answer that are read, in the order that `read_answer` takes."""
_LONGEST_NAME_BYTES = 1024
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class CacheQuery:
    """A prompt, and the fields that must be equal for an answer to fit."""

    prompt: str
    key: str
    model: str
    prompt_version: str
    tags: tuple[str, ...]

    @cached_property
    def id(self) -> str:
        """The id of its answer: the same for prompts that differ only in blanks, case or width of letters."""
        return _digest(self.scope, normalize_text(self.prompt))

    @cached_property
    def scope(self) -> str:
        """The scope that answers are shared in."""
        return _digest(self.key, self.model, self.prompt_version)

    @property
    def has_meaning(self) -> bool:
        """Whether the prompt is also compared by meaning."""
        return len(self.prompt) <= LONGEST_EMBEDDED

    @property
    def filters(self) -> Every:
        """The conditions for answers that may fit."""
        return Every((Tagged("scope", (self.scope,)), *(Tagged("tags", (tag,)) for tag in self.tags)))

    def fields(self, namespace: str, response: bytes, facts: bytes, vector: bytes | None) -> list[bytes]:
        """Return the fields of its answer, each name before its value."""
        scopes = (self.scope, key_scope(self.key), prompt_scope(self.prompt))
        values = {
            "ns": namespace.encode(),
            "scope": join_tags(scopes).encode(),
            "prompt": self.prompt.encode(),
            "response": response,
            "facts": facts,
        }
        if self.tags:
            values["tags"] = join_tags(self.tags).encode()
        if vector is not None:
            values["vector"] = vector
        return [part for name, value in values.items() for part in (name.encode(), value)]


class CachedAnswer(NamedTuple):
    """An answer as it is stored in Redis."""

    id: str
    prompt: str
    response: bytes
    made_s: float
    """When it was stored, in seconds since 1970."""
    cost: float
    tokens: int
    tags: frozenset[str]

    def value(self) -> object:
        """Return the decoded answer."""
        return decode_member(self.response)


def cache_query(prompt: str, *, key: str, model: str, prompt_version: str, tags: Sequence[str]) -> CacheQuery:
    """Return a query from a caller's arguments.

    Raises:
        InvalidError: the prompt is empty or not a text; a name or a tag is too long, or not a text.
    """
    for field, name in (("key", key), ("model", model), ("prompt_version", prompt_version)):
        check_name(field, name)
    return CacheQuery(check_prompt(prompt), key, model, prompt_version, check_tags(tags))


def check_prompt(prompt: str) -> str:
    """Return a checked prompt.

    Raises:
        InvalidError: the prompt is empty, or not a text.
    """
    if not isinstance(prompt, str) or not prompt.strip() or not _is_encodable(prompt):
        raise InvalidError("prompt", prompt, "give a text that is not empty, without halves of characters")
    return prompt


def check_name(field: str, name: str) -> str:
    """Return a checked text that is short enough for a tag.

    Raises:
        InvalidError: the text is too long, or not a text.
    """
    if not isinstance(name, str) or not _is_encodable(name) or len(name.encode()) > _LONGEST_NAME_BYTES:
        raise InvalidError(field, name, f"give a text of at most {_LONGEST_NAME_BYTES} bytes")
    return name


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags without repetitions.

    Raises:
        InvalidError: the tags are not a sequence of texts, too many, or one is empty or too long.
    """
    if isinstance(tags, str) or not isinstance(tags, list | tuple | set | frozenset) or len(tags) > MOST_TAGS:
        raise InvalidError("tags", tags, f"give a list of at most {MOST_TAGS} texts")
    for tag in tags:
        if not check_name("tag", tag):
            raise InvalidError("tag", tag, "give a text that is not empty")
    return tuple(dict.fromkeys(tags))


def _is_encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def key_scope(key: str) -> str:
    """Return the value of the tag `scope` that all answers under a key share."""
    return f"key {_digest(key)}"


def prompt_scope(prompt: str) -> str:
    """Return the value of the tag `scope` that all answers to a prompt share, with any key and model."""
    return f"prompt {_digest(normalize_text(prompt))}"


def encode_cost(cost: float, tokens: int) -> bytes:
    """Return the cost of an answer as Redis stores it.

    Raises:
        InvalidError: an amount is negative, or not a number.
    """
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not isfinite(cost) or cost < 0:
        raise InvalidError("cost", cost, "give what the answer cost, 0 or more")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise InvalidError("tokens", tokens, "give a number of tokens, 0 or more")
    return orjson.dumps((float(cost), tokens))


def read_answer(id_: str, reply: Reply) -> CachedAnswer | None:
    """Return the answer from a read of `FIELDS`; None if there is no answer, or another client has written there."""
    if not isinstance(reply, list):
        return None
    prompt, response, version, facts, tags = reply
    if not (isinstance(prompt, bytes) and isinstance(response, bytes) and isinstance(version, bytes)):
        return None
    try:
        cost, tokens = orjson.loads(facts) if isinstance(facts, bytes) else (0.0, 0)
        made_s = int(version) / 1_000_000
        tagged = frozenset(split_tags(tags.decode())) if isinstance(tags, bytes) else frozenset()
        text = prompt.decode()
        return CachedAnswer(id_, text, response, made_s, float(cost), int(tokens), tagged)
    except (ValueError, TypeError):
        return None


def _entry(answer: CachedAnswer, ending: Reply) -> CacheEntry:
    return CacheEntry(
        id=answer.id,
        prompt=answer.prompt,
        response=answer.value(),
        created_at=from_microseconds(round(answer.made_s * 1_000_000)),
        expires_at=None if ending is None else from_microseconds(round(float(text_of(ending)) * 1000)),
        cost=answer.cost,
        tokens=answer.tokens,
        tags=tuple(sorted(answer.tags)),
    )


def _digest(*texts: str) -> str:
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for text in texts:
        data = text.encode()
        # Each length comes before its text, so that no text can be mistaken for the end of another.
        whole.update(len(data).to_bytes(8, "big"))
        whole.update(data)
    return whole.hexdigest()


FLUSH_AFTER_S = 0.5
# Stores of several actors share the counts, so the changes carry the namespace as their actor.
_SIGNATURE = SHARED_SCOPE.encode()
_logger = get_logger("cache")


class CacheCounter:
    """Counts of one namespace; all stores of a hub share it.

    Counting takes no round trip. Counts are sent together after half a second, and when the hub closes.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the cache.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._context = context
        self._space = context.keyspace.space(namespace)
        self._key = context.keyspace.record_part(CACHE, namespace, "stats")
        self._caching = CacheScripts(context.executor)
        self._waiting: Counter[str] = Counter()
        self._saved_cost = 0.0
        self._work: BackgroundTask | None = None

    def count(self, *fields: str, saved_cost: float = 0.0, saved_tokens: int = 0) -> None:
        """Increment each field, and add what a hit has saved."""
        for field in fields:
            self._waiting[field] += 1
        if saved_tokens:
            self._waiting["saved_tokens"] += saved_tokens
        self._saved_cost += saved_cost
        if self._work is None or self._work.done:
            with suppress(SharedMemoryError):  # the hub closes
                self._work = self._context.background.start("count cache", self._flush_later())

    async def flush(self) -> None:
        """Send the counts so far. One round trip, none if there are no counts.

        Raises:
            UnavailableError: the server cannot be reached; the counts are kept and sent later.
        """
        counted, cost = self._waiting, self._saved_cost
        if not counted and not cost:
            return
        self._waiting, self._saved_cost = Counter(), 0.0
        pairs = [text for field, amount in counted.items() for text in (field, str(amount))]
        if cost:
            pairs += ["saved_cost", repr(cost)]
        try:
            # A caller that is cancelled here has sent the counts: sending them again would count twice.
            await self._caching.cache_count(self._space, self._key, _SIGNATURE, pairs=pairs)
        except (ServerError, AccessDeniedError) as refused:
            # The namespace is being cleared, or this user may only read: these counts can never be sent.
            _logger.info("counts of the cache of %s are dropped: %s", self._space.namespace, refused)
        except SharedMemoryError:
            self._waiting.update(counted)
            self._saved_cost += cost
            raise

    async def _flush_later(self) -> None:
        try:
            while self._waiting or self._saved_cost:
                await self._context.clock.sleep(FLUSH_AFTER_S)
                await self._flush_quietly()
        except asyncio.CancelledError:
            await self._flush_quietly()  # the hub closes: its client is still open
            raise

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except SharedMemoryError as error:
            _logger.warning("counts of the cache of %s are not sent yet: %s", self._space.namespace, error)


T = TypeVar("T")
PAGE = 500
"""Answers that one round trip deletes, if there may be many."""
_CANDIDATES = 3


class CacheHit(NamedTuple):
    """An answer that fits."""

    answer: CachedAnswer
    similarity: float
    exact: bool


class CacheRepository:
    """The answers of one namespace, with the rights of one actor.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: builds keys within the actor's rights.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self._namespace = scope.identity.namespace
        self._settings = context.settings_of(self._namespace)
        self._caching = CacheScripts(context.executor)

    # -- rights, checked once: they do not change

    @cached_property
    def may_read(self) -> bool:
        """Always True, or an error.

        Raises:
            AccessDeniedError: this actor may not read the cache.
        """
        self._scope.common(CACHE, "read")
        return True

    @cached_property
    def may_write(self) -> bool:
        """Always True, or an error.

        Raises:
            AccessDeniedError: this actor may not write the cache.
        """
        self._scope.common(CACHE, "write")
        return True

    # -- finding

    @property
    def is_enabled(self) -> bool:
        """Whether the settings of the namespace allow the cache."""
        return self._settings.cache_enabled

    def least(self, threshold: float | None) -> float:
        """Return the least similarity for a hit by meaning.

        Raises:
            InvalidError: the threshold is out of range.
        """
        if threshold is None:
            return self._usual_similarity
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 1:
            raise InvalidError("threshold", threshold, "give a cosine similarity, above 0 to 1")
        return float(threshold)

    @cached_property
    def _usual_similarity(self) -> float:
        return cache_similarity(self._settings, self._context.embedder_name)

    async def same(self, question: CacheQuery) -> CacheHit | None:
        """Return the answer to the same prompt. One round trip."""
        answer = await self._answer(question.id)
        fits = answer is not None and answer.tags.issuperset(question.tags)
        return CacheHit(answer, 1.0, exact=True) if answer and fits else None

    async def near(self, question: CacheQuery, least: float) -> CacheHit | None:
        """Return the answer to the nearest prompt that means the same. One round trip, one more for a candidate."""
        vector = await self._vector(question)
        if vector is None:
            return None
        index = self._context.answers
        await index.ensure(self._namespace)
        hits = await index.nearest(self._namespace, vector, filters=question.filters, k=_CANDIDATES)
        # One after the other: the first one fits nearly always.
        for hit in hits.vector:
            if hit.score < least:
                return None
            answer = await self._answer(hit.id)
            if answer is not None and not self._contradicts(question, answer):
                return CacheHit(answer, min(hit.score, 1.0), exact=False)
        return None

    async def find(self, question: CacheQuery, least: float) -> CacheHit | None:
        """Return the answer that fits, counted as a hit or a miss.

        Raises:
            AccessDeniedError, UnavailableError: as `SemanticCache.check`.
        """
        _ = self.may_read
        began = time.perf_counter()
        found = await self.same(question) or await self.near(question, least)
        self.report(found, began)
        return found

    def report(self, found: CacheHit | None, began: float) -> None:
        """Count the outcome of a lookup, and log a hit.

        Args:
            found: the answer; None if there was none.
            began: when the lookup began, by `time.perf_counter`.
        """
        outcome = "miss" if found is None else "exact" if found.exact else "near"
        self._context.counters.increment("cache_checks", outcome=outcome)
        if found is None:
            self.tally.count("misses")
            return
        fields = ("hits", "exact_hits") if found.exact else ("hits",)
        answer = found.answer
        self.tally.count(*fields, saved_cost=answer.cost, saved_tokens=answer.tokens)
        if _logger.isEnabledFor(logging.INFO):
            age_s = self._context.clock.now().timestamp() - answer.made_s
            log_event(_logger, "cache hit", partial(self._logged_fields, found, age_s, elapsed_ms(began)))

    def _logged_fields(self, found: CacheHit, age_s: float, latency_ms: float) -> dict[str, object]:
        answer = found.answer
        return {
            "namespace": self._namespace,
            "answer_id": answer.id,
            "exact": found.exact,
            "similarity": round(found.similarity, 6),
            "age_s": round(max(0.0, age_s), 3),
            "saved_cost": answer.cost,
            "saved_tokens": answer.tokens,
            "latency_ms": latency_ms,
        }

    def result(self, found: CacheHit) -> CachedResult:
        """Return the result for the caller."""
        answer, similarity, exact = found
        age_s = max(0.0, self._context.clock.now().timestamp() - answer.made_s)
        return CachedResult(
            id=answer.id,
            response=answer.value(),
            similarity=similarity,
            age_s=age_s,
            prompt=answer.prompt,
            exact=exact,
        )

    def _contradicts(self, question: CacheQuery, answer: CachedAnswer) -> bool:
        guard = find_contradiction(question.prompt, answer.prompt)
        if guard is None:
            return False
        self.tally.count("guarded")
        self._context.counters.increment("cache_guards", guard=guard)
        return True

    async def _vector(self, question: CacheQuery) -> Vector | None:
        """Return the embedding of the prompt; None if it has no meaning, or the embedder fails."""
        if not question.has_meaning:
            return None
        meaning = await embed_query(self._context.embedder_of(self._namespace), question.prompt)
        if meaning.vector is None:
            self._context.counters.increment("cache_blind", reason=meaning.reason)
        return meaning.vector

    # -- storing and deleting

    def ttl_ms(self, ttl: float | None) -> int:
        """Return the lifetime of an answer.

        Raises:
            InvalidError: the lifetime is invalid.
        """
        return self._settings.cache_ttl_s * 1000 if ttl is None else check_ttl_ms(ttl)

    async def keep(self, question: CacheQuery, response: object, *, ttl_ms: int, facts: bytes) -> None:
        """Store an answer.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `SemanticCache.put`.
        """
        _ = self.may_write
        coded = encode_member(response)
        vector = await self._vector(question)
        fields = question.fields(self._namespace, coded, facts, None if vector is None else to_half(vector))
        call = self._caching.cache_put(
            self._scope.home,
            CachePutKeys(self._record(question.id), *self._lists(), self._part("place")),
            self._scope.signature,
            id_=question.id,
            ttl_ms=ttl_ms,
            fields=fields,
        )
        await self._translated(call)
        self._context.answers.count_writes(self._namespace, 1)

    async def matching(self, filters: Every) -> list[str]:
        """Return the ids of the answers that match filters. One round trip for every 500."""
        index = self._context.answers
        await index.ensure(self._namespace)
        ids: list[str] = []
        while True:
            page = await index.matching(self._namespace, filters, offset=len(ids), limit=PAGE)
            ids += page.ids
            if not page.ids or len(ids) >= page.total:
                return ids

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete answers; return how many of them existed. One round trip for every 500."""
        dropped = 0
        for start in range(0, len(ids), PAGE):
            some = ids[start : start + PAGE]
            keys = [*map(self._record, some), *self._lists()]
            call = self._caching.cache_drop(self._scope.home, keys, self._scope.signature, ids=some)
            dropped += await self._translated(call)
        return dropped

    async def oldest(self) -> list[str]:
        """Return the ids of the answers that expire first, 500 at most."""
        reply = await self._context.client.call("ZRANGE", self._part("endings"), 0, PAGE - 1)
        return [id_.decode() for id_ in reply if isinstance(id_, bytes)] if isinstance(reply, list) else []

    # -- listing

    async def newest(self, *, offset: int, limit: int) -> list[str]:
        """Return the ids of the answers that expire last, a part of them. One round trip."""
        now_ms = round(self._context.clock.now().timestamp() * 1000)
        rest = ("REV", "BYSCORE", "LIMIT", offset, limit)
        reply = await self._context.client.call("ZRANGE", self._part("endings"), "+inf", now_ms, *rest)
        return [id_.decode() for id_ in reply if isinstance(id_, bytes)] if isinstance(reply, list) else []

    async def tagged(self, tag: str, *, offset: int, limit: int) -> list[str]:
        """Return the ids of the answers with a tag, a part of them. One round trip."""
        index = self._context.answers
        await index.ensure(self._namespace)
        filters = Every((Tagged("tags", (tag,)),))
        return list((await index.matching(self._namespace, filters, offset=offset, limit=limit)).ids)

    async def entries(self, ids: Sequence[str]) -> list[CacheEntry]:
        """Return the answers that still exist. One round trip."""
        endings = self._part("endings")
        looks: list[Command] = [
            look for id_ in ids for look in (("HMGET", self._record(id_), *FIELDS), ("ZSCORE", endings, id_))
        ]
        replies = await self._context.client.read_each(looks, aside=True) if looks else []
        answers = [read_answer(id_, reply) for id_, reply in zip(ids, replies[::2], strict=True)]
        return [_entry(one, ending) for one, ending in zip(answers, replies[1::2], strict=True) if one is not None]

    # -- counting

    @cached_property
    def tally(self) -> CacheCounter:
        """The counts, which all stores of the namespace share."""
        return self._context.shared(CacheCounter, self._namespace, lambda: CacheCounter(self._context, self._namespace))

    async def counted(self) -> tuple[dict[str, float], int]:
        """Return (the counts, how many answers there are)."""
        await self.tally.flush()
        now_ms = round(self._context.clock.now().timestamp() * 1000)
        looks: list[Command] = [("HGETALL", self._part("stats")), ("ZCOUNT", self._part("endings"), now_ms, "+inf")]
        counts, entries = await self._context.client.read_many(looks)
        assert isinstance(counts, list)
        assert isinstance(entries, int)
        texts = [part.decode() for part in counts if isinstance(part, bytes)]
        return {name: float(text) for name, text in zip(texts[::2], texts[1::2], strict=True)}, entries

    def note(self, doing: str, error: Exception) -> None:
        """Count that the cache failed in a call."""
        self._context.counters.increment("cache_failures", doing=doing, error=type(error).__name__)

    # -- keys

    async def _answer(self, id_: str) -> CachedAnswer | None:
        call = self._context.client.call("HMGET", self._record(id_), *FIELDS)
        return read_answer(id_, await self._translated(call))

    async def _translated(self, call: Awaitable[T]) -> T:
        """Return the call's result; an error of the server becomes a public error."""
        try:
            return await call
        except ServerError as error:
            key = f"{self._namespace}:${CACHE}"
            raise public_key_error(
                error, self._context.client.address, key=key, held="foreign value", wanted="cache"
            ) from error

    def _record(self, id_: str) -> bytes:
        return self._context.keyspace.record(CACHE, self._namespace, id_)

    def _lists(self) -> tuple[bytes, bytes, bytes]:
        return self._part("log"), self._part("endings"), self._part("gone")

    def _part(self, part: str) -> bytes:
        return self._context.keyspace.record_part(CACHE, self._namespace, part)
