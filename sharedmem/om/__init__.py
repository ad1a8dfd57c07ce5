"""Objects by redis-om: read models of a store's records, and models of your own in its namespace (extra `om`).

    from sharedmem import om

    Memory = om.models(store).Memory
    newest = await Memory.find(Memory.user_id == "ada").sort_by("-timestamp").page(0, 20)

    Ticket = om.bind(store, Ticket)  # a JsonModel or HashModel
    await Ticket(title="The crane is out of order").save()

Both take stores of `sharedmem` and of `sharedmem.sync`; calls on the latter return results instead of awaitables.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sharedmem.errors import UnsupportedError
from sharedmem.store import require_memory

if TYPE_CHECKING:
    from sharedmem.om.read_models import Models
    from sharedmem.store import SharedMemoryStore
    from sharedmem.sync import SharedMemoryStore as BlockingStore

__all__ = ["bind", "models"]

_EXTRA = "om"


def bind(
    store: SharedMemoryStore | BlockingStore, model: type[Any], *, scope: str | None = None, ttl: float | None = None
) -> Any:
    """Return a subclass of a model of redis-om whose objects are in the store's namespace.

    An object is stored in the scope of the store, as a plain key is: its actor's, or the shared one. Its calls are
    steps of the store: rights are checked, each change is on the change feed (`om.save`, `om.delete`), and
    `usage` and `clear` of the namespace include it. No round trip.

    Args:
        store: of `sharedmem` for a model of `aredis_om`, of `sharedmem.sync` for one of `redis_om`.
        model: a `JsonModel` or `HashModel` with `index=True`.
        scope: another actor's scope, whose objects the store may read and, with a grant, write.
        ttl: seconds after which an object expires that was not saved again; None for never.

    Raises:
        InvalidError: the model is not such a class, or of the other package; its name or an argument is invalid.
        UnsupportedError: the extra `om` is missing, or the server lacks what the model needs.
    """
    _require_redis_om()
    from sharedmem.om.bound_models import bind_to  # noqa: PLC0415  # redis-om takes half a second to load
    from sharedmem.om.query import called_store  # noqa: PLC0415  # likewise

    return bind_to(called_store(store), model, scope=scope, ttl=ttl)


def models(store: SharedMemoryStore | BlockingStore) -> Models:
    """Return the read models of a store: `Memory`, `CachedAnswer`, `Note`, `Entity`, `Fact`, `Plan`, `Episode`.

    A model finds the records of the store's namespace that the store may read, and changes none: `save`, `update` and
    `delete` raise an error with the call of the store to use instead. No round trip.

    Args:
        store: of `sharedmem`, or of `sharedmem.sync`.

    Raises:
        UnsupportedError: the extra `om` is missing.
    """
    _require_redis_om()
    from sharedmem.om.query import called_store  # noqa: PLC0415  # redis-om takes half a second to load
    from sharedmem.om.read_models import Models  # noqa: PLC0415  # likewise

    return Models(called_store(store))


def _require_redis_om() -> None:
    require_memory("models of redis-om", _EXTRA)
    if find_spec("aredis_om") is None:
        raise UnsupportedError("models of redis-om", f"pip install 'sharedmem-hub[{_EXTRA}]'")
