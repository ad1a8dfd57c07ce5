"""`om.bind(store, Model)`: a user's model whose objects are in the store's namespace.

They are stored, read and deleted with the rights of the store, in one scope, and have a search index of their own, made
of the schema that redis-om has for the model. Texts are indexed whole and with their case, whatever separator redis-om
would split them at.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

from sharedmem.context import HubContext
from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, UnavailableError, UnsupportedError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.om import library
from sharedmem.om.expressions import (
    IndexedField,
    IndexedFields,
    IndexedNumber,
    IndexedTag,
    IndexedWords,
    Moment,
    Scalar,
    seconds,
)
from sharedmem.om.library import UserModel
from sharedmem.om.query import BlockingCaller, CalledStore, Caller, IndexOrder, NearestQuery, Query
from sharedmem.providers.embedding import embed_query
from sharedmem.record_family import RecordFamily
from sharedmem.redis.durability import NO_EXPIRY, check_ttl_ms
from sharedmem.redis.keys import OBJECTS, Target, check_name, escape_glob
from sharedmem.redis.replies import Argument, Command, Reply, ServerError, public_error, public_key_error
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.redis.scripts.integrations import ObjectForm, ObjectScripts, WriteCondition
from sharedmem.redis.service_keys import corruption_error
from sharedmem.search.protocol import Every
from sharedmem.search.redisearch.queries import (
    named_distances,
    named_documents,
    named_hits,
    render_filter,
    search_by_filter,
    search_by_vector_field,
    search_documents,
)
from sharedmem.search.redisearch.server import is_missing, parse_index_info
from sharedmem.text.analysis import TAG_SEPARATOR, encode_tag


class ModelBinding(NamedTuple):
    """What connects a bound model with its store."""

    model: UserModel
    objects: ObjectRepository
    source: BoundSource
    caller: Caller


class BoundModel:
    """What a bound model does in place of redis-om: each change is a step of the store, with its rights."""

    _binding: ClassVar[ModelBinding]

    def __init__(self, **values: Any) -> None:
        library.initialize(self, values)

    @classmethod
    def find(cls, *conditions: Any, knn: Any = None) -> Any:
        """Return a query for the objects that meet all conditions; nothing is sent yet."""
        source = cls._binding.source
        query: Query[Any] = Query(source, library.read_expressions(conditions, source.names, source.moment))
        found = query if knn is None else query.nearest_by(library.read_nearest(knn, source.names))
        return cls._binding.caller.query(found)

    @classmethod
    def get(cls, pk: Any) -> Any:
        """Return the object of a key, or raise NotFoundError."""
        return cls._binding.caller.call(cls._binding.objects.get(cls, str(pk)))

    @classmethod
    def delete(cls, pk: Any) -> Any:
        """Delete the object of a key, and return how many there were."""
        return cls._binding.caller.call(cls._binding.objects.delete([str(pk)]))

    @classmethod
    def delete_many(cls, models: Sequence[Any]) -> Any:
        """Delete objects, and return how many there were."""
        keys = [str(getattr(one, cls._binding.model.key)) for one in models]
        return cls._binding.caller.call(cls._binding.objects.delete(keys))

    @classmethod
    def add(cls, models: Sequence[Any]) -> Any:
        """Store objects one after the other, and return them."""
        return cls._binding.caller.call(_save_each(cls._binding.objects, models))

    @classmethod
    def all_pks(cls) -> Any:
        """Return the keys of all objects."""
        return cls._binding.caller.call(_listed(cls._binding.objects.keys()))

    @classmethod
    def make_primary_key(cls, pk: Any) -> str:
        """Return the key in Redis of an object."""
        return cls._binding.objects.target(str(pk), "read").physical.decode()

    def key(self) -> str:
        """Return the key in Redis of this object."""
        return self.make_primary_key(self._own_key())

    def save(self, *, nx: bool = False, xx: bool = False, ttl: float | None = None) -> Any:
        """Store the object; return it, or None if the condition `nx` or `xx` is not met."""
        if nx and xx:
            raise InvalidError("nx", nx, "give either nx or xx")
        condition: WriteCondition = "nx" if nx else "xx" if xx else ""
        return self._binding.caller.call(_save(self._binding.objects, self, condition, ttl))

    def update(self, **values: Any) -> Any:
        """Set fields (`address__city` for one of an embedded model), and store the object."""
        library.set_fields(self, values)
        return self._binding.caller.call(_save(self._binding.objects, self, "", None))

    def expire(self, num_seconds: float) -> Any:
        """Let the object expire after some seconds; return whether it exists."""
        return self._binding.caller.call(self._binding.objects.expire(self._own_key(), num_seconds))

    def expire_field(self, field_name: str, seconds: float) -> Any:
        """Raise UnsupportedError: an object expires as a whole."""
        raise UnsupportedError(
            f"an expiry of {field_name} alone", f"use expire({seconds}), which is for the whole object"
        )

    def _own_key(self) -> str:
        return str(getattr(self, self._binding.model.key))


def bind_to(store: CalledStore, model: Any, *, scope: str | None, ttl: float | None) -> Any:
    """Return a subclass of a model that is bound to a store; see `om.bind`."""
    known = library.read_model(model)
    parts, caller = store
    if known.is_blocking != isinstance(caller, BlockingCaller):
        package, kind = ("redis_om", "sharedmem.sync") if known.is_blocking else ("aredis_om", "sharedmem")
        raise InvalidError("model", known.name, f"it is a model of {package}: bind it to a store of {kind}")
    objects = ObjectRepository(parts.context, parts.scope, known, owner=scope, ttl=ttl)
    bound = library.bind_model(model, BoundModel)
    bound._binding = ModelBinding(known, objects, BoundSource(parts.knowledge(), known, objects, bound), caller)  # noqa: SLF001  # its own class
    return bound


async def _save(objects: ObjectRepository, found: Any, condition: WriteCondition, ttl: float | None) -> Any:
    return found if await objects.save(found, condition=condition, ttl=ttl) else None


async def _save_each(objects: ObjectRepository, models: Sequence[Any]) -> Sequence[Any]:
    for one in models:
        await objects.save(one)
    return models


async def _listed(keys: AsyncIterator[str]) -> list[str]:
    return [key async for key in keys]


# -- queries --------------------------------------------------------------------------------------


_PAUSE_S = 0.02
_LONGEST_BUILD_S = 30.0


class ObjectSearch:
    """The search index of one model in one scope; it is made when it is first searched.

    Args:
        context: what the hub shares with its stores.
        objects: what is indexed.
        schema: of the index.
    """

    def __init__(self, context: KnowledgeContext, objects: ObjectRepository, schema: ObjectSchema) -> None:
        self._context = context
        self._objects = objects
        self._schema = schema
        head = context.keyspace.object_index(objects.namespace)
        rest = objects.home.decode().partition("}:$om:")[2]
        self._name = f"{head}{rest}{schema.digest}"
        self._is_built = False

    async def search(self, query: Sequence[Argument]) -> Reply:
        """Return the reply to a search. One round trip once the index is known to exist.

        Raises:
            UnsupportedError: the server has no query engine.
            AccessDeniedError: this Redis user may not make the index.
            UnavailableError: the server cannot be reached, or the index is only partly built.
        """
        if not self._context.powers.search:
            remedy = self._context.powers.missing.get("search", "use a server with the query engine, such as Redis 8")
            raise UnsupportedError(f"a query for {self._schema.model}", remedy)
        if not self._is_built:
            await self._build()
        try:
            return await self._context.client.call("FT.SEARCH", self._name, *query)
        except ServerError as error:
            if not is_missing(error):
                raise public_error(error, self._context.client.address) from error
        await self._build()
        try:
            return await self._context.client.call("FT.SEARCH", self._name, *query)
        except ServerError as error:
            raise public_error(error, self._context.client.address) from error

    async def _build(self) -> None:
        client = self._context.client
        if not await self._exists():
            await self._make()
        clock = asyncio.get_running_loop()
        deadline = clock.time() + _LONGEST_BUILD_S
        while (facts := parse_index_info(await client.call("FT.INFO", self._name))).indexing:
            if clock.time() > deadline:
                raise UnavailableError(
                    f"search index {self._name}", f"it is partly built ({facts.percent:.0%}); try again"
                )
            await asyncio.sleep(_PAUSE_S)
        self._is_built = True

    async def _exists(self) -> bool:
        try:
            await self._context.client.call("FT.INFO", self._name)
        except ServerError as error:
            if is_missing(error):
                return False
            raise public_error(error, self._context.client.address) from error
        return True

    async def _make(self) -> None:
        client = self._context.client
        try:
            await client.call(*self._schema.creation(self._name, self._objects.home.decode()))
        except AccessDeniedError as error:
            advice = "have a store make it whose Redis user may: one query there is enough"
            raise AccessDeniedError("the Redis user", self._name, "create", advice) from error
        except ServerError as error:
            if "already exists" not in error.text:
                raise public_error(error, client.address) from error


class BoundSource:
    """The objects of a bound model, as `ObjectSource` describes it.

    Args:
        context: what the hub shares with its stores.
        model: what there is to know of the model.
        objects: where its objects are.
        of_class: the bound class.
    """

    def __init__(self, context: KnowledgeContext, model: UserModel, objects: ObjectRepository, of_class: Any) -> None:
        self._context = context
        self._model = model
        self._objects = objects
        self._class = of_class
        self._schema = ObjectSchema(model.name, model.form, model.schema, model.booleans)
        self._search = ObjectSearch(context, objects, self._schema)
        self.fields: IndexedFields = self._schema.indexed(model.paths)
        self.numbers: dict[str, str] = self._schema.numbers
        self.moment: Moment = seconds

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._model.name

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return self._model.fields

    async def enter(self) -> None:
        """Check that the store may read these objects."""
        self._objects.enter()

    async def count(self, filters: Every) -> int:
        """Return how many objects the index finds. One round trip."""
        rendered = render_filter(filters, self._schema.family)
        reply = await self._search.search(search_by_filter(rendered, newest=None, offset=0, limit=0))
        return named_hits(reply, self._objects.home).total

    async def walk(
        self, filters: Every, order: IndexOrder | None, *, offset: int, size: int
    ) -> AsyncIterator[list[Any]]:
        """Yield what the index finds. One round trip a page."""
        rendered = render_filter(filters, self._schema.family)
        newest = order.number if order is not None and order.is_descending else None
        oldest = order.number if order is not None and not order.is_descending else None
        seen: set[str] = set()
        while True:
            query = search_documents(rendered, newest=newest, oldest=oldest, offset=offset, limit=size)
            page, total = named_documents(await self._search.search(query), self._objects.home)
            # An object that changes meanwhile may move behind the page that has shown it.
            yield [self._objects.decoded(self._class, key, fields) for key, fields in page if key not in seen]
            seen.update(key for key, _ in page)
            offset += size
            if offset >= total:
                return

    async def nearest(self, filters: Every, nearest: NearestQuery) -> list[Any]:
        """Return the nearest objects. Two round trips, and what the embedder takes for a text."""
        field = self._schema.vector(nearest.vector)
        vector = await self._packed(field, nearest.to)
        rendered = render_filter(filters, self._schema.family)
        query = search_by_vector_field(field.name, vector, rendered, k=nearest.k)
        distances = named_distances(await self._search.search(query), self._objects.home)
        found = await self._objects.read(self._class, list(distances))
        for one in found if nearest.distance else ():
            setattr(one, nearest.distance, distances[getattr(one, self._model.key)])
        return found

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object."""
        values = {name: getattr(found, name) for name in names or self._model.fields}
        return values if as_dict else library.partial(type(found), values)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change many objects at once."""
        instead = "delete_many(objects)" if call == "delete" else "update(...) of each object"
        return UnsupportedError(f"{call}() of a query for {self._model.name}", f"use {self._model.name}.{instead}")

    async def _packed(self, field: SchemaField, to: str | Sequence[float] | bytes) -> bytes:
        letter, width = ("d", 8) if "FLOAT64" in field.options else ("f", 4)
        dimension = int(field.options[field.options.index("DIM") + 1])
        if isinstance(to, str):
            embedded = await embed_query(self._context.embedder_of(self._objects.namespace), to)
            if embedded.vector is None:
                raise UnavailableError("the embedder", embedded.missing or "it gave no vector")
            packed = _pack(embedded.vector.tolist(), letter)
        else:
            packed = to if isinstance(to, bytes) else _pack(to, letter)
        if len(packed) != width * dimension:
            advice = f"{self._model.name}.{field.name} has {dimension} numbers"
            raise InvalidError("vector", f"{len(packed) // width} numbers", advice)
        return packed


def _pack(numbers: Sequence[float], letter: str) -> bytes:
    try:
        return struct.pack(f"<{len(numbers)}{letter}", *numbers)
    except (struct.error, TypeError, OverflowError):
        raise InvalidError("vector", "...", "give a list of numbers") from None


# -- the index ------------------------------------------------------------------------------------


_PART = re.compile(r"(?:(?P<path>\S+) AS )?(?P<name>\w+) (?P<type>TAG|TEXT|NUMERIC|GEO|VECTOR)\b(?P<options>.*)")
_STARTS = re.compile(r"(?<!\bAS) (?=(?:\$\S* AS )?\w+(?: AS \w+)? (?:TAG|TEXT|NUMERIC|GEO|VECTOR)\b)")
_WORD = re.compile(r"[^\W_]+")
_USUAL_SEPARATOR = "|"


@dataclass(frozen=True)
class SchemaField:
    """One field of the index."""

    path: str
    """Where its values are: the name of a field of the hash, or a JSON path."""
    name: str
    kind: str
    options: tuple[str, ...]
    """Of a number whether it is sortable; of a vector its algorithm and parameters."""


@dataclass(frozen=True)
class ObjectSchema:
    """The index of a model.

    Args:
        model: its name.
        form: how its objects are stored.
        listed: its fields as redis-om writes them, such as `$.status AS status TAG SEPARATOR |`.
        booleans: names of the fields that hold truth values.
    """

    model: str
    form: ObjectForm
    listed: tuple[str, ...]
    booleans: frozenset[str]

    @cached_property
    def parts(self) -> tuple[SchemaField, ...]:
        """The fields of the index.

        Raises:
            InvalidError: redis-om splits a field of the model into several values at a separator of its own.
        """
        return tuple(_parse(part) for text in self.listed if text for part in _STARTS.split(text))

    @cached_property
    def digest(self) -> str:
        """A short name of this schema: another one has another index."""
        text = f"{self.form} {self.creation('', '')}"
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    @cached_property
    def family(self) -> RecordFamily:
        """The fields as conditions name them."""
        return RecordFamily(
            f"model {self.model}",
            tuple(part.name for part in self.parts if part.kind == "TAG"),
            tuple(part.name for part in self.parts if part.kind == "NUMERIC"),
        )

    @cached_property
    def numbers(self) -> dict[str, str]:
        """By field, the number by which the index sorts."""
        return {part.name: part.name for part in self.parts if part.kind == "NUMERIC" and "SORTABLE" in part.options}

    def vector(self, name: str = "") -> SchemaField:
        """Return the field with vectors; without a name the only one.

        Raises:
            UnsupportedError: the model has none, or several and none is named.
        """
        found = [part for part in self.parts if part.kind == "VECTOR" and name in {"", part.name}]
        if len(found) != 1:
            remedy = "give one field `vector_options`, or name the field by `knn=KNNExpression(...)`"
            raise UnsupportedError(f"a query for the nearest {self.model}", remedy)
        return found[0]

    def creation(self, name: str, prefix: str) -> tuple[Argument, ...]:
        """Return the command that makes the index.

        Args:
            name: of the index.
            prefix: of the keys of its objects.
        """
        fields = [word for part in self.parts for word in self._definition(part)]
        return ("FT.CREATE", name, "ON", self.form.upper(), "PREFIX", 1, prefix, "STOPWORDS", 0, "SCHEMA", *fields)

    def indexed(self, names: Iterable[tuple[str, ...]]) -> IndexedFields:
        """Return what the index has of some fields, each given by the names that lead to it."""
        kinds = {part.name: part.kind for part in self.parts}
        found: dict[tuple[str, ...], IndexedField] = {}
        for path in names:
            name = "_".join(path)
            tag = IndexedTag(name, partial(_tag_values, self.form, name in self.booleans))
            if f"{name}_fts" in kinds:
                found[path] = IndexedWords(_query_words, f"{name}_fts", tag)
            elif kinds.get(name) == "TAG":
                found[path] = tag
            elif kinds.get(name) == "NUMERIC":
                found[path] = IndexedNumber(name)
        return found

    def _definition(self, part: SchemaField) -> list[Argument]:
        head: list[Argument] = [part.path, *(("AS", part.name) if part.path != part.name else ()), part.kind]
        if part.kind == "TAG":
            return [*head, *(("SEPARATOR", TAG_SEPARATOR) if self.form == "hash" else ()), "CASESENSITIVE"]
        return [*head, *part.options]


def _parse(text: str) -> SchemaField:
    found = _PART.fullmatch(text.strip())
    if found is None:
        raise InvalidError("model", text, "its index cannot be made; use fields of text, numbers, times and vectors")
    words = found["options"].split()
    if "SEPARATOR" in words and words[words.index("SEPARATOR") + 1 :][:1] not in ([_USUAL_SEPARATOR], []):
        advice = "a text is one value here; use a JsonModel with a list of texts for several"
        raise InvalidError(f"separator of {found['name']}", words[words.index("SEPARATOR") + 1], advice)
    if found["type"] == "GEO":
        raise InvalidError("field", found["name"], "coordinates cannot be indexed here; leave out index=True")
    options = tuple(words) if found["type"] == "VECTOR" else tuple(word for word in words if word == "SORTABLE")
    path = found["path"] or found["name"]
    return SchemaField(path, found["name"], found["type"], options)


def _tag_values(form: ObjectForm, is_boolean: bool, value: Scalar) -> tuple[str, ...] | None:
    """Return how the index has a value; None for one that it has with changes, which this process tests."""
    if is_boolean and isinstance(value, bool):
        return (str(int(value)) if form == "hash" else str(value).lower(),)
    if isinstance(value, str) and not is_boolean and encode_tag(value) == value:
        return (value,)
    return None


def _query_words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.lower() for word in _WORD.findall(text)))


# -- objects in Redis -----------------------------------------------------------------------------


_JSON_PATH = "$"
_ROOT = b"$"
_MOST_DELETED = 500


class ObjectRepository:
    """Stores and reads the objects of one model in one scope of a namespace.

    Args:
        context: what the hub shares with its stores.
        scope: the namespace, and the rights of the actor.
        model: what there is to know of the model.
        owner: the scope in which its objects are; None for that of the store.
        ttl: seconds after which an object expires that was not saved again; None for never.

    Raises:
        InvalidError: the name of the model or the scope cannot be part of a key, or the lifetime is invalid.
    """

    def __init__(
        self, context: HubContext, scope: Scope, model: UserModel, *, owner: str | None, ttl: float | None
    ) -> None:
        self._context = context
        self._scope = scope
        self._model = model
        self._ttl_ms = NO_EXPIRY if ttl is None else check_ttl_ms(ttl)
        self._objects = ObjectScripts(context.executor)
        self._keys = DataScripts(context.executor)
        identity = scope.identity
        self._logical = f"{check_name('scope', owner or identity.scope)}:{check_name('model', model.name)}:"
        self.namespace = identity.namespace
        self.home = context.keyspace.objects(self.namespace, self._logical).encode()
        """What the keys of the objects begin with."""
        if model.form == "json" and not context.powers.json_documents:
            raise UnsupportedError(
                f"the JsonModel {model.name}", context.powers.missing.get("json_documents", "use a HashModel")
            )

    def target(self, key: str, need: Need) -> Target:
        """Return where an object is stored.

        Raises:
            AccessDeniedError: the store may not read it, or write it.
            InvalidError: the key cannot be part of a key in Redis.
        """
        if not isinstance(key, str) or not key:
            raise InvalidError("pk", key, "give a text that is not empty")
        logical = f"{self.namespace}:{self._logical}{key}"
        of_user = self._scope.to_write(logical) if need == "write" else self._scope.to_read(logical)
        return self._context.keyspace.beside(of_user, OBJECTS)

    def enter(self) -> None:
        """Check that the store may read objects of this scope.

        Raises:
            AccessDeniedError: it may not.
        """
        self._scope.to_read(f"{self.namespace}:{self._logical}any")

    async def save(self, found: Any, *, condition: WriteCondition = "", ttl: float | None = None) -> bool:
        """Store an object whole, and return whether the condition was met. One round trip.

        Raises:
            InvalidError: a value does not fit its field, or the lifetime is invalid.
            AccessDeniedError, UnavailableError: as `store.write`.
        """
        target = self.target(str(getattr(found, self._model.key)), "write")
        call = self._objects.object_write(
            target,
            self._scope.signature,
            ttl_ms=self._ttl_ms if ttl is None else check_ttl_ms(ttl),
            condition=condition,
            form=self._model.form,
            content=library.encode_object(found, self._model.form),
        )
        try:
            return await call > 0
        except ServerError as error:
            raise self._public(error, target) from error

    async def get(self, model: Any, key: str) -> Any:
        """Return an object. One round trip.

        Raises:
            NotFoundError: the object does not exist.
            InternalError: it does not fit the model.
            InvalidError, AccessDeniedError, UnavailableError: as `store.read`.
        """
        target = self.target(key, "read")
        found = await self.read(model, [key])
        if not found:
            raise NotFoundError(self._model.name, key, f"there is nothing at {target.key}")
        return found[0]

    async def read(self, model: Any, keys: Sequence[str]) -> list[Any]:
        """Return the objects of some keys that exist, in their order. One round trip."""
        places = [self.home + key.encode() for key in keys]
        commands: list[Command] = [
            ("JSON.GET", place, _JSON_PATH) if self._model.form == "json" else ("HGETALL", place) for place in places
        ]
        replies = await self._context.client.read_each(commands, aside=len(keys) > 1) if commands else []
        return [
            self._decoded(model, key, place, stored)
            for key, place, reply in zip(keys, places, replies, strict=True)
            if (stored := _stored(reply)) is not None
        ]

    async def delete(self, keys: Sequence[str]) -> int:
        """Delete objects, and return how many there were. One round trip for every 500.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `store.delete`.
        """
        places = [self.target(key, "write").physical for key in dict.fromkeys(keys)]
        removed = 0
        for start in range(0, len(places), _MOST_DELETED):
            some = places[start : start + _MOST_DELETED]
            removed += await self._objects.object_delete(self._scope.home, some, self._scope.signature)
        return removed

    async def expire(self, key: str, ttl: float) -> bool:
        """Let an object expire after some seconds; return whether it exists. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `store.expire`.
        """
        target = self.target(key, "write")
        version, _ = await self._keys.key_expire(target, self._scope.signature, ttl_ms=check_ttl_ms(ttl))
        return version > 0

    async def keys(self) -> AsyncIterator[str]:
        """Yield the key of each object, in no order; pages of the server's scan.

        Raises:
            AccessDeniedError, UnavailableError: as `store.keys`.
        """
        self.enter()
        seen: set[bytes] = set()
        pattern = f"{escape_glob(self.home.decode())}*".encode()
        async for page in self._context.client.scan(pattern, near=self._scope.home.clock):
            for place in page:
                if place not in seen:
                    seen.add(place)
                    yield place[len(self.home) :].decode()

    def decoded(self, model: Any, key: str, fields: dict[bytes, bytes]) -> Any:
        """Return the object of a document that a search has found."""
        stored = fields[_ROOT] if self._model.form == "json" else fields
        return self._decoded(model, key, self.home + key.encode(), stored)

    def _decoded(self, model: Any, key: str, place: bytes, stored: dict[bytes, bytes] | bytes) -> Any:
        try:
            return library.decode_object(model, key, stored)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            problem = f"it does not fit the model {self._model.name}: {str(error)[:200]}"
            raise corruption_error(place, problem) from error

    def _public(self, error: ServerError, target: Target) -> Exception:
        held = "another type"
        return public_key_error(error, self._context.client.address, key=target.key, held=held, wanted=self._model.form)


def _stored(reply: Reply) -> dict[bytes, bytes] | bytes | None:
    """Return what a reply holds of an object; None if it does not exist."""
    if isinstance(reply, bytes):
        return reply.removeprefix(b"[").removesuffix(b"]")
    if not isinstance(reply, list) or not reply:
        return None
    parts = [part for part in reply if isinstance(part, bytes)]
    return dict(zip(parts[::2], parts[1::2], strict=True))
