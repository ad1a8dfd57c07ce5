"""Objects by redis-om: read models of a store's records (extra `om`).

    from sharedmem import om

    Memory = om.models(store).Memory
    newest = await Memory.find(Memory.user_id == "ada").sort_by("-timestamp").page(0, 20)

It takes stores of `sharedmem` and of `sharedmem.sync`; calls on the latter return results instead of awaitables.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from sharedmem.errors import UnsupportedError
from sharedmem.store import require_memory

if TYPE_CHECKING:
    from sharedmem.om.read_models import Models
    from sharedmem.store import SharedMemoryStore
    from sharedmem.sync import SharedMemoryStore as BlockingStore

__all__ = ["models"]

_EXTRA = "om"


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
    from sharedmem.om.callers import called_store  # noqa: PLC0415  # redis-om takes half a second to load
    from sharedmem.om.read_models import Models  # noqa: PLC0415  # likewise

    return Models(called_store(store))


def _require_redis_om() -> None:
    require_memory("models of redis-om", _EXTRA)
    if find_spec("aredis_om") is None:
        raise UnsupportedError("models of redis-om", f"pip install 'sharedmem-hub[{_EXTRA}]'")
