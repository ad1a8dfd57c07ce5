"""Resources: memories, threads and shared values under addresses; list them in pages, and read one, as callers may."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self, get_args
from urllib.parse import quote, unquote

from mcp_types import (
    Annotations,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, SharedMemoryError
from sharedmem.faces.bodies import json_bytes
from sharedmem.faces.mcp.coordination_tools import read_value
from sharedmem.faces.mcp.memory_tools import Memory, get_memory, memory_view, title_of
from sharedmem.faces.mcp.options import McpOptions, Profile
from sharedmem.faces.mcp.pages import cut_text, fit, tokens_of
from sharedmem.faces.mcp.tool import ToolCall
from sharedmem.models import ConversationEntry, Record
from sharedmem.redis.keys import plain_name

_JSON = "application/json"
_PAGE = 50
_MOST_ENTRIES = 100
_MOST_HELD = 1000
_TEMPLATES: dict[ResourceKind, tuple[str, str]] = {
    "memory": ("memory://{id}", "A memory: its text, tags and version."),
    "thread": ("thread://{id}", "A conversation: its newest entries, and what is remembered of it."),
    "value": ("value://{key}", "A value that the agents of a team share, with its version."),
}
_Listed = tuple[list[Resource], str | None]


class ThreadEntry(Record):
    """An entry of a conversation."""

    actor: str
    at: datetime
    content: Any
    is_cut: bool | None = None
    """True if only the beginning of the content is shown, as JSON text."""


class ThreadContent(Record):
    """A conversation, and what is remembered of it."""

    id: str
    entries: list[ThreadEntry]
    """The newest entries, oldest first."""
    earlier_entries: int = 0
    """How many entries came before them."""
    memories: list[Memory]
    """The newest memories of the thread, newest first."""


class ResourceCatalog:
    """The resources of a namespace.

    Args:
        options: which profiles are offered, and how long answers may be.
    """

    def __init__(self, options: McpOptions) -> None:
        self._kinds = [kind for kind in KINDS if PROFILE_OF[kind] in options.tools]
        self._pages: Mapping[ResourceKind, Callable[[ToolCall, str | None], Awaitable[_Listed]]] = {
            "memory": _memories,
            "thread": _threads,
            "value": _values,
        }

    def offers(self, uri: str) -> ResourceUri | None:
        """Return the parts of an address; None if it is not one of this catalog.

        Raises:
            InvalidError: it has a scheme of this catalog, and is invalid.
        """
        found = ResourceUri.parse(uri)
        return found if found is not None and found.kind in self._kinds else None

    def is_empty(self) -> bool:
        """Return whether the profiles have no resources."""
        return not self._kinds

    def templates(self) -> ListResourceTemplatesResult:
        """Return the forms of the addresses."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(uri_template=form, name=kind, description=text, mime_type=_JSON)
                for kind, (form, text) in _TEMPLATES.items()
                if kind in self._kinds
            ]
        )

    async def page(self, call: ToolCall, cursor: str | None) -> ListResourcesResult:
        """Return a page of what there is: threads, newest first; values by name; memories, newest first.

        Args:
            call: the caller.
            cursor: of the page before; None for the first page.

        Raises:
            InvalidError: the cursor is invalid.
            AccessDeniedError, UnavailableError: as the operations that list them.
        """
        kind, _, at = cursor.partition(".") if cursor else (self._kinds[0], "", "")
        if kind not in self._kinds:
            raise InvalidError("cursor", cursor, "give the nextCursor of the page before, or none for the first page")
        found: list[Resource] = []
        for each in self._kinds[self._kinds.index(kind) :]:
            if len(found) >= _PAGE:
                return ListResourcesResult(resources=found, next_cursor=f"{each}.")
            part, behind = await self._pages[each](call, (at or None) if each == kind else None)
            found += part
            if behind:
                return ListResourcesResult(resources=found, next_cursor=f"{each}.{behind}")
        return ListResourcesResult(resources=found)

    async def read(self, call: ToolCall, uri: ResourceUri, address: str) -> ReadResourceResult:
        """Return a resource as JSON, no longer than an answer may be.

        Args:
            call: the caller.
            uri: what to read.
            address: as the client wrote it.

        Raises:
            NotFoundError: there is no such thing in the namespace of the caller.
            InvalidError, AccessDeniedError, UnavailableError: as the operations that read it.
        """
        readers: dict[ResourceKind, Callable[[ToolCall, str], Awaitable[Record]]] = {
            "memory": get_memory,
            "thread": read_thread,
            "value": read_value,
        }
        found = (await readers[uri.kind](call, uri.name)).model_dump(mode="json", exclude_none=True)
        text = json_bytes(found).decode()
        return ReadResourceResult(contents=[TextResourceContents(uri=address, mime_type=_JSON, text=text)])


async def read_thread(ctx: ToolCall, id: str) -> ThreadContent:  # noqa: A002  # as in the address
    """Return the newest entries of a conversation, and the newest memories of the thread with this id.

    Raises:
        NotFoundError: there is no such conversation, and nothing is remembered of such a thread.
        AccessDeniedError, InvalidError: the id is a key that the caller may not read, or is invalid.
    """
    budget = ctx.options.max_tokens // 2
    problem: SharedMemoryError | None = None
    entries: list[ConversationEntry] = []
    length = 0
    try:
        page = await ctx.run("conversation.read", shared=True, id=id, last=_MOST_ENTRIES)
        entries, length = page.entries, page.length
    except (InvalidError, AccessDeniedError) as error:
        problem = error  # memories may belong to a thread whose id is no key
    newest = [_entry_view(entry, budget // 2) for entry in reversed(entries)]
    shown = newest[: fit(newest, tokens=budget)][::-1]
    memories = [memory_view(ctx, item) for item in await ctx.run("memory.recent", thread_id=id, limit=_PAGE)]
    if not entries and not memories:
        raise problem or NotFoundError("thread", id, "nothing was said or remembered under this id in this namespace")
    return ThreadContent(
        id=id,
        entries=shown,
        earlier_entries=length - len(shown),
        memories=memories[: fit(memories, tokens=budget)],
    )


def _entry_view(entry: ConversationEntry, tokens: int) -> ThreadEntry:
    if tokens_of(entry.value) <= tokens:
        return ThreadEntry(actor=entry.actor, at=entry.at, content=entry.value)
    text = entry.value if isinstance(entry.value, str) else json_bytes(entry.value).decode()
    return ThreadEntry(actor=entry.actor, at=entry.at, content=cut_text(text, tokens=tokens), is_cut=True)


async def _memories(call: ToolCall, cursor: str | None) -> _Listed:
    page = await call.run("memory.list", limit=_PAGE, cursor=cursor)
    found = [_resource("memory", item.id, title=title_of(item), updated=item.timestamp) for item in page.items]
    return found, page.cursor


async def _threads(call: ToolCall, cursor: str | None) -> _Listed:
    page = await call.run("conversation.list", scope="shared", limit=_PAGE, cursor=cursor)
    found = [
        _resource("thread", plain_name(one.key, call.store.namespace), updated=one.updated)
        for one in page.conversations
    ]
    return found, page.cursor


async def _values(call: ToolCall, cursor: str | None) -> _Listed:
    """Return the next names in their order. Redis has keys in no order: all of the scope are read, few are held."""
    names: list[str] = []
    async for key in call.store.shared.keys(f"{call.store.namespace}:shared:*"):
        if (name := plain_name(key, call.store.namespace)) > (cursor or ""):
            names.append(name)
        if len(names) >= _MOST_HELD:
            names = heapq.nsmallest(_PAGE + 1, names)
    names = heapq.nsmallest(_PAGE + 1, names)
    behind = names[_PAGE - 1] if len(names) > _PAGE else None
    return [_resource("value", name) for name in names[:_PAGE]], behind


def _resource(kind: ResourceKind, name: str, *, title: str = "", updated: datetime | None = None) -> Resource:
    noted = None if updated is None else Annotations(last_modified=updated.isoformat())
    return Resource(
        uri=str(ResourceUri(kind, name)), name=name, title=title or None, mime_type=_JSON, annotations=noted
    )


# -- addresses ------------------------------------------------------------------------------------


ResourceKind = Literal["thread", "value", "memory"]
KINDS: tuple[ResourceKind, ...] = get_args(ResourceKind)
PROFILE_OF: dict[ResourceKind, Profile] = {"memory": "memory", "thread": "memory", "value": "coordination"}
"""The profile whose tools work on the same data."""
_LONGEST = 4096


@dataclass(frozen=True)
class ResourceUri:
    """The address of a resource."""

    kind: ResourceKind
    name: str
    """The id of a memory or thread, or a key; not percent-encoded."""

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        """Return the parts of an address; None if it has another scheme.

        Raises:
            InvalidError: it names nothing, or is too long.
        """
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in KINDS:
            return None
        name = unquote(rest)
        if not name or len(uri) > _LONGEST:
            raise InvalidError("uri", uri[:80], f"give {scheme}:// and a name of up to {_LONGEST} characters in all")
        return cls(scheme, name)

    def __str__(self) -> str:
        return f"{self.kind}://{quote(self.name, safe=':@!$,;')}"
