"""Bases of the generated classes: each wraps an object of the async library and calls it through a portal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.data.values import read_blocking
from sharedmem.errors import UsageError
from sharedmem.hub import Connect
from sharedmem.hub import Hub as AsyncHub
from sharedmem.hub.hub import blocking_connections
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.store import SharedMemoryStore as AsyncStore
from sharedmem.sync.portal import Portal

if TYPE_CHECKING:
    from sharedmem.cache.semantic_cache import CacheDecorator as AsyncDecorator  # noqa: F401  # in quotes below
    from sharedmem.providers.protocol import Embedder, LanguageModel
    from sharedmem.redis.credentials import CredentialProvider

_A = TypeVar("_A")
_F = TypeVar("_F")
_B = TypeVar("_B")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Face(ProcessBound, Generic[_A]):
    """A thing of the async library, made to be used without `await`."""

    def __init__(self, portal: Portal, behind: _A) -> None:
        self._portal = portal
        self._async = behind

    def _entered(self, manager: AbstractAsyncContextManager[_B], face: Callable[[Portal, _B], _F]) -> Iterator[_F]:
        with self._portal.entered(manager) as behind:
            yield face(self._portal, behind)

    def _entered_if_any(
        self, manager: AbstractAsyncContextManager[_B | None], face: Callable[[Portal, _B], _F]
    ) -> Iterator[_F | None]:
        with self._portal.entered(manager) as behind:
            yield None if behind is None else face(self._portal, behind)

    def _ending(self, unsubscribe: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        async def end() -> None:
            await unsubscribe()

        return lambda: self._portal.run(end())

    def __repr__(self) -> str:
        return repr(self._async)


def portal_and_async(face: Face[_A]) -> tuple[Portal, _A]:
    """Return what a thing of the sync face consists of, for packages that add capabilities to it."""
    return face._portal, face._async  # noqa: SLF001  # the same module


class StoreFace(Face[AsyncStore]):
    """A store: a value is read on a connection of the calling threads where possible, else through the event loop."""

    def _read(self, key: str, default: Any = None, *, as_: Any = None) -> Any:
        portal = self._portal
        connections = portal.connections
        if connections is None or not portal.is_open or portal.is_here:
            return portal.run(self._async.read(key, default, as_=as_))
        value = read_blocking(self._async, key, connections.call, default, as_)
        if value is not NotImplemented:
            return value
        with connections.read_elsewhere():
            return portal.run(self._async.read(key, default, as_=as_))


class CacheDecorator(Face["AsyncDecorator"]):
    """Makes functions that read a cache first; made by `SemanticCache.cached`."""

    def __call__(self, fn: Callable[_P, _R]) -> Callable[_P, _R]:
        """The function, called only if the cache has no answer; it runs in a thread of its own."""
        answered = self._async(fn)

        @wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return self._portal.run(answered(*args, **kwargs))

        return call


class _BlockingHub(AsyncHub):
    """The hub behind the portal; its advice is for callers without `await`."""

    _opening = "with Hub.open() as hub"


class HubFace(Face[AsyncHub]):
    """A hub that is opened with `with`, and has a thread of its own while it is open."""

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
        credentials: CredentialProvider | None = None,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
    ) -> None:
        behind = _BlockingHub(
            url,
            settings=settings,
            clock=clock,
            connect=connect,
            credentials=credentials,
            embedder=embedder,
            model=model,
        )
        super().__init__(Portal(), behind)

    def close(self) -> None:
        """Give everything back; calls under way in other threads fail. A closed hub may be closed again."""
        if not self._portal.is_open:
            return
        try:
            connections, self._portal.connections = self._portal.connections, None
            if connections is not None:
                connections.close()
            self._portal.run(self._async.close())
        finally:
            self._portal.close()

    def _store(self, namespace: str | None, *, near_cache: bool, **terms: Any) -> AsyncStore:
        if not near_cache or self._portal.is_here:
            return self._async.store(namespace, near_cache=near_cache, **terms)

        # The copies, and the connection that invalidates them, belong to the loop.
        async def opened() -> AsyncStore:
            return self._async.store(namespace, near_cache=True, **terms)

        return self._portal.run(opened())

    def __enter__(self) -> Self:
        if self._portal.is_open:
            raise UsageError("this hub", "it is open already; open another one")
        self._portal.open()
        try:
            self._portal.run(self._async.__aenter__())
            self._portal.connections = blocking_connections(self._async)
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
