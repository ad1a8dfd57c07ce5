"""One page of a list, as the service returns it."""

from __future__ import annotations

from typing import Generic, TypeVar

from sharedmem.models import Record

T = TypeVar("T")


class ListPage(Record, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None
    """Give it as `cursor` to read the next page; None after the last one."""
    total: int | None = None
    """How many there are on all pages, where the service counts them."""
