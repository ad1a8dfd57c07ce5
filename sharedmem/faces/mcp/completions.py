"""Completion: keys and names for the variables of addresses and the arguments of prompts."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from mcp.server import MCPServer, ServerRequestContext
from mcp_types import CompleteRequestParams, CompleteResult, Completion, PromptReference

from sharedmem.errors import SharedMemoryError
from sharedmem.faces.mcp.callers import Callers
from sharedmem.faces.mcp.options import McpOptions
from sharedmem.faces.mcp.problems import protocol_error
from sharedmem.faces.mcp.tool import ToolCall
from sharedmem.redis.keys import plain_name

_MOST = 100
_MOST_HELD = 1000
_LONGEST_PREFIX = 512
_Names = Callable[[ToolCall, str], AsyncIterator[str]]


async def _keys(call: ToolCall, prefix: str) -> AsyncIterator[str]:
    pattern = f"{call.store.namespace}:shared:{prefix.partition('*')[0].partition('?')[0]}*"
    async for key in call.store.shared.keys(pattern):
        yield plain_name(key, call.store.namespace)


async def _threads(call: ToolCall, prefix: str) -> AsyncIterator[str]:
    del prefix
    page = await call.run("conversation.list", scope="shared", limit=500)
    for one in page.conversations:
        yield plain_name(one.key, call.store.namespace)


async def _memories(call: ToolCall, prefix: str) -> AsyncIterator[str]:
    del prefix
    for item in (await call.run("memory.list", limit=500)).items:
        yield item.id


async def _sessions(call: ToolCall, prefix: str) -> AsyncIterator[str]:
    del prefix
    for name in await call.run("plan.sessions"):
        yield name


async def _queues(call: ToolCall, prefix: str) -> AsyncIterator[str]:
    del prefix
    for name in await call.run("queue.list"):
        yield name


async def _topics(call: ToolCall, prefix: str) -> AsyncIterator[str]:
    """Yield the users and tags that newer memories are about."""
    del prefix
    for item in (await call.run("memory.list", limit=500)).items:
        for name in (*item.tags, item.user_id):
            if name:
                yield name


_NAMES: dict[tuple[str, str], _Names] = {
    ("memory://{id}", "id"): _memories,
    ("thread://{id}", "id"): _threads,
    ("value://{key}", "key"): _keys,
    ("recall_context", "topic"): _topics,
    ("hand_over", "session"): _sessions,
    ("hand_over", "thread"): _threads,
    ("hand_over", "queue"): _queues,
}


def add_completions(server: MCPServer[Any], callers: Callers, options: McpOptions) -> None:
    """Complete names that exist, with the rights of the caller. A completion of the server's own replaces this one."""

    async def complete(context: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> CompleteResult:
        ref = params.ref
        where = ref.name if isinstance(ref, PromptReference) else ref.uri
        names, prefix = _NAMES.get((where, params.argument.name)), params.argument.value
        if names is None or len(prefix) > _LONGEST_PREFIX:
            return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
        caller = callers.of(context)
        call = ToolCall(caller, callers.store(caller), options, None)
        try:
            found = await _first(names(call, prefix), prefix)
        except SharedMemoryError as error:
            raise protocol_error(error) from error
        return CompleteResult(completion=Completion(values=found[:_MOST], has_more=len(found) > _MOST))

    protocol = server._lowlevel_server  # noqa: SLF001  # the package's own way does not say who asks
    protocol.add_request_handler("completion/complete", CompleteRequestParams, complete)


async def _first(names: AsyncIterator[str], prefix: str) -> list[str]:
    """Return the first names that begin so, in their order, and one more if there are more."""
    found: set[str] = set()
    async for name in names:
        if name.startswith(prefix):
            found.add(name)
        if len(found) >= _MOST_HELD:
            found = set(_smallest(found))
    return _smallest(found)


def _smallest(names: Iterable[str]) -> list[str]:
    return heapq.nsmallest(_MOST + 1, names)
