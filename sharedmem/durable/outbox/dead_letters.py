"""Dead letters: changes that the durable store rejected for good, until they are replayed or discarded."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence

from sharedmem.clock import from_microseconds
from sharedmem.durable.outbox.stream import OutboxEntry, OutboxStream, SettledEntry, parse_documents
from sharedmem.errors import InvalidError
from sharedmem.models import DeadLetter

_PAGE = 200
_ID = re.compile(r"\d+-\d+")
# Another client may have written an entry with any id.
_LATEST_US = 253_402_300_799_000_000


class DeadLetters:
    """The dead letters of each namespace.

    Args:
        stream_of: the outbox of a namespace.
    """

    def __init__(self, stream_of: Callable[[str], OutboxStream]) -> None:
        self._stream_of = stream_of

    async def list(self, namespace: str, *, limit: int = 100) -> list[DeadLetter]:
        """Return the oldest dead letters. One round trip.

        Args:
            namespace: the namespace.
            limit: most results.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        return [_parse_letter(namespace, entry) for entry in await self._stream_of(namespace).dead_letters(limit)]

    async def replay(self, namespace: str) -> int:
        """Move all of them back to the outbox, oldest first, each at most once; return their number.

        Raises:
            UnavailableError, AccessDeniedError: as `list`; letters that were not moved stay.
        """
        stream = self._stream_of(namespace)
        moved = 0
        async for page in _pages(stream):
            moved += await stream.replay([entry.id.decode() for entry in page])
        return moved

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters, so that the store never gets them; return their number.

        Args:
            namespace: the namespace.
            ids: ids of dead letters; None: all.

        Raises:
            InvalidError: an id is invalid.
            UnavailableError, AccessDeniedError: as `list`.
        """
        stream = self._stream_of(namespace)
        wanted = None if ids is None else set(map(_check_id, ids))
        gone = 0
        async for page in _pages(stream):
            chosen = [entry for entry in page if wanted is None or entry.id.decode() in wanted]
            gone += await stream.settle_dead_letters([_discarded_entry(namespace, entry) for entry in chosen])
        return gone


async def _pages(stream: OutboxStream) -> AsyncIterator[list[OutboxEntry]]:
    """Yield the present dead letters page by page, without documents that are rejected during the iteration."""
    left = await stream.dead_length()
    after = "-"
    while left > 0 and (page := await stream.dead_letters(min(_PAGE, left), after=after)):
        left -= len(page)
        after = f"({page[-1].id.decode()}"
        yield page


def _fields_of(entry: OutboxEntry) -> dict[bytes, bytes]:
    return dict(zip(entry.fields[::2], entry.fields[1::2], strict=False))


def _parse_letter(namespace: str, entry: OutboxEntry) -> DeadLetter:
    named = _fields_of(entry)
    name, body = named.get(b"name", b""), named.get(b"body", b"")
    record = parse_documents([name, body], namespace)[0].record
    return DeadLetter(
        id=entry.id.decode(),
        namespace=namespace,
        key=record.key if record else "",
        element=record.element if record else "",
        type=record.type if record else "",
        stamp=record.stamp if record else 0,
        reason=named.get(b"reason", b"").decode(errors="replace"),
        at=from_microseconds(min(entry.at_ms * 1000, _LATEST_US)),
        name=name.decode(errors="replace"),
        size=len(body),
    )


def _discarded_entry(namespace: str, entry: OutboxEntry) -> SettledEntry:
    """Return a dead letter as settled, so that its key no longer waits for it."""
    named = _fields_of(entry)
    record = parse_documents([named.get(b"name", b""), named.get(b"body", b"")], namespace)[0].record
    return SettledEntry(entry.id, [record] if record else [], [])


def _check_id(id_: str) -> str:
    if not isinstance(id_, str) or not _ID.fullmatch(id_):
        raise InvalidError("id", id_, "give the id of a dead letter, such as 1795245066123-0")
    return id_
