"""The objects of one model in one scope of a namespace: stored, read and deleted with the rights of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from sharedmem.context import HubContext
from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.om import library
from sharedmem.om.library import UserModel
from sharedmem.redis.keys import OBJECTS, Target, check_name, escape_glob
from sharedmem.redis.lifetimes import NO_EXPIRY, check_ttl_ms
from sharedmem.redis.replies import Command, Reply, ServerError, public_key_error
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.redis.scripts.objects import ObjectScripts, WriteCondition
from sharedmem.redis.service_keys import corruption_error

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
