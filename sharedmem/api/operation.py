"""One row of the table of operations: a request goes to a store; a reply or a stream of replies comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sharedmem.models import Record
from sharedmem.redis.scope import Need
from sharedmem.store import SharedMemoryStore

Request = TypeVar("Request", bound=Record)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Operation(Generic[Request, Answer]):
    """One call with one answer."""

    name: str
    """`<noun>.<verb>`, the same on every face."""
    summary: str
    needs: Need
    """What the actor must be allowed to do with the keys concerned."""
    takes: type[Request]
    gives: object
    """The type of the answer, for schemas."""
    run: Callable[[SharedMemoryStore, Request], Awaitable[Answer]]


@dataclass(frozen=True)
class FeedOperation(Generic[Request, Answer]):
    """One call that goes on answering until its caller leaves."""

    name: str
    summary: str
    needs: Need
    takes: type[Request]
    gives: object
    """The type of the answer, for schemas."""
    run: Callable[[SharedMemoryStore, Request], AsyncIterator[Answer]]
