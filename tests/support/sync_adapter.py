"""The sync face, awaited: each of its calls runs in a thread, so that an async suite can test it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from introspect import way_to_call

from sharedmem.sync.faces import Face
from support.contexts import async_twin_of

_END = object()


class SyncAdapter:
    """An object of the sync face with the manners of its async twin."""

    def __init__(self, face: Any) -> None:
        self._face = face

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._face, name)
        if not inspect.ismethod(found):
            return _wrap_result(found)
        way = way_to_call(getattr(type(async_twin_of(self._face)), name, found))
        if way == "async":
            return lambda *args, **named: _run_in_thread(found, *args, **named)
        if way == "async iterator":
            return lambda *args, **named: _iterate_in_threads(found(*args, **named))
        if way == "async context manager":
            return lambda *args, **named: SyncAdapter(found(*args, **named))
        return lambda *args, **named: _wrap_result(found(*args, **named))

    def __aiter__(self) -> AsyncIterator[Any]:
        return _iterate_in_threads(iter(self._face))

    def __repr__(self) -> str:
        return repr(self._face)

    async def __aenter__(self) -> Any:
        manager: AbstractContextManager[Any] = self._face
        return _wrap_result(await asyncio.to_thread(manager.__enter__))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        manager: AbstractContextManager[Any] = self._face
        return await asyncio.to_thread(manager.__exit__, kind, error, trace)


async def _run_in_thread(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    answer = await asyncio.to_thread(function, *args, **named)
    return (lambda: _run_in_thread(answer)) if callable(answer) else answer


async def _iterate_in_threads(items: Iterator[Any]) -> AsyncIterator[Any]:
    try:
        while (item := await asyncio.to_thread(next, items, _END)) is not _END:
            yield item
    finally:
        await asyncio.to_thread(items.close)  # type: ignore[attr-defined]  # they are generators


def _wrap_result(found: Any) -> Any:
    return SyncAdapter(found) if isinstance(found, Face) else found
