"""Subscriptions to resources in both eras of the protocol, from the change feed.

Clients of 2026-07-28 open a stream for them (`subscriptions/listen`). Earlier ones subscribe to one address after the
other, and their session has a stream for all notifications. Both get one notification of an address, however often it
changes before the notification is sent: they read it again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.connection import Connection
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from sharedmem.errors import InvalidError, LimitedError, SharedMemoryError, UnavailableError, UnsupportedError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.mcp.callers import Callers, McpCaller
from sharedmem.faces.mcp.resources import ResourceCatalog, ResourceUri
from sharedmem.models import Change, Gap
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask, backoff
from sharedmem.store import SharedMemoryStore

_MOST_ADDRESSES = 1000
_MOST_STREAMS = 1024
_STATE = "sharedmem.subscriptions"
_Context = ServerRequestContext[Any, Any]


class _StreamBus:
    """The events of one stream: the events for all callers, and the events of the resources that it watches."""

    def __init__(self, common: InMemorySubscriptionBus) -> None:
        self._common = common
        self._deliver: Listener | None = None

    async def publish(self, event: ServerEvent) -> None:
        """Deliver an event."""
        self.tell(event)

    def tell(self, event: ServerEvent) -> None:
        """Deliver an event; before the stream has begun there is no receiver."""
        if self._deliver is not None:
            self._deliver(event)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Register the stream."""
        self._deliver = listener
        return self._common.subscribe(listener)


class _SessionNotifier:
    """Notifies the client of a session of the earlier revisions of changed addresses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changed: dict[str, None] = {}
        self._arrived = asyncio.Event()

    def __call__(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated):
            self._changed[event.uri] = None
            self._arrived.set()

    async def send(self) -> None:
        """Send notifications without end."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            addresses, self._changed = self._changed, {}
            for address in addresses:
                await self._connection.send_resource_updated(address)


class _SessionSubscriptions:
    """What the session of one client watches."""

    def __init__(self, watcher: WatchedResources, feed: ResourceFeed, sender: BackgroundTask) -> None:
        self.watcher = watcher
        self._feed = feed
        self._sender = sender

    async def close(self) -> None:
        """End with the session."""
        self._feed.leave(self.watcher)
        await self._sender.stop()


class ResourceSubscriptions:
    """Subscriptions of the clients of one service.

    Args:
        callers: finds out who subscribes.
        catalog: the resources.
        background: follows changes and sends notifications.
    """

    def __init__(self, callers: Callers, catalog: ResourceCatalog, background: Background) -> None:
        self.common = InMemorySubscriptionBus()
        """Events that all callers get, such as that tools have changed."""
        self._callers = callers
        self._catalog = catalog
        self._background = background
        self._feeds: dict[Bearer, ResourceFeed] = {}
        self._streams: set[ListenHandler] = set()

    async def listen(self, context: _Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve a stream of events (2026-07-28) until the client leaves.

        Raises:
            InvalidError: an address is invalid, or there are too many.
            LimitedError: this process has too many streams.
            AccessDeniedError, UnavailableError: as `SharedMemoryStore.watch`.
        """
        if len(self._streams) >= _MOST_STREAMS:
            raise LimitedError("streams of subscriptions of this server", 1.0)
        wanted = params.notifications
        caller = self._callers.of(context)
        bus = _StreamBus(self.common)
        watches_list = bool(wanted.resources_list_changed)
        watcher = WatchedResources(self._callers.store(caller), bus.tell, watches_list=watches_list)
        self._watch(watcher, *(wanted.resource_subscriptions or ()))
        feed = self._feed_of(caller) if watches_list or watcher else None
        stream = ListenHandler(bus)
        self._streams.add(stream)
        try:
            # Before the acknowledgement: the client reads after it and then misses no change.
            if feed is not None:
                await feed.join(watcher)
            return await stream(context, params)
        finally:
            self._streams.discard(stream)
            if feed is not None:
                feed.leave(watcher)

    async def subscribe(self, context: _Context, params: SubscribeRequestParams) -> EmptyResult:
        """Notify a session of the earlier revisions of the changes of an address.

        Raises:
            UnsupportedError: without sessions there is nothing that a notification could be sent over.
            InvalidError: the address is invalid, or there are too many.
            AccessDeniedError, UnavailableError: as `SharedMemoryStore.watch`.
        """
        connection = _connection_of(context)
        if not connection.has_standalone_channel or (context.request is not None and connection.session_id is None):
            raise UnsupportedError(
                "a subscription without a session", "use revision 2026-07-28, or a server with sessions"
            )
        held = connection.state.get(_STATE)
        if not isinstance(held, _SessionSubscriptions):
            caller = self._callers.of(context)
            notifier = _SessionNotifier(connection)
            watcher = WatchedResources(self._callers.store(caller), notifier)
            feed = self._feed_of(caller)
            await feed.join(watcher)
            sender = self._background.start("notify of resources", notifier.send())
            held = connection.state[_STATE] = _SessionSubscriptions(watcher, feed, sender)
            connection.exit_stack.push_async_callback(held.close)
        self._watch(held.watcher, params.uri)
        return EmptyResult()

    async def unsubscribe(self, context: _Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Notify a session no more of the changes of an address."""
        held = _connection_of(context).state.get(_STATE)
        if isinstance(held, _SessionSubscriptions):
            held.watcher.discard(params.uri)
        return EmptyResult()

    def end_streams(self) -> None:
        """End all streams with a word: their clients open them again, at this server or another one."""
        for stream in list(self._streams):
            stream.close()

    def _watch(self, watcher: WatchedResources, *addresses: str) -> None:
        if len(watcher) + len(addresses) > _MOST_ADDRESSES:
            raise InvalidError("uri", f"{len(addresses)} addresses", f"subscribe to {_MOST_ADDRESSES} at most")
        for address in addresses:
            # Others are resources that the operator has added to the server; the operator notifies of their changes.
            if (uri := self._catalog.offers(address)) is not None:
                watcher.add(uri, address)

    def _feed_of(self, caller: McpCaller) -> ResourceFeed:
        feed = self._feeds.get(caller.bearer)
        if feed is None:
            self._feeds = {bearer: kept for bearer, kept in self._feeds.items() if not kept.is_idle}
            feed = ResourceFeed(self._callers.store(caller), self._background)
            self._feeds[caller.bearer] = feed
        return feed


def _connection_of(context: _Context) -> Connection:
    return context.session._connection  # noqa: SLF001  # the package has no public way to the connection of a request


# -- the change feed ------------------------------------------------------------------------------


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
