"""Cache entries: the key of a prompt, and how its answer is stored in Redis."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import NamedTuple

import orjson

from sharedmem.errors import InvalidError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.codec import decode_member
from sharedmem.redis.replies import Reply
from sharedmem.search.filters import Every, Tagged, join_tags, split_tags
from sharedmem.text.normalization import normalize_text

CACHE = "cache"
CACHE_RECORDS = RecordFamily(CACHE, ("ns", "scope", "tags"), ())
"""Answers, as an index finds them; the durable store does not keep them."""
LONGEST_EMBEDDED = 32_768
"""Characters of the longest prompt that is compared by meaning; a longer one is found by its exact text alone."""
MOST_TAGS = 64
FIELDS = ("prompt", "response", "version", "facts", "tags")
"""What is read of an answer, in the order that `read_answer` takes it."""
_LONGEST_NAME_BYTES = 1024
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class CacheQuery:
    """A prompt, and what must be the same besides it for an answer to fit."""

    prompt: str
    key: str
    model: str
    prompt_version: str
    tags: tuple[str, ...]

    @cached_property
    def id(self) -> str:
        """The id of its answer: the same for all spellings of the prompt that differ in blanks, case or width."""
        return _digest(self.scope, normalize_text(self.prompt))

    @cached_property
    def scope(self) -> str:
        """What answers are shared within."""
        return _digest(self.key, self.model, self.prompt_version)

    @property
    def has_meaning(self) -> bool:
        """Whether it is compared by meaning too."""
        return len(self.prompt) <= LONGEST_EMBEDDED

    @property
    def filters(self) -> Every:
        """Which answers may fit."""
        return Every((Tagged("scope", (self.scope,)), *(Tagged("tags", (tag,)) for tag in self.tags)))

    def fields(self, namespace: str, response: bytes, facts: bytes, vector: bytes | None) -> list[bytes]:
        """The fields of its answer, each before its value."""
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
    """An answer as it lies in Redis."""

    id: str
    prompt: str
    response: bytes
    made_s: float
    """When it was kept, in seconds since 1970."""
    cost: float
    tokens: int
    tags: frozenset[str]

    def value(self) -> object:
        """What was answered."""
        return decode_member(self.response)


def cache_query(prompt: str, *, key: str, model: str, prompt_version: str, tags: Sequence[str]) -> CacheQuery:
    """A question, from what a caller gives.

    Raises:
        InvalidError: the prompt is empty or no text; a name or a tag is too long, or no text.
    """
    for field, name in (("key", key), ("model", model), ("prompt_version", prompt_version)):
        check_name(field, name)
    return CacheQuery(check_prompt(prompt), key, model, prompt_version, check_tags(tags))


def check_prompt(prompt: str) -> str:
    """A prompt.

    Raises:
        InvalidError: it is empty, or no text.
    """
    if not isinstance(prompt, str) or not prompt.strip() or not _is_encodable(prompt):
        raise InvalidError("prompt", prompt, "give a text that is not empty, without halves of characters")
    return prompt


def check_name(field: str, name: str) -> str:
    """A text that is short enough to file things under.

    Raises:
        InvalidError: it is not.
    """
    if not isinstance(name, str) or not _is_encodable(name) or len(name.encode()) > _LONGEST_NAME_BYTES:
        raise InvalidError(field, name, f"give a text of at most {_LONGEST_NAME_BYTES} bytes")
    return name


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags, each once.

    Raises:
        InvalidError: they are no sequence of texts, too many, or one is empty or too long.
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
    """The value of the tag `scope` that all answers under a key share."""
    return f"key {_digest(key)}"


def prompt_scope(prompt: str) -> str:
    """The value of the tag `scope` that all answers to a prompt share, whatever key and model."""
    return f"prompt {_digest(normalize_text(prompt))}"


def encode_cost(cost: float, tokens: int) -> bytes:
    """What an answer cost, as it lies in Redis.

    Raises:
        InvalidError: negative, or no number.
    """
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not isfinite(cost) or cost < 0:
        raise InvalidError("cost", cost, "give what the answer cost, 0 or more")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise InvalidError("tokens", tokens, "give a number of tokens, 0 or more")
    return orjson.dumps((float(cost), tokens))


def read_answer(id_: str, reply: Reply) -> CachedAnswer | None:
    """The answer that a look at `FIELDS` found; None where there is none, or somebody else has written there."""
    if not isinstance(reply, list):
        return None
    prompt, response, version, facts, tags = reply
    if not (isinstance(prompt, bytes) and isinstance(response, bytes) and isinstance(version, bytes)):
        return None
    try:
        cost, tokens = orjson.loads(facts) if isinstance(facts, bytes) else (0.0, 0)
        made_s = int(version) / 1_000_000
        tagged = frozenset(split_tags(tags.decode())) if isinstance(tags, bytes) else frozenset()
        told = prompt.decode()
        return CachedAnswer(id_, told, response, made_s, float(cost), int(tokens), tagged)
    except (ValueError, TypeError):
        return None


def _digest(*texts: str) -> str:
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for text in texts:
        data = text.encode()
        # Each length stands before its text, so that no text can pass for the end of another.
        whole.update(len(data).to_bytes(8, "big"))
        whole.update(data)
    return whole.hexdigest()
