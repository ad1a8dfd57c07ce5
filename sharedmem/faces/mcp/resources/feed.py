"""The change feed as a client of the protocol follows it: which addresses have changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from sharedmem.errors import InvalidError, SharedMemoryError, UnavailableError
from sharedmem.faces.mcp.resources.uris import ResourceUri
from sharedmem.models import Change, Gap
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import Background, BackgroundTask
from sharedmem.runtime.backoff import backoff
from sharedmem.store import SharedMemoryStore

Listener = Callable[[ServerEvent], None]
_CONVERSATION, _MEMORY = "conversation.", "memory."
# Changes of a resource after which the same ones are there as before.
_SAME_ONES = frozenset({"memory.updated", "memory.merged", "memory.extended", "memory.embedded"})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_logger = get_logger("mcp")


class WatchedResources:
    """The addresses that one subscriber watches, by what the change feed calls them.

    Args:
        store: the namespace as the subscriber sees it.
        listener: receives an event for each address that has changed.
        watches_list: whether it receives an event too when resources are created or deleted.
    """

    def __init__(self, store: SharedMemoryStore, listener: Listener, *, watches_list: bool = False) -> None:
        self._store = store
        self.listener = listener
        self._watches_list = watches_list
        self._by_key: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._by_thread: defaultdict[str, set[str]] = defaultdict(set)
        self._all: dict[str, None] = {}

    def add(self, uri: ResourceUri, address: str) -> None:
        """Watch an address.

        Args:
            uri: its parts.
            address: as the client wrote it.

        Raises:
            InvalidError: it is in another namespace, whose changes are on another feed.
            AccessDeniedError: the subscriber may not read it.
        """
        for kind, key in self._keys_of(uri):
            self._by_key[kind, key].add(address)
        if uri.kind == "thread":
            self._by_thread[uri.name].add(address)
        self._all[address] = None

    def discard(self, address: str) -> None:
        """Stop watching an address, if it is watched."""
        for addresses in (*self._by_key.values(), *self._by_thread.values()):
            addresses.discard(address)
        self._all.pop(address, None)

    def __len__(self) -> int:
        return len(self._all)

    async def tell(self, change: Change) -> None:
        """Notify the listener of a change. A round trip for a memory if threads are watched."""
        if isinstance(change, Gap) or change.operation == "clear":
            self._tell(self._all)
            self._tell_list()
            return
        kind = next((each for each in (_CONVERSATION, _MEMORY) if change.operation.startswith(each)), "")
        self._tell(self._by_key.get((kind, change.key), ()))
        if kind == _MEMORY and any(self._by_thread.values()):
            thread = await self._thread_of(change.key.rpartition(":")[2])
            self._tell(self._by_thread.get(thread or "", ()))
        if change.operation not in _SAME_ONES:
            self._tell_list()

    def _tell(self, addresses: Iterable[str]) -> None:
        for address in list(addresses):
            self.listener(ResourceUpdated(uri=address))

    def _tell_list(self) -> None:
        if self._watches_list:
            self.listener(ResourcesListChanged())

    def _keys_of(self, uri: ResourceUri) -> list[tuple[str, str]]:
        namespace = self._store.namespace
        if uri.kind == "memory":
            return [(_MEMORY, f"{namespace}:$memory:{uri.name}")]
        try:
            key = self._store.shared.access.absolute(uri.name)
        except InvalidError:
            if uri.kind == "value":
                raise
            return []  # a thread of memories, whose id is no key
        home, _, rest = key.partition(":")
        if home != namespace:
            if uri.kind == "value":
                raise InvalidError("uri", str(uri), f"changes of namespace {namespace!r} can be followed, no others")
            return []
        return [("", key) if uri.kind == "value" else (_CONVERSATION, f"{namespace}:$conversation:{rest}")]

    async def _thread_of(self, id_: str) -> str | None:
        item = await self._store.memory.get(id_)
        if item is None:
            versions = await self._store.memory.history(id_)
            item = versions[0].item if versions else None
        return None if item is None else item.thread_id


class ResourceFeed:
    """Follows the changes of a namespace for the subscribers of one caller, while there are any.

    Args:
        store: the namespace as the caller sees it.
        background: follows the feed.
    """

    def __init__(self, store: SharedMemoryStore, background: Background) -> None:
        self._store = store
        self._background = background
        self._watchers: dict[WatchedResources, None] = {}
        self._task: BackgroundTask | None = None
        self._starting = asyncio.Lock()

    async def join(self, watcher: WatchedResources) -> None:
        """Tell a subscriber of all changes from now on. One round trip if it is the first one.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        async with self._starting:
            if self._task is None or self._task.done:
                self._task = self._background.start("follow resources", self._follow(await self._store.cursor()))
            self._watchers[watcher] = None

    @property
    def is_idle(self) -> bool:
        """Whether there are no subscribers."""
        return not self._watchers

    def leave(self, watcher: WatchedResources) -> None:
        """Tell a subscriber nothing more; stop following after the last one."""
        self._watchers.pop(watcher, None)
        if not self._watchers and self._task is not None:
            task, self._task = self._task, None
            self._background.start_cleanup("stop following resources", task.stop())

    async def _follow(self, cursor: str) -> None:
        pauses = backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                async for change in self._store.watch("*", since=cursor):
                    for watcher in list(self._watchers):
                        await watcher.tell(change)
                    cursor = change.cursor
                    pauses = backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            except UnavailableError as error:
                _logger.warning("resources of %s: %s", self._store.namespace, error)
            except SharedMemoryError as error:
                _logger.warning("resources of %s are not followed any more: %s", self._store.namespace, error)
                return
            await asyncio.sleep(next(pauses))
