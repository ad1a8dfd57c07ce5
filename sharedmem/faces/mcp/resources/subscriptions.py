"""Subscriptions to resources in both eras of the protocol.

Clients of 2026-07-28 open a stream for them (`subscriptions/listen`). Earlier ones subscribe to one address after the
other, and their session has a stream for all notifications. Both get one notification of an address, however often it
changes before the notification is sent: they read it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ServerEvent
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from sharedmem.errors import InvalidError, LimitedError, UnsupportedError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.mcp.callers import Callers, McpCaller
from sharedmem.faces.mcp.resources.catalog import ResourceCatalog
from sharedmem.faces.mcp.resources.feed import Listener, ResourceFeed, WatchedResources
from sharedmem.runtime.background import Background, BackgroundTask

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
