"""`om.bind(store, Model)`: a user's model whose objects are in the store's namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, NamedTuple

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.om import library
from sharedmem.om.callers import BlockingCaller, CalledStore, Caller
from sharedmem.om.library import UserModel
from sharedmem.om.object_repository import ObjectRepository
from sharedmem.om.object_source import BoundSource
from sharedmem.om.query import Query
from sharedmem.redis.scripts.objects import WriteCondition


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
