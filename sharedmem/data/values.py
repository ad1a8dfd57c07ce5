"""Key/value: read and write whole values under versions that are never used twice."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from sharedmem.blobs.blobs import BlobReference
from sharedmem.clock import from_microseconds
from sharedmem.config import Kind
from sharedmem.data.keys import (
    MOST_TRIES,
    REPLY_COLD,
    REPLY_UNKNOWN,
    KeyAccess,
    durability_pending_error,
    restored_in_vain_error,
)
from sharedmem.errors import (
    CorruptionError,
    InternalError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    VersionConflictError,
    WrongTypeError,
)
from sharedmem.models import Entry
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import (
    BLOB,
    FOREIGN,
    StoredValue,
    decode,
    decode_json,
    decode_json_record,
    decode_json_records,
    encode,
    json_header_length,
    parse_record,
)
from sharedmem.redis.durability import KEEP_EXPIRY, UnsettledError
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import LostError, Reply, ServerError
from sharedmem.redis.scripts.data import KeyWrite, ValueScripts, WriteBatcher

if TYPE_CHECKING:
    from sharedmem.redis.near_cache import NearCache


T = TypeVar("T")
D = TypeVar("D")
_READ_AT_ONCE = 200
_RESTORE_AT_ONCE = 32
VALUE = "value"
_ANY = "*"
_NO_VALUE = object()
_ABSENT = ""
_WRITE_AT_ONCE = 1000
_YIELD_EVERY = 64


class BlobReplacedError(VersionConflictError):
    """A large value was replaced while it was read."""


class Values:
    """Reads and writes of whole values."""

    def __init__(self, keys: KeyAccess) -> None:
        context = keys.context
        self._value_keys = keys
        self._near = keys.near
        self._call = context.client.call
        self._blobs = context.blobs
        self._largest = context.settings.blob_threshold_bytes
        self._value_scripts = ValueScripts(context.executor)
        self._writer = WriteBatcher[Space, KeyWrite](self._write_apart, context.background)

    @overload
    async def read(self, key: str, default: Any = None) -> Any: ...
    @overload
    async def read(self, key: str, default: None = None, *, as_: type[T]) -> T | None: ...
    @overload
    async def read(self, key: str, default: D, *, as_: type[T]) -> T | D: ...
    @overload
    async def read(self, key: str, default: Any = None, *, as_: Any) -> Any: ...
    async def read(  # most calls go through here: a further coroutine would show
        self, key: str, default: Any = None, *, as_: Any = None
    ) -> Any:
        """Return the value of a key, or `default` if it does not exist. One round trip.

        Args:
            key: plain (in this store's scope) or absolute.
            default: returned as it is when the key has no value.
            as_: a type that pydantic's `TypeAdapter` accepts: a model, a dataclass, `list[int]`, `int | None`. The
                value is validated and returned as this type. Without it the value is returned as it was stored.

        Raises:
            WrongTypeError: the key holds a list, hash or set, or a value that does not fit `as_`.
            InvalidError: the key is invalid, or pydantic cannot validate `as_`.
            AccessDeniedError, UnavailableError: as `write`.
        """
        if as_ is not None:
            value = await self.read(key, _NO_VALUE)
            return default if value is _NO_VALUE else validated(self._value_keys.scope.to_read(key).key, value, as_)
        access = self._value_keys
        target = access.scope.to_read(key)
        if access.tier is not None and not access.tier.is_joined(target.space.namespace):
            await access.tier.join(target.space.namespace)
        near = self._near
        if near is not None and (body := near.get(target.physical)) is not None:
            if not near.hits % _YIELD_EVERY:
                await asyncio.sleep(0)  # a task that only reads copies would let no invalidation through
            return decode_json(body)
        try:
            raw = await (self._call(b"GET", target.physical) if near is None else self._read_copied(near, target))
        except ServerError as error:
            raise await access.key_error(error, target, VALUE) from error
        if not isinstance(raw, bytes):
            raw = await self._restore_value(target)
            if raw is None:
                return default
        value = decode_json_record(raw)
        if value is not NotImplemented:
            return value
        try:
            return await self._resolved(target, parse_record(raw))
        except BlobReplacedError:
            return await self.read(key, default)

    async def entry(self, key: str) -> Entry | None:
        """Return the value of a key with its version, actor, times and ttl; None if it does not exist. One round trip.

        Raises:
            WrongTypeError, AccessDeniedError, InvalidError, UnavailableError: as `read`.
        """
        target = self._value_keys.scope.to_read(key)
        raw, left_ms = await self._read_with_expiry(target)
        if raw is None:
            return None
        stored = parse_record(raw)
        try:
            value = await self._resolved(target, stored)
        except BlobReplacedError:
            return await self.entry(key)
        return Entry(
            key=target.key,
            value=value,
            version=stored.version,
            actor=stored.actor,
            created=from_microseconds(stored.created) if stored.version else None,
            updated=from_microseconds(stored.version) if stored.version else None,
            ttl=None if left_ms is None else left_ms / 1000,
        )

    @overload
    async def read_many(self, keys: Iterable[str]) -> dict[str, Any]: ...
    @overload
    async def read_many(self, keys: Iterable[str], *, as_: type[T]) -> dict[str, T]: ...
    @overload
    async def read_many(self, keys: Iterable[str], *, as_: Any) -> dict[str, Any]: ...
    async def read_many(self, keys: Iterable[str], *, as_: Any = None) -> dict[str, Any]:
        """Return the values of several keys, by the given names; keys without a value are left out.

        One round trip for 200 keys of a namespace. Keys that hold lists, hashes or sets are left out, too.

        Args:
            keys: plain or absolute.
            as_: the type of every value, as in `read`.

        Raises:
            WrongTypeError: a value does not fit `as_`.
            AccessDeniedError, InvalidError, UnavailableError: as `read`.
        """
        to_read = self._value_keys.scope.to_read
        asked = {key: to_read(key) for key in keys}
        by_namespace: defaultdict[str, list[str]] = defaultdict(list)
        for key, target in asked.items():
            by_namespace[target.space.namespace].append(key)
        found: dict[str, Any] = {}
        for names in by_namespace.values():
            for start in range(0, len(names), _READ_AT_ONCE):
                page = names[start : start + _READ_AT_ONCE]
                found |= await self._read_page(page, [asked[key] for key in page])
        if as_ is not None:
            return {key: validated(target.key, found[key], as_) for key, target in asked.items() if key in found}
        return found if len(by_namespace) == 1 else {key: found[key] for key in asked if key in found}

    async def write(
        self,
        key: str,
        value: object,
        *,
        ttl: float | None = None,
        kind: Kind | str | None = None,
        if_version: int | None = None,
    ) -> int:
        """Write a value under a new version. One round trip, shared with concurrent writes.

        Args:
            key: plain (in this store's scope) or absolute.
            value: JSON-like, bytes, datetimes, UUIDs, Decimals, sets, dataclasses, pydantic models, numpy arrays.
            ttl: seconds to live; None: `kind` decides, then the key rules; without both, the key never expires.
            kind: `ephemeral`, `session` or `knowledge`, which sets the default lifetime.
            if_version: write only if the key has this version; 0: only if it has no value.

        Returns:
            The new version: rising, never used twice, and the server's time of the write in microseconds.

        Raises:
            VersionConflictError: `if_version` was given and the key has another version.
            InvalidError: the key, value, ttl or kind is invalid. Nothing was written.
            WrongTypeError: the key holds a list, hash or set.
            AccessDeniedError: this actor may not write there.
            UnavailableError: the server cannot be reached; the write may or may not have happened.
        """
        access = self._value_keys
        target = access.scope.to_write(key)
        expect = _ANY if if_version is None else _expected_version(if_version)
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        return await self._put(target, value, expect, ttl_ms, access.mode(target, kind))

    @overload
    async def update(
        self,
        key: str,
        fn: Callable[[Any], Awaitable[T]],
        *,
        default: Any = None,
        ttl: float | None = None,
        kind: Kind | str | None = None,
        patience: float = 60.0,
    ) -> T: ...
    @overload
    async def update(
        self,
        key: str,
        fn: Callable[[Any], T],
        *,
        default: Any = None,
        ttl: float | None = None,
        kind: Kind | str | None = None,
        patience: float = 60.0,
    ) -> T: ...
    async def update(
        self,
        key: str,
        fn: Callable[[Any], Awaitable[T] | T],
        *,
        default: Any = None,
        ttl: float | None = None,
        kind: Kind | str | None = None,
        patience: float = 60.0,
    ) -> T:
        """Read, change and write a value; repeat if another client changed it in between.

        Args:
            key: as `write`.
            fn: function or coroutine function; receives a copy of the current value and returns the new one; may be
                called several times.
            default: the value that `fn` receives if the key has none.
            ttl, kind: as `write`; without them an existing expiry stays.
            patience: seconds after which the conflict is raised.

        Returns:
            The value that was written. Two round trips an attempt.

        Raises:
            VersionConflictError: other clients changed the value before each attempt.
            InvalidError: `fn` is not a function, or as `write`.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        if not callable(fn):
            raise InvalidError("fn", fn, "give a function that takes the value and returns the new one")
        access = self._value_keys
        target = access.scope.to_write(key)
        deadline = access.context.clock.monotonic() + patience
        for pause in access.client.pauses():
            try:
                return await self._update_once(target, fn, default, (ttl, kind))
            except VersionConflictError:
                if access.context.clock.monotonic() + pause > deadline:
                    raise
            await access.context.clock.sleep(pause)
        raise AssertionError  # the pauses never end

    async def write_many(
        self, mapping: Mapping[str, object], *, ttl: float | None = None, kind: Kind | str | None = None
    ) -> dict[str, int]:
        """Write several values, atomically within a namespace. One round trip a namespace.

        Args:
            mapping: values by key, at most 1,000 a namespace.
            ttl, kind: as `write`, for each of them.

        Returns:
            The new versions by key.

        Raises:
            InvalidError: a key or value is invalid, or there are too many; nothing was written.
            WrongTypeError: a key holds a list, hash or set; nothing was written to its namespace.
            AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._value_keys
        by_space: defaultdict[Space, dict[str, Target]] = defaultdict(dict)
        for key in mapping:
            target = access.scope.to_write(key)
            by_space[target.space][key] = target
        for space, targets in by_space.items():
            if len(targets) > _WRITE_AT_ONCE:
                advice = (
                    f"an atomic step may write {_WRITE_AT_ONCE} keys of a namespace; split {len(targets)} into several"
                )
                raise InvalidError("mapping", space.namespace, advice)
        coded = {key: encode(value) for key, value in mapping.items()}
        versions: dict[str, int] = {}
        for space, targets in by_space.items():
            records = [
                await self._record(
                    target, coded[key], _ANY, access.lifetimes.ttl_ms(target.key, ttl, kind), access.mode(target, kind)
                )
                for key, target in targets.items()
            ]
            call = self._value_scripts.value_write(space, access.actor, records, together=True)
            replies = (await access.explained(records[0].target, VALUE, call)).split(b"\n")
            for (key, target), reply in sorted(zip(targets.items(), replies, strict=True), key=_refusals_first):
                versions[key] = await self._outcome(target, reply, _ANY)
        return {key: versions[key] for key in mapping}

    async def _read_copied(self, near: NearCache, target: Target) -> Reply:
        """Read a value from the server, and keep a copy of it."""
        physical = target.physical
        token = await near.begin(physical)
        try:
            raw, left_ms = await self._value_keys.client.read_many([("GET", physical), ("PTTL", physical)])
        except BaseException:
            near.drop(physical)
            raise
        if isinstance(raw, bytes):
            near.fill(physical, token, json_header_length(raw), raw, left_ms)
        else:
            near.drop(physical)
        return raw

    def _write_apart(self, space: Space, records: Sequence[KeyWrite]) -> Awaitable[bytes]:
        """Write records of one call, each on its own condition."""
        return self._value_scripts.value_write(space, self._value_keys.actor, records, together=False)

    async def _restore_value(self, target: Target) -> bytes | None:
        """Restore a durable key that is not in Redis, and return its value; None if it does not exist."""
        access = self._value_keys
        for _ in range(MOST_TRIES):
            if not await access.restore(target):
                return None
            raw = await access.explained(target, VALUE, access.client.call("GET", target.physical))
            if isinstance(raw, bytes):
                return raw
        raise restored_in_vain_error(target)

    async def _read_with_expiry(self, target: Target) -> tuple[bytes | None, int | None]:
        """Return (what a key holds, milliseconds until it expires)."""
        access = self._value_keys
        commands = [("GET", target.physical), *access.expiry_commands(target)]
        await access.ensure_joined(target)
        for _ in range(MOST_TRIES):
            raw, *life = await access.explained(target, VALUE, access.client.read_many(commands))
            if self._near is not None:
                self._near.compare(target.physical, raw)
            if isinstance(raw, bytes):
                return raw, access.remaining_ms(target, life)
            if not await access.restore(target):
                return None, None
        raise restored_in_vain_error(target)

    async def _resolved(self, target: Target, stored: StoredValue) -> Any:
        if stored.codec != BLOB:
            return stored.value(target.key)
        try:
            reference = BlobReference.model_validate_json(stored.body)
        except ValueError as error:
            problem = "the reference to its large value cannot be read"
            raise CorruptionError(target.key, problem, "write() it anew, or delete it") from error
        try:
            body = await self._blobs.get(target.key, reference)
        except NotFoundError:
            await self._check_unchanged(target, stored)
            raise
        return decode(reference.codec.encode(), body, key=target.key)

    async def _check_unchanged(self, target: Target, stored: StoredValue) -> None:
        """Raise if the value was replaced since it was read: its blob is deleted, and there is a new one to read."""
        access = self._value_keys
        raw = await access.explained(target, VALUE, access.client.call("GET", target.physical))
        current = parse_record(raw).version if isinstance(raw, bytes) else 0
        if current != stored.version:
            raise BlobReplacedError(target.key, stored.version, current)

    async def _read_page(self, keys: list[str], targets: list[Target]) -> dict[str, Any]:
        replies = await self._read_raw(targets)
        if None not in replies and (values := decode_json_records(cast("list[bytes]", replies))) is not None:
            return dict(zip(keys, values, strict=True))
        found: dict[str, Any] = {}
        for key, target, raw in zip(keys, targets, replies, strict=True):
            if not isinstance(raw, bytes):
                continue
            value = decode_json_record(raw)
            try:
                found[key] = await self._resolved(target, parse_record(raw)) if value is NotImplemented else value
            except BlobReplacedError:
                found |= await self._read_page([key], [target])
        return found

    async def _read_raw(self, targets: list[Target]) -> list[Reply]:
        """Return the raw values of keys of one namespace; restore durable keys that are missing, some at a time."""
        access = self._value_keys
        await access.ensure_joined(targets[0])
        call = access.client.call("MGET", *[target.physical for target in targets])
        replies = as_list(await access.explained(targets[0], VALUE, call))
        if self._near is not None:
            for target, raw in zip(targets, replies, strict=True):
                self._near.compare(target.physical, raw)
        absent = [at for at, raw in enumerate(replies) if raw is None] if access.tier else []
        for first in range(0, len(absent), _RESTORE_AT_ONCE):
            page = absent[first : first + _RESTORE_AT_ONCE]
            for at, raw in zip(page, await self._restore_values([targets[at] for at in page]), strict=True):
                replies[at] = raw
        return replies

    async def _restore_values(self, targets: list[Target]) -> list[bytes | None]:
        return await asyncio.gather(*(self._restore_unless_wrong_type(target) for target in targets))

    async def _restore_unless_wrong_type(self, target: Target) -> bytes | None:
        try:
            return await self._restore_value(target)
        except WrongTypeError:
            return None

    async def _put(self, target: Target, value: object, expect: str, ttl_ms: int, mode: str) -> int:
        coded = encode(value)
        if len(coded[1]) > self._largest:
            return await self._put_blob(target, coded, expect, ttl_ms, mode)
        return await self._put_record(KeyWrite(target, expect, ttl_ms, *coded, mode))

    async def _put_record(self, record: KeyWrite) -> int:
        access = self._value_keys
        target, was_unknown = record.target, False
        for _ in range(MOST_TRIES):
            try:
                reply = await self._writer.put(target.space, record)
            except ServerError as error:
                raise await access.key_error(error, target, VALUE) from error
            except UnsettledError as error:
                raise durability_pending_error(target, error) from error.cause
            if reply.isdigit():
                return int(reply)
            if reply not in {REPLY_COLD, REPLY_UNKNOWN} or access.tier is None:
                return await self._outcome(target, reply, record.expect)
            was_unknown = await access.prepare_repeat(target, record.mode, reply, was_unknown=was_unknown)
        raise restored_in_vain_error(target)

    async def _put_blob(self, target: Target, coded: tuple[bytes, bytes], expect: str, ttl_ms: int, mode: str) -> int:
        record = await self._record(target, coded, expect, ttl_ms, mode)
        try:
            return await self._put_record(record)
        except (VersionConflictError, WrongTypeError):
            await self._blobs.remove(target.key, BlobReference.model_validate_json(record.body).path)
            raise

    async def _record(
        self, target: Target, coded: tuple[bytes, bytes], expect: str, ttl_ms: int, mode: str
    ) -> KeyWrite:
        codec, body = coded
        if len(body) > self._largest:
            reference = await self._blobs.put(target.key, codec, body)
            self._value_keys.context.blob_gc.watch(target.space.namespace)
            codec, body = BLOB, reference.model_dump_json().encode()
        return KeyWrite(target, expect, ttl_ms, codec, body, mode)

    async def _outcome(self, target: Target, reply: bytes, expect: str) -> int:
        """Return the version in a reply line, or raise the error in it."""
        access = self._value_keys
        word, _, rest = reply.partition(b" ")
        if word.isdigit():
            if rest:
                await access.remove_blob(target, rest)
            return int(word)
        text = rest.decode()
        if word == b"C":
            expected, current = (int(word) if word.isdigit() else 0 for word in (expect, text))
            raise VersionConflictError(target.key, expected, current, is_unversioned=text == FOREIGN)
        if word == b"T":
            raise WrongTypeError(target.key, text, VALUE)
        if word == b"E" and "OOM" in text:
            why = "it is out of memory (maxmemory); delete keys, give them a ttl, or raise maxmemory"
            raise UnavailableError(f"Redis at {access.client.address}", why)
        raise InternalError(f"writing {target.key!r} returned {reply!r}")

    async def _update_once(
        self,
        target: Target,
        fn: Callable[[Any], Awaitable[T] | T],
        default: Any,
        life: tuple[float | None, Kind | str | None],
    ) -> T:
        access = self._value_keys
        raw = await access.ask(target, VALUE, "GET", target.physical)
        if self._near is not None:
            self._near.compare(target.physical, raw)
        stored = parse_record(raw) if isinstance(raw, bytes) else None
        made = fn(default if stored is None else await self._resolved(target, stored))
        value = cast("T", await made if inspect.isawaitable(made) else made)
        stays = stored is not None and life == (None, None)
        ttl_ms = KEEP_EXPIRY if stays else access.lifetimes.ttl_ms(target.key, *life)
        mode = access.mode(target, life[1])
        await self._put(target, value, stored.expectation if stored else _ABSENT, ttl_ms, mode)
        return value


def read_blocking(values: Values, key: str, call: Callable[[bytes, bytes], Reply], default: Any, as_: Any) -> Any:
    """Return a value as `Values.read` does, without an event loop; `NotImplemented` if only `Values.read` can.

    Args:
        values: the store.
        key: as in `Values.read`.
        call: sends a command and waits for its reply.
        default: as in `Values.read`.
        as_: as in `Values.read`.

    Raises:
        WrongTypeError, InvalidError, AccessDeniedError: as `Values.read`.
    """
    access = values._value_keys  # noqa: SLF001  # the same module
    target = access.scope.to_read(key)
    tier = access.tier
    if values._near is not None or (tier is not None and not tier.is_joined(target.space.namespace)):  # noqa: SLF001
        return NotImplemented
    try:
        raw = call(b"GET", target.physical)
    except (LostError, ServerError):
        return NotImplemented
    if not isinstance(raw, bytes):
        return default if tier is None else NotImplemented
    value = decode_json_record(raw)
    return value if as_ is None or value is NotImplemented else validated(target.key, value, as_)


def _expected_version(if_version: int) -> str:
    if isinstance(if_version, bool) or not isinstance(if_version, int) or if_version < 0:
        raise InvalidError("if_version", if_version, "give a version that a write or read returned, or 0 for no value")
    return str(if_version) if if_version else _ABSENT


def _refusals_first(answered: tuple[tuple[str, Target], bytes]) -> bool:
    # Among refused records, some are only there because another one stopped all of them.
    return answered[1][:1] != b"T"


# -- values as the type that the caller requests -------------------------------------------------


_CACHED_ADAPTERS = 256
_MOST_PROBLEMS = 3


def validated(key: str, value: object, as_: Any) -> Any:
    """Validate a value and return it as an instance of a type.

    Args:
        key: the absolute key that holds the value, for the error.
        value: the value that was read. A model is stored under its field names, so these are accepted beside aliases.
        as_: a type that `TypeAdapter` accepts.

    Raises:
        WrongTypeError: the value does not fit the type; the cause is pydantic's `ValidationError`.
        InvalidError: pydantic cannot validate this type.
    """
    adapter = _adapter_for(as_)
    try:
        return adapter.validate_python(value, by_alias=True, by_name=True)
    except ValidationError as error:
        wanted = as_.__name__ if isinstance(as_, type) else repr(as_)
        held = f"value that does not fit ({_describe_problems(error)})"
        raise WrongTypeError(key, held, wanted, advice="read it without as_ to see it, or write it anew") from error
    except PydanticUserError as error:  # the type refers to an undefined type
        raise _refusal(as_, error) from error


def _adapter_for(as_: Any) -> TypeAdapter[Any]:
    try:
        hash(as_)
    except TypeError:  # Annotated with a list, for example
        return _new_adapter(as_, "")
    # Equal types can differ: int | str == str | int, but pydantic tries the members in order.
    return _cached_adapter(as_, repr(as_))


def _new_adapter(as_: Any, _spelling: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(as_)
    except (PydanticUserError, SchemaError, SyntaxError, NameError, TypeError) as error:
        raise _refusal(as_, error) from error


_cached_adapter = lru_cache(_CACHED_ADAPTERS)(_new_adapter)


def _refusal(as_: Any, error: Exception) -> InvalidError:
    problem = str(error).partition("\n")[0]
    return InvalidError("as_", as_, f"give a type that pydantic's TypeAdapter takes: {problem}")


def _describe_problems(error: ValidationError) -> str:
    """Return where the value does not fit, without quoting it: an error may be logged, and a value may be a secret."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" if problem["loc"] else problem["msg"]
        for problem in problems[:_MOST_PROBLEMS]
    ]
    more = len(problems) - len(shown)
    return "; ".join([*shown, f"{more} more"] if more else shown)
