"""The format of each service key, the signs that another client has written there, and the remedies.

One table for all: the errors about damaged keys and `sharedmem doctor` use it.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from types import TracebackType
from typing import NamedTuple, TypeAlias

from sharedmem.errors import CorruptionError
from sharedmem.redis.replies import Command, Reply

ReadCommands: TypeAlias = Callable[[Sequence[Command]], Awaitable[list[Reply]]]
"""A function that sends reading commands and returns their replies in order."""

_PART = re.compile(rb"[^{]*\{[^}]*\}:\$([a-z.]+)")
_RECORD = re.compile(rb"[^{]*:\$(memory|cache|graph|note):\{[^}]*\}:")
_NAMED = re.compile(rb"DAMAGED (\d+) ")
_SAMPLED = 500
"""Members of a key that are checked: all of most keys, the ends of others."""
_HIGHEST = 2**53
# The exceptions of parsing bytes that sharedmem has not written.
_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RecursionError)

_NUMBER, _VERSION = re.compile(rb"-?\d{1,15}"), re.compile(rb"\d{16}")
_AGAIN = "delete it: its holders and waiters request it again"
_TASKS = "delete it, and put its tasks again"
_SESSION = "forget the session, or delete the key; the durable tier can restore its data (`sharedmem restore`)"
_RECORDS = "delete it; the durable tier or an archive can restore it (`sharedmem restore`, `sharedmem import`)"
_COMPARED = "delete it; `sharedmem durable verify` shows what the durable tier lacks"
_STATE = re.compile(rb"missing|cached|expires|kept|ephemeral|loading \S+|[a-z]+ \d+ \d+ [a-z] \d+")
_CONVERSATION = "delete the conversation (`store.conversations.delete`), or the key"
_SUMS = "delete it: it counts from zero again"


class KeyFormat(NamedTuple):
    """The format of a service key."""

    types: tuple[str, ...]
    remedy: str
    text: re.Pattern[bytes] | None = None
    """Pattern of a string, and of each value of a hash without a pattern in `fields`."""
    fields: Mapping[bytes, re.Pattern[bytes]] = {}
    required: frozenset[bytes] = frozenset()
    """Required fields of a hash."""
    items: re.Pattern[bytes] | None = None
    """Pattern of each item of a list."""


def _formats(remedy: str, **types: str) -> dict[str, KeyFormat]:
    return {name: KeyFormat((type_,), remedy) for type_, names in types.items() for name in names.split()}


_HEAD_FIELDS = frozenset(
    b"revision updated created by length segment start pinned chain state ttl_ms ends renews user agent app at".split()
)
KEY_FORMATS: Mapping[str, KeyFormat] = {
    "clock": KeyFormat(
        ("string",), "delete it: the next change creates it again", re.compile(rb"\d{16}(?: \d{1,16})?")
    ),
    "changes": KeyFormat(("stream",), "delete it: its readers receive a gap"),
    "split": KeyFormat(("stream",), "delete it: its consumer group loses changes that are not acknowledged"),
    "split.places": KeyFormat(
        ("hash",), "delete it: changes of its consumer group may come again", re.compile(rb"\d+-\d+")
    ),
    "ops": KeyFormat(("hash",), "delete it: only repeats of running calls are affected", re.compile(rb"(?s)\d+ .*")),
    "names": KeyFormat(("zset",), "delete it: the next caller that lists names looks through all keys once"),
    **_formats(
        _COMPARED,
        stream="outbox outbox.dead",
    ),
    "kept": KeyFormat(("hash",), _COMPARED, re.compile(rb"[skl]|whole|(?:joined|provisional) \d+ \d*|\S.* \d+")),
    "kept.state": KeyFormat(("string",), _COMPARED, _STATE),
    **_formats(
        _AGAIN,
        zset="lock lock.waiters semaphore semaphore.waiters rwlock rwlock.waiters leader leader.waiters"
        " barrier presence",
        hash="barrier.opened presence.facts",
        string="memory.tending cache.tending graph.tending note.tending graph.falkor.turn",
    ),
    "limit": KeyFormat(("list", "string"), _SUMS, re.compile(rb"\d+ -?\d+ \d+"), items=re.compile(rb"-?\d+")),
    "once": KeyFormat(
        ("hash",),
        "delete it: the next caller runs the work again",
        fields={
            b"state": re.compile(rb"[a-z]+"),
            b"token": _VERSION,
            b"attempt": _NUMBER,
            b"actor": re.compile(rb"\S+"),
            b"until": re.compile(rb"-?\d{1,16}"),
        },
        required=frozenset({b"state", b"token", b"attempt", b"actor"}),
    ),
    **_formats(
        _TASKS,
        zset="queue.ready queue.delayed queue.claimed queue.dead queue.waiters",
        hash="queue.dedup",
        string="queue.paused queue.result queue.recent",
    ),
    "queue.tasks": KeyFormat(("hash",), _TASKS, re.compile(rb"(?s)-?\d+ \d+ [^ \n]+ [^\n]*\n.*")),
    "queue.claims": KeyFormat(("hash",), _TASKS, re.compile(rb"(?s)\d+ \d+ [^ \n]* [^\n]*\n.*")),
    "queue.counts": KeyFormat(("hash",), _SUMS, _NUMBER),
    **_formats(
        _SESSION,
        list="plan.order execution.finished",
        set="plan.sessions",
        zset="plan.ages episode.sessions episode.endings",
        stream="episode",
    ),
    "plan.duplicates": KeyFormat(("hash",), _SESSION, re.compile(rb"(?s)\d{16} \S+ .*")),
    "plan": KeyFormat(("hash",), _SESSION, re.compile(rb'(?s)\d{16}|\{.*"symbol":.*,"confidence":.*"reasoning":.*\}')),
    "execution": KeyFormat(
        ("hash",), _SESSION, re.compile(rb'(?s)\d{16}|\{.*"state":"[a-z]+","fence":\d+,"attempt":\d+,.*\}')
    ),
    "execution.stats": KeyFormat(("hash",), _SESSION, _NUMBER),
    "plan.refusals": KeyFormat(
        ("list",),
        "delete it: later refusals create it again",
        items=re.compile(rb"\d{16} (?:plan|execution) \d{16} \S+ .*"),
    ),
    "episode.summary": KeyFormat(
        ("string",), "delete it: the session is summarized again", re.compile(rb"(?s)\d{1,16} .*")
    ),
    **_formats(
        _RECORDS,
        zset="memory.log cache.log graph.log note.log memory.turns graph.claims graph.edges graph.told note.ids",
        hash="memory.digests memory.authors cache.digests graph.names graph.merges note.users note.chains",
        list="memory.history",
        string="memory.place cache.place graph.place note.place graph.falkor graph.falkor.ready",
        set="note.apps",
    ),
    "graph.groups": KeyFormat(("hash",), _RECORDS, re.compile(rb"\d{16}|closed \d{16} \S+")),
    "graph.changed": KeyFormat(("zset",), _RECORDS),
    **_formats(
        "delete it: later changes create it again",
        zset="memory.endings memory.pending memory.used memory.touched cache.endings cache.gone",
    ),
    "conversation": KeyFormat(
        ("hash",),
        _CONVERSATION,
        fields={
            **dict.fromkeys((b"revision", b"updated", b"created"), _VERSION),
            **dict.fromkeys((b"length", b"start", b"pinned", b"ttl_ms", b"ends", b"at"), re.compile(rb"\d{1,16}")),
            **dict.fromkeys((b"user", b"agent", b"app", b"parent"), re.compile(rb"(?s).*")),
            b"by": re.compile(rb"\S+"),
            b"state": re.compile(rb"0|\d{16}"),
            b"renews": re.compile(rb"[01]"),
            b"segment": re.compile(rb"[^\n]+"),
            b"chain": re.compile(rb"(?:[^\n]+\n\d+\n\d+\n)*"),
        },
        required=_HEAD_FIELDS,
    ),
    "conversation.log": KeyFormat(("list",), _CONVERSATION, items=re.compile(rb"(?s)\d{16} \S+ \d{0,3}\n.*")),
    "conversation.ids": KeyFormat(("hash",), _CONVERSATION, re.compile(rb"(?s)\d+|..[0-9a-f]+(?: ..[0-9a-f]+)*")),
    "conversation.readers": KeyFormat(("hash",), _CONVERSATION, re.compile(rb"\d{1,16}")),
    **_formats(
        _CONVERSATION,
        hash="conversation.state",
        zset="conversation.index conversation.tags conversation.endings",
    ),
    "om": KeyFormat(("hash", "ReJSON-RL"), "delete it, and save the object again"),
    "memory.stats": KeyFormat(("hash",), _SUMS, re.compile(rb"-?\d{1,15}(?:\.\d+)?")),
    "cache.stats": KeyFormat(("hash",), _SUMS, re.compile(rb"-?\d{1,15}(?:\.\d+)?(?:e[-+]?\d+)?")),
    "graph.stats": KeyFormat(("hash",), _SUMS),
    "note.stats": KeyFormat(("hash",), _SUMS),
}
_RECORD_FORMAT = KeyFormat(("hash",), _RECORDS, fields={b"version": _VERSION}, required=frozenset({b"version"}))
_MEMORY_FORMAT = KeyFormat(
    ("hash",),
    _RECORDS,
    fields={b"version": _VERSION, b"turn": _NUMBER},
    required=frozenset({b"version", b"turn"}),
)
_ANSWER_FORMAT = _RECORD_FORMAT._replace(remedy="delete it: the question is asked again")
_RECORD_FORMATS = {b"memory": _MEMORY_FORMAT, b"cache": _ANSWER_FORMAT}


def format_of(key: bytes) -> KeyFormat | None:
    """Return the format of a key; None for a user's key, or an unknown one."""
    if record := _RECORD.match(key):
        return _RECORD_FORMATS.get(record[1], _RECORD_FORMAT)
    found = _PART.match(key)
    return None if found is None else KEY_FORMATS.get(found[1].decode().rstrip("."))


def damaged_key(error: str) -> bytes | None:
    """Return the key that a script has found to be damaged (`damaged` in `lua/include`), from its error; else None."""
    raw = error.encode(errors="surrogateescape")
    found = _NAMED.search(raw)
    return None if found is None else raw[found.end() : found.end() + int(found[1])]


def corruption_error(key: bytes, problem: str) -> CorruptionError:
    """Return the error for a service key that cannot be read.

    Args:
        key: the physical key.
        problem: the problem.
    """
    form = format_of(key)
    return CorruptionError(key.decode(errors="replace"), problem, _RECORDS if form is None else form.remedy)


def decoding(key: bytes) -> AbstractContextManager[None]:
    """Turn errors in parsing a service key into `CorruptionError`.

    Raises:
        CorruptionError: another client has written there.
    """
    return _Decoding(key)


class _Decoding(AbstractContextManager[None]):
    # A class takes a third of the time of a generator: a read decodes a hundred records.
    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, _DAMAGED):
            raise corruption_error(
                self._key, f"its content cannot be read ({type(error).__name__}: {str(error)[:120]})"
            ) from error


async def find_first_damage(ask: ReadCommands, keys: Iterable[bytes]) -> CorruptionError | None:
    """Return the error of the first of some keys that another client has written to. As `find_damage`."""
    async for error in find_damage(ask, keys):
        return error
    return None


async def find_damage(ask: ReadCommands, keys: Iterable[bytes]) -> AsyncIterator[CorruptionError]:
    """Yield the error of each key that another client has written to. Two round trips, and one for each such key."""
    known = [(key, form) for key in dict.fromkeys(keys) if (form := format_of(key)) is not None]
    types = await ask([("TYPE", key) for key, _ in known]) if known else []
    sound: list[tuple[bytes, KeyFormat, str]] = []
    for (key, form), reply in zip(known, types, strict=True):
        type_ = reply.decode() if isinstance(reply, bytes) else str(reply)
        if type_ in form.types:
            sound.append((key, form, type_))
        elif type_ != "none":
            yield corruption_error(key, f"it is a {type_} and should be a {' or '.join(form.types)}")
    looks = [_inspection_commands(key, form, type_) for key, form, type_ in sound]
    replies = iter(await ask(list(chain.from_iterable(looks))) if any(looks) else [])
    for (key, form, type_), commands in zip(sound, looks, strict=True):
        problem = _problem(form, type_, [next(replies) for _ in commands])
        # A key that was deleted or expired after its type was read has no fields either.
        if problem is not None and await ask([("TYPE", key)]) == [type_.encode()]:
            yield corruption_error(key, problem)


def _inspection_commands(key: bytes, form: KeyFormat, type_: str) -> list[Command]:
    """Return the commands that read the content of a key, as far as its format is known."""
    if type_ == "zset":
        return [("ZRANGE", key, *span, "WITHSCORES") for span in ((0, _SAMPLED), (-_SAMPLED, -1))]
    if form.fields:
        return [("HMGET", key, *form.fields)]
    if form.text is not None and type_ == "hash":
        return [("HSCAN", key, 0, "COUNT", _SAMPLED)]
    if form.items is not None and type_ == "list":
        return [("LRANGE", key, 0, _SAMPLED)]
    return [("GET", key)] if form.text is not None and type_ == "string" else []


def _problem(form: KeyFormat, type_: str, replies: list[Reply]) -> str | None:
    if type_ == "zset":
        flat = [part for reply in replies for part in (reply if isinstance(reply, list) else [])]
        return _problem_of_scores(flat)
    if form.fields:
        values = replies[0] if isinstance(replies[0], list) else []
        lacking = [name for name, value in zip(form.fields, values, strict=True) if value is None]
        if missing := form.required.intersection(lacking):
            return f"it has no field {', '.join(sorted(name.decode() for name in missing))}"
        return next(_mismatches(zip(form.fields, values, form.fields.values(), strict=True)), None)
    if form.items is not None and type_ == "list":
        items = replies[0] if isinstance(replies[0], list) else []
        return next(_mismatches((f"item {at}".encode(), item, form.items) for at, item in enumerate(items)), None)
    if not replies or form.text is None:
        return None
    if type_ == "string":
        return next(_mismatches([(b"value", replies[0], form.text)]), None)
    page = replies[0][1] if isinstance(replies[0], list) else []
    flat = page if isinstance(page, list) else []
    return next(_mismatches((flat[at], flat[at + 1], form.text) for at in range(0, len(flat) - 1, 2)), None)


def _mismatches(rows: Iterable[tuple[Reply, Reply, re.Pattern[bytes]]]) -> Iterator[str]:
    for name, value, pattern in rows:
        if isinstance(value, bytes) and not pattern.fullmatch(value):
            yield f"{name!r} is {value[:40]!r}" if name != b"value" else f"its value is {value[:40]!r}"


def _problem_of_scores(flat: list[Reply]) -> str | None:
    for at in range(0, len(flat) - 1, 2):
        member, score_text = flat[at], flat[at + 1]
        score = float(score_text) if isinstance(score_text, bytes) else math.nan
        if not isinstance(member, bytes) or not abs(score) <= _HIGHEST:
            return f"the score of {member!r} is {score:g}"
        try:
            member.decode()
        except UnicodeDecodeError:
            return f"its member {member[:40]!r} is not a text"
    return None
