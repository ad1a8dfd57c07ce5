"""Sessions of the OpenAI Agents SDK on sharedmem. Needs the extra `openai-agents`.

Nothing here needs a search module of the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

from sharedmem.conversations.arguments import check_tags, checked_ttl_ms
from sharedmem.conversations.entries import MOST_ENTRIES
from sharedmem.errors import CorruptionError, InvalidError, NotFoundError, UnsupportedError, VersionConflictError

try:
    from agents import SessionSettings, TResponseInputItem
except ModuleNotFoundError as error:
    raise UnsupportedError("Sessions of the OpenAI Agents SDK", "pip install 'sharedmem-hub[openai-agents]'") from error

from sharedmem.integrations.calls import reach
from sharedmem.models import ConversationPage
from sharedmem.redis.codec import encode_set_member
from sharedmem.redis.keys import check_key
from sharedmem.runtime.concurrency import settled
from sharedmem.store import SharedMemoryStore
from sharedmem.sync import SharedMemoryStore as BlockingStore

_T = TypeVar("_T")
_USUAL, _MOST = 128, 10_000
"""Items of the first read, which most sessions are smaller than, and of the next ones."""
_SHORTEST_RANDOM_ID = 20
"""Shorter ids of items may be constants: adapters of other model services set `__fake_id__`, tests `1`."""


class SharedMemSession:
    """Keeps the items of a session of the OpenAI Agents SDK in a store.

    A session is the conversation `<namespace>:<scope>:openai-agents:<id>` of the store (`store.conversations`): rights,
    the durable tier, archives and the change feed hold for it. Each change is one atomic step and one round trip, so
    processes on one session lose nothing of each other. A change that was begun ends before a cancellation is raised.

    Items are stored as they are. An item with an `id` of 20 characters or more, as those of OpenAI are, is stored once:
    adding an equal one again changes nothing. Other items, such as messages of users, are stored each time.

    Args:
        session_id: any text; quoted, it must fit into a key.
        store: an async store (made where its event loop runs), or one of `sharedmem.sync`.
        session_settings: of the SDK: `limit` is the number of items that `get_items` returns by default.
        ttl: seconds until the session expires, counted anew whenever items are read or added; None: it does not.
        tags: any of `user`, `agent` and `app`, by which `store.conversations` lists and erases sessions.

    Raises:
        InvalidError: an argument is invalid.
        UsageError: an async store is passed outside of its event loop.
    """

    def __init__(
        self,
        session_id: str,
        store: SharedMemoryStore | BlockingStore,
        *,
        session_settings: SessionSettings | None = None,
        ttl: float | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        parts, behind, self._calls = reach(store)
        checked_ttl_ms(ttl)
        check_tags(tags)
        self.session_id = session_id
        self.session_settings = session_settings
        self.conversation_id = _conversation_id(f"{behind.namespace}:{parts.scope.identity.scope}", session_id)
        """The id of the conversation in `store.conversations`: there it can be forked, listed and given a state."""
        self._conversations = behind.conversations
        self._ttl, self._tags = ttl, tags

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest items, oldest first. One round trip; two for more than 128 items.

        Args:
            limit: most items; None: the limit of the settings, or else all items.

        Raises:
            CorruptionError: another client has added an entry that is no item.
            AccessDeniedError, UnavailableError: as `store.conversations.read`.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit <= 0:
            return []
        return _items(self.conversation_id, await self._calls.awaited(self._newest(limit)))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end. One atomic step and one round trip for each 1,000.

        Raises:
            InvalidError: an item cannot be stored.
            AccessDeniedError: this actor may not write there.
            UnavailableError: the server cannot be reached; the items may or may not have been added.
        """
        for first in range(0, len(items), MOST_ENTRIES):
            batch = items[first : first + MOST_ENTRIES]
            await self._changed(
                self._conversations.append(
                    self.conversation_id,
                    batch,
                    entry_ids=_entry_ids(batch),
                    ttl=self._ttl,
                    renew=self._ttl is not None,
                    tags=self._tags,
                )
            )

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; an empty session returns None. One round trip.

        Raises:
            CorruptionError, AccessDeniedError, UnavailableError: as `get_items`.
        """
        popped = await self._changed(self._conversations.pop(self.conversation_id))
        items = _items(self.conversation_id, [entry.value for entry in popped.entries])
        return items[0] if items else None

    async def clear_session(self) -> None:
        """Delete the session, with its tags and the state that others have given it. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `add_items`.
        """
        await self._changed(self._conversations.delete(self.conversation_id))

    async def _changed(self, change: Coroutine[Any, Any, _T]) -> _T:
        return await settled(self._calls.awaited(change))

    async def _newest(self, limit: int | None) -> list[Any]:
        """Return the values of the newest entries; None: of all."""
        read, id_ = self._conversations.read, self.conversation_id
        page = await read(id_, last=min(limit or _USUAL, _MOST))
        if limit is None and page.first > 0:
            page = await read(id_, last=_MOST)
        missing = page.first if limit is None else min(page.first, limit - len(page.entries))
        older: list[Any] = []
        if missing > 0:
            older = await self._before(page, missing)
        return [*older, *(entry.value for entry in page.entries)]

    async def _before(self, page: ConversationPage, count: int) -> list[Any]:
        """Return the values of the last so many entries before a page, as far as they are still there."""
        found: list[Any] = []
        end, after = page.entries[0].cursor, None
        while True:
            older = await self._conversations.read(self.conversation_id, after=after, limit=_MOST)
            values = [entry.value for entry in older.entries if entry.cursor < end]
            found += values
            if len(values) < len(older.entries) or not older.has_more:
                return found[-count:]
            after = older.cursor

    # -- what the SDK's OpenAIResponsesCompactionSession calls where it is there

    async def _get_compaction_snapshot(self, limit: int) -> _CompactionSnapshot | None:
        """Return the newest items, and how to replace the last of them unless the session has changed meanwhile."""
        if type(self) is not SharedMemSession:
            return None  # it may transform items
        page: ConversationPage = await self._calls.awaited(
            self._conversations.read(self.conversation_id, last=min(limit, _MOST - 1) + 1)
        )
        extra = max(len(page.entries) - limit, 0)
        entries = page.entries[extra:]

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            if start >= len(entries):
                return False
            at = extra + start
            return await self._replaced(page.entries[at - 1].cursor if at else None, output, page.revision)

        items = _items(self.conversation_id, [entry.value for entry in entries])
        return _CompactionSnapshot(items, page.first + extra == 0, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one step; return False where the SDK has to clear and add."""
        if type(self) is not SharedMemSession or len(items) > MOST_ENTRIES:
            return False
        return await self._replaced(None, items, None)

    async def _replaced(self, after: str | None, items: Sequence[TResponseInputItem], revision: int | None) -> bool:
        replacement = self._conversations.replace_suffix(
            self.conversation_id, after, items, entry_ids=_entry_ids(items), if_revision=revision
        )
        try:
            await self._changed(replacement)
        except (NotFoundError, VersionConflictError):
            return False
        return True

    def __repr__(self) -> str:
        return f"<SharedMemSession {self.conversation_id}>"


@dataclass(frozen=True, slots=True)
class _CompactionSnapshot:
    """The newest items of a session; the SDK reads it by the names of its fields."""

    items: list[TResponseInputItem]
    complete: bool
    """Whether there are no older ones."""
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]
    """Replaces the items from a position on; False if the session has changed, and then nothing is replaced."""


def _conversation_id(scope: str, session_id: str) -> str:
    if not isinstance(session_id, str) or not session_id:
        raise InvalidError("session_id", session_id, "give a non-empty text")
    try:
        # Any text is one part of a key, and no two texts are the same one.
        return check_key(f"{scope}:openai-agents:{quote(session_id, safe='')}")
    except (InvalidError, UnicodeEncodeError) as error:
        advice = "leave out lone surrogates, and keep it short: quoted, it is part of a key of at most 512 bytes"
        raise InvalidError("session_id", session_id, advice) from error


def _items(conversation: str, values: list[Any]) -> list[TResponseInputItem]:
    if not all(isinstance(value, dict) for value in values):
        problem = "it has an entry that is no item of a session"
        raise CorruptionError(conversation, problem, "pop that entry by store.conversations, or clear the session")
    return values


def _entry_ids(items: Sequence[TResponseInputItem]) -> list[str] | None:
    """Return an id for each item, so that equal ones are stored once; None if that holds for none of them."""
    ids = [_entry_id(item) for item in items]
    return [id_ or str(uuid4()) for id_ in ids] if any(ids) else None


def _entry_id(item: object) -> str | None:
    # The whole content counts: an item that was changed is another one.
    id_ = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(id_, str) or len(id_) < _SHORTEST_RANDOM_ID:
        return None
    return str(UUID(bytes=hashlib.sha256(encode_set_member(item)).digest()[:16]))
