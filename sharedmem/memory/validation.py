"""Validate the memories that callers give, and complete them to new memories.

A lifetime follows from the type of a memory, and where `adaptive_ttl` is set from its importance and use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from math import floor, isfinite, log2
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from sharedmem.clock import new_id
from sharedmem.config import Settings
from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.memory.access import LONGEST_THREAD_BYTES, SCOPE_FIELDS, MemoryAccess
from sharedmem.memory.serialization import meta_tag
from sharedmem.models import Importance, MemoryFilter, MemoryItem
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.text.analysis import text_hash

LONGEST_TEXT_BYTES = 1_048_576
MOST_LABELS = 256
_LONGEST_LABEL_BYTES = 256
_LONGEST_ID_BYTES = 128
_LONGEST_TTL_S = 3_153_600_000
_NO_TTL = -1
_LAST_TURN = 2**52
_DEEPEST = 32
_ID_LENGTH = 20
_IMPORTANCES = ("low", "medium", "high", "critical")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_IDS = re.compile(r"[\s{}\"\\]")
_BRACES = re.compile(r"[{}]")
_LABELS = ("user_id", "agent_id", "run_id", "category", "entity_id", "source_actor", "created_by")
_MANY = ("tags", "collections")
TOKEN_METRICS = frozenset({"input_tokens", "output_tokens"})
_KNOWN = frozenset(MemoryItem.model_fields)


class MemoryScope(NamedTuple):
    """Namespace, actor and narrowing of a caller that adds memories."""

    namespace: str
    actor: str | None
    within: MemoryFilter
    dimension: int
    """Numbers of a vector; 0 without an embedder."""

    @classmethod
    def of(cls, access: MemoryAccess) -> MemoryScope:
        """Return the scope in which a caller adds."""
        dimension = access.context.memories.family.dimension
        return cls(access.namespace, access.scope.identity.actor, access.within, dimension)


@dataclass(slots=True)
class NewMemory:
    """A memory that is not written yet."""

    item: MemoryItem
    """The complete item, but for its turn index if the server assigns that."""
    digest: str
    """The digest that equal memories share."""
    alike: MemoryFilter
    """The conditions, besides nearness, for a memory to be merged with this one."""
    vector: Vector | None
    """A unit vector; None until it is made, or if the text has no meaning."""
    is_exact: bool
    """Whether only the same text is a duplicate: for a turn of a conversation, or if the caller asks for no more."""
    dedup: bool
    is_named: bool = False
    """Whether the caller gave the id."""
    actor: bytes = b""
    is_embedded: bool = False
    """Whether the embedder was called: a text may have no vector."""
    waits: bool = False
    """Whether its embedding is made later."""
    turn: int = -1
    """Its turn index, once it is written; -1 before, and if it was merged into another memory."""
    measured: dict[str, float] | None = None
    """What calls of providers for it took: `input_tokens`, `output_tokens`, `latency_ms`; None without such calls."""

    def measure(self, spent: Mapping[str, float]) -> None:
        """Add what another call of a provider took."""
        held = self.measured or {}
        self.measured = held | {name: round(held.get(name, 0.0) + value, 3) for name, value in spent.items()}


def with_measured(item: MemoryItem, measured: Mapping[str, float] | None) -> MemoryItem:
    """Return a new memory with the metrics that were measured, unless the caller gave them.

    Tokens that the caller gave are those of its own model: none are added beside them.
    """
    if not measured:
        return item
    held = item.metrics
    left_out = held.keys() | (TOKEN_METRICS if held.keys() & TOKEN_METRICS else set())
    fresh = {name: value for name, value in measured.items() if name not in left_out}
    return item.model_copy(update={"metrics": {**fresh, **held}})


def parse_item(given: object, fields: Mapping[str, Any]) -> MemoryItem:
    """Return the item from a text, a mapping or an item, with further fields.

    Raises:
        InvalidError: the argument has another type, or a field is unknown or invalid.
    """
    if isinstance(given, MemoryItem) and not fields:
        return given
    if isinstance(given, MemoryItem):
        fields_given = {name: getattr(given, name) for name in given.model_fields_set}
    elif isinstance(given, str):
        fields_given = {"memory": given}
    elif isinstance(given, Mapping):
        fields_given = dict(given)
    else:
        raise InvalidError("memory", given, "give a text, a MemoryItem, or a mapping of its fields")
    return validate_item({**fields_given, **fields})


def validate_item(fields: Mapping[str, Any]) -> MemoryItem:
    """Return the item with these fields.

    Raises:
        InvalidError: a field is unknown or invalid.
    """
    unknown = [name for name in fields if name not in _KNOWN]
    if unknown:
        raise InvalidError("field", unknown[0], f"a memory has no such field; {_field_advice(unknown[0])}")
    try:
        return MemoryItem.model_validate(dict(fields))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"])) or "memory"
        raise InvalidError(name, problem.get("input"), problem["msg"]) from None


def _field_advice(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

    near = get_close_matches(name, _KNOWN, n=1)
    return f"did you mean {near[0]!r}?" if near else f"put it into metadata, or use {_list_fields()}"


def _list_fields() -> str:
    return ", ".join(sorted(_KNOWN - {"hash", "version", "tenant_id"}))


def prepare_memory(
    given: object,
    fields: Mapping[str, Any],
    home: MemoryScope,
    settings: Settings,
    now: datetime,
    *,
    dedup: bool = True,
    dedup_keys: Sequence[str] = (),
    refuses_cache: bool = True,
) -> NewMemory:
    """Return a memory ready to be written.

    Args:
        given, fields, dedup, dedup_keys: as `Memories.add`.
        home: where the caller adds.
        settings: of the namespace.
        now: the current time.
        refuses_cache: whether the type `semantic-cache` is refused; imports accept what earlier versions stored.

    Raises:
        InvalidError: a field cannot be stored.
        AccessDeniedError: the memory has another tenant, or is outside of what the caller is narrowed to.
    """
    item = parse_item(given, fields)
    if refuses_cache:
        check_memory_type(item.memory_type)
    scoped = _scope_values(item, home)
    text = _text_values(item)
    completed = item.model_copy(update=scoped | text | _default_values(item, settings, now, text["memory"]))
    check_item(completed)
    vector = None if item.embedding is None else check_embedding(item.embedding, home.dimension)
    alike = duplicate_filter(completed, home.within, dedup_keys)
    return NewMemory(
        item=completed,
        digest=dedup_digest(completed, alike, item),
        alike=alike,
        vector=vector,
        is_exact=bool(item.messages),
        dedup=dedup,
        is_named=bool(item.id),
    )


def _scope_values(item: MemoryItem, home: MemoryScope) -> dict[str, Any]:
    """Return tenant, user, agent, thread and run, as the store and its narrowing set them."""
    if item.tenant_id not in {"", home.namespace}:
        advice = f"open a store of that namespace: hub.store({item.tenant_id!r})"
        raise AccessDeniedError(home.actor or home.namespace, f"{item.tenant_id}:$memory", "write", advice)
    # Only the namespace's own actor may name another author: when it moves memories of several actors.
    author = home.actor or item.created_by or SHARED_SCOPE
    found: dict[str, Any] = {"tenant_id": home.namespace, "created_by": author}
    for name in SCOPE_FIELDS:
        wanted = getattr(home.within, name)
        if wanted is not None:
            found[name] = _value_in_scope(item, name, wanted)
    if item.agent_id is None and "agent_id" not in found:
        found["agent_id"] = home.actor
    return found


def _value_in_scope(item: MemoryItem, name: str, wanted: str | tuple[str, ...]) -> str:
    several = (wanted,) if isinstance(wanted, str) else wanted
    given: str | None = getattr(item, name) if name in item.model_fields_set else None
    if given is None and len(several) == 1:
        return several[0]
    if given not in several:
        raise InvalidError(
            name, given, f"these memories are narrowed to {', '.join(several)}; leave it out, or give one"
        )
    return given


def _text_values(item: MemoryItem) -> dict[str, str]:
    memory = item.memory if item.memory.strip() else item.content
    if not memory.strip():
        memory = "\n".join(message.content for message in item.messages)
    if not memory.strip():
        raise InvalidError("memory", item.memory, "give a text with at least one word")
    return {"memory": memory, "content": item.content if item.content.strip() else memory}


def _default_values(item: MemoryItem, settings: Settings, now: datetime, text: str) -> dict[str, Any]:
    memory_type = "long-term" if item.importance == "critical" else item.memory_type
    values = {
        "id": item.id or new_id(_ID_LENGTH),
        "embedding": None,
        "hash": text_hash(text),
        "timestamp": item.timestamp or now,
        "created_at": item.created_at or now,
        "memory_type": memory_type,
        "ttl": default_ttl(memory_type, settings) if item.ttl is None else item.ttl,
        "version": 0,
    }
    if settings.adaptive_ttl and item.ttl is None and values["ttl"] != _NO_TTL:
        adaptive = item.model_copy(update={"memory_type": memory_type, "adaptive_ttl": True})
        values |= {"ttl": starting_ttl(adaptive, settings), "adaptive_ttl": True}
    return values


def check_memory_type(memory_type: str) -> None:
    """Reject the type of memories that the semantic cache would not find.

    Raises:
        InvalidError: the type is `semantic-cache`.
    """
    if memory_type == "semantic-cache":
        advice = "the semantic cache is apart from memories: store answers with store.cache.put(prompt, response)"
        raise InvalidError("memory_type", memory_type, f"{advice}; over HTTP with POST /api/v1/cache")


def duplicate_filter(item: MemoryItem, within: MemoryFilter, dedup_keys: Sequence[str] = ()) -> MemoryFilter:
    """Return the conditions for a duplicate. Memories of different users are never duplicates."""
    alike = _duplicate_filter_of(
        within.user_id, within.agent_id, within.thread_id, within.run_id, item.user_id, item.category
    )
    if not dedup_keys:
        return alike
    wanted = {key: item.metadata[key] for key in _check_dedup_keys(item, dedup_keys)}
    return MemoryFilter(**{name: getattr(alike, name) for name in alike.model_fields_set}, metadata=wanted)


# Most of the added memories are of few users and categories.
@lru_cache(maxsize=1024)
def _duplicate_filter_of(
    within_user: str | tuple[str, ...] | None,
    agent: str | tuple[str, ...] | None,
    thread: str | tuple[str, ...] | None,
    run: str | tuple[str, ...] | None,
    user: str | None,
    category: str | None,
) -> MemoryFilter:
    user_id = within_user if user is None else user
    wanted = {"user_id": user_id, "agent_id": agent, "thread_id": thread, "run_id": run, "category": category}
    return MemoryFilter.model_validate({name: value for name, value in wanted.items() if value is not None})


def _check_dedup_keys(item: MemoryItem, dedup_keys: Sequence[str]) -> Sequence[str]:
    if isinstance(dedup_keys, str):
        raise InvalidError("dedup_keys", dedup_keys, "give a list of names of metadata")
    for key in dedup_keys:
        if meta_tag(key, item.metadata.get(key)) is None:
            raise InvalidError("dedup_keys", key, "metadata has to have a text, number or truth value of this name")
    return dedup_keys


def dedup_digest(item: MemoryItem, alike: MemoryFilter, given: MemoryItem) -> str:
    """Return the digest that equal memories share: of text, owner, and for a turn of a conversation its place.

    Args:
        item: the complete item.
        alike: the conditions for a duplicate.
        given: the item as the caller gave it: filled-in fields do not make turns different.
    """
    parts: list[object] = [item.hash, item.category, item.user_id]
    parts += [getattr(alike, name) for name in ("agent_id", "thread_id", "run_id")]
    parts += sorted(str(meta_tag(key, value)) for key, value in alike.metadata.items())
    if item.messages:
        at = None if given.timestamp is None else given.timestamp.timestamp()
        parts += [item.thread_id, item.author, at, given.turn_index]
    return blake2b(orjson.dumps(parts), digest_size=12).hexdigest()


# -- checks -------------------------------------------------------------------------------------------


def check_item(item: MemoryItem) -> None:
    """Reject a memory that cannot be stored.

    Raises:
        InvalidError: a text is too long, a name cannot be searched for, or metadata is not JSON.
    """
    check_id(item.id)
    for name in ("memory", "content", "summary"):
        check_text(name, getattr(item, name) or "")
    for name in _LABELS:
        value = getattr(item, name)
        if value is not None:
            check_label(name, value)
    check_thread(item.thread_id)
    for name in _MANY:
        _check_labels(name, getattr(item, name))
    if item.metadata:
        check_json("metadata", item.metadata)
    if item.messages:
        _check_messages(item)
    if item.ttl is not None and not (item.ttl == -1 or 1 <= item.ttl <= _LONGEST_TTL_S):
        raise InvalidError("ttl", item.ttl, "give seconds from 1 to a hundred years, or -1 for ever")
    if item.turn_index is not None and item.turn_index > _LAST_TURN:
        raise InvalidError("turn_index", item.turn_index, f"give at most {_LAST_TURN}, or leave it to the store")
    if not all(map(isfinite, item.metrics.values())):
        raise InvalidError("metrics", item.metrics, "give finite numbers")


def check_id(id_: str) -> str:
    """Return a checked id of a memory.

    Raises:
        InvalidError: the id cannot be part of a key.
    """
    if not isinstance(id_, str) or not id_ or id_ == "-" or _CONTROL.search(id_) or _NOT_IN_IDS.search(id_):
        raise InvalidError("id", id_, "give a text without blanks, braces, quotes and backslashes")
    if len(id_.encode()) > _LONGEST_ID_BYTES:
        raise InvalidError("id", id_, f"keep it within {_LONGEST_ID_BYTES} bytes")
    return id_


def check_text(field: str, text: str) -> None:
    """Reject a text that is too long or cannot be encoded.

    Raises:
        InvalidError: the text is invalid.
    """
    # A fast check for nearly all texts: no character takes more than four bytes.
    try:
        if text.isascii() and len(text) <= LONGEST_TEXT_BYTES:
            return
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidError(field, text, "it holds half a character (a lone surrogate)") from None
    if size > LONGEST_TEXT_BYTES:
        advice = f"it takes {size} bytes, a memory may take {LONGEST_TEXT_BYTES} (1 MiB); split it up"
        raise InvalidError(field, text, advice)


def check_label(field: str, value: str) -> None:
    """Reject a name that cannot be used in a filter.

    Raises:
        InvalidError: the name is empty, too long, or has control characters or blanks at its ends.
    """
    if not value or value != value.strip() or _CONTROL.search(value):
        raise InvalidError(field, value, "give a text without control characters, and without blanks at its ends")
    if len(value) > _LONGEST_LABEL_BYTES or len(value.encode()) > _LONGEST_LABEL_BYTES:
        raise InvalidError(field, value, f"keep it within {_LONGEST_LABEL_BYTES} bytes")


def check_thread(thread: str) -> None:
    """Reject an invalid name of a thread.

    Raises:
        InvalidError: as `check_label`; also braces.
    """
    check_label("thread_id", thread)
    if _BRACES.search(thread) or len(thread.encode()) > LONGEST_THREAD_BYTES:
        raise InvalidError("thread_id", thread, f"leave out braces, and keep it within {LONGEST_THREAD_BYTES} bytes")


def thread_in(within: MemoryFilter, thread_id: str | None) -> str:
    """Return the caller's thread, the thread that a scope is narrowed to, or `main`.

    Raises:
        InvalidError: the thread is invalid.
    """
    if thread_id is not None:
        if not isinstance(thread_id, str):
            raise InvalidError("thread_id", thread_id, "give a text")
        check_thread(thread_id)
        return thread_id
    return within.thread_id if isinstance(within.thread_id, str) else "main"


def narrow(access: MemoryAccess, given: Mapping[str, str | None]) -> MemoryFilter:
    """Return the scope of a caller narrowed to further values; None leaves a field as it is.

    Raises:
        InvalidError: a value is invalid.
        AccessDeniedError: the scope is narrowed to another value already.
    """
    chosen = {name: _check_scope_value(name, value) for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        held = getattr(access.within, name)
        if held is not None and held != value:
            advice = f"these memories are narrowed to {name} {held!r}; narrow store.memory instead"
            raise AccessDeniedError(access.scope.identity.name, f"{name}={value}", "read", advice)
    return access.within.model_copy(update=chosen)


def _check_scope_value(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidError(name, value, "give a text")
    if name == "thread_id":
        check_thread(value)
    check_label(name, value)
    return value


def _check_labels(field: str, values: Sequence[str]) -> None:
    if len(values) > MOST_LABELS:
        raise InvalidError(field, f"{len(values)} of them", f"give at most {MOST_LABELS}")
    for value in values:
        check_label(field, value)


def _check_messages(item: MemoryItem) -> None:
    for message in item.messages:
        check_text("messages.content", message.content)
        check_json("messages.metadata", message.metadata)
        if message.embedding is not None and not all(map(isfinite, message.embedding)):
            raise InvalidError("messages.embedding", "...", "give finite numbers")
    if item.author is not None:
        check_label("messages.name", item.author)


def check_json(field: str, value: object) -> None:
    """Reject a value that would change in a round trip through JSON.

    Raises:
        InvalidError: the value is not JSON.
    """
    if not _is_json(value, _DEEPEST):
        raise InvalidError(
            field, value, "give what JSON can hold: texts, finite numbers, true, false, null, lists, maps"
        )
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        raise InvalidError(field, value, f"it is not JSON: {error}") from None
    if size > LONGEST_TEXT_BYTES:
        raise InvalidError(field, "...", f"keep it within {LONGEST_TEXT_BYTES} bytes (1 MiB)")


def _is_json(value: object, deepest: int) -> bool:
    if value is None or type(value) in {str, int, bool}:
        return True
    if type(value) is float:
        return isfinite(value)
    if not deepest:
        return False
    if type(value) is dict:
        return all(type(key) is str and _is_json(one, deepest - 1) for key, one in value.items())
    return type(value) in {list, tuple} and all(_is_json(one, deepest - 1) for one in value)  # type: ignore[attr-defined]  # mypy does not follow `in`


def check_embedding(numbers: Sequence[float], dimension: int) -> Vector:
    """Return the vector that a caller gives.

    Raises:
        InvalidError: the vector has another length, contains other than finite numbers, or consists of zeros.
    """
    if not dimension:
        raise InvalidError("embedding", "...", "this hub has no embedder, so it keeps no vectors; leave it out")
    vector = check_vector("embedding", numbers, dimension)
    if not vector.any():
        raise InvalidError("embedding", "zeros", "it is near to nothing; leave it out to have it made")
    return vector


def more_important(one: str, other: str) -> str:
    """Return the higher of two importances."""
    return max(one, other, key=_IMPORTANCES.index)


def check_summarize(item: MemoryItem, summarize: bool) -> bool:
    """Return whether an item is to be summarised when it is added.

    Raises:
        InvalidError: the argument is no truth value, or the item has a summary already.
    """
    if not isinstance(summarize, bool):
        raise InvalidError("summarize", summarize, "give True or False")
    if summarize and item.summary:
        raise InvalidError("summarize", summarize, "the item has a summary of its own; leave one of both out")
    return summarize


# -- lifetimes -----------------------------------------------------------------------------------


_FACTORS: dict[Importance, float] = {"low": 0.5, "medium": 1.0, "high": 2.0, "critical": 4.0}
_MOST = 8
"""The longest adapted lifetime, as a multiple of the default one. The shortest is half of it: the lowest factor."""


def default_ttl(memory_type: str, settings: Settings) -> int:
    """Return the lifetime in seconds of a memory of a type without its own; -1 for no end."""
    if memory_type == "short-term":
        return settings.short_term_ttl_s
    return settings.cache_ttl_s if memory_type == "semantic-cache" else settings.long_term_ttl_s


def adapted_ttl(default_s: int, importance: Importance, uses: int) -> int:
    """Return `default_s * factor * (1 + floor(log2(1 + uses)))` seconds, from half to 8 times the default.

    Args:
        default_s: lifetime that the settings give; -1 for no end, which stays.
        importance: its factor is 0.5 for low, 1 for medium, 2 for high, 4 for critical.
        uses: how often searches and `get` have returned the memory.
    """
    if default_s < 0:
        return default_s
    grown = _FACTORS[importance] * (1 + floor(log2(1 + uses)))
    return max(1, round(default_s * min(grown, _MOST)))


def starting_ttl(item: MemoryItem, settings: Settings) -> int:
    """Return the lifetime with which a memory without a lifetime from its caller begins."""
    default_s = default_ttl(item.memory_type, settings)
    return adapted_ttl(default_s, item.importance, 0) if item.adaptive_ttl else default_s
