"""Write archived documents into Redis: stage each key, then rename it into place unless a newer one is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sharedmem.archive.endpoint import ArchiveEndpoint, WriteResult
from sharedmem.clock import new_id
from sharedmem.durable.key_loader import SharedDataRestorer
from sharedmem.errors import InvalidError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.errors import public_error
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Command, ServerError
from sharedmem.redis.scripts.durable import LOST, KeyRestoreOptions

_ACTOR = b"archive"
_VALUE = "value"
_STRUCTURES = frozenset({"list", "hash", "set"})
_STAGED = "kept.staged"
_STAGED_MS = 3_600_000
_MOST_KEYS = 200
_MOST_BYTES = 1 << 20
_MOST_TRIES = 5
_OUTCOMES: dict[str, WriteResult] = {"y": "imported", "n": "older", "e": "skipped"}


class _StagedKey(NamedTuple):
    """A key that is ready to take its place."""

    head: DurableRecord
    documents: int
    place: bytes
    ready: bytes
    text: bytes


class RedisWriter:
    """Puts documents into Redis.

    Args:
        endpoint: has the server.
        namespace: where.
        replace: whether structures, counters and strings of other clients give way, which have no version.
        tell: told (head, how many documents, what became of them).
    """

    def __init__(
        self,
        endpoint: ArchiveEndpoint,
        namespace: str,
        *,
        replace: bool,
        tell: Callable[[DurableRecord, int, WriteResult], None],
    ) -> None:
        self._endpoint = endpoint
        self._redis = endpoint.server
        self._space = self._redis.keyspace.space(namespace)
        joined = endpoint.join is not None
        self._terms = KeyRestoreOptions(self._redis.change_log_length, int(replace), int(joined))
        self._tell = tell
        self._restorer = SharedDataRestorer()
        # Several imports may make the same key ready at the same time.
        self._mark, self._number = new_id(), 0
        self._commands: list[Command] = []
        self._waiting: list[_StagedKey] = []
        self._bytes = 0

    async def wants(self, head: DurableRecord) -> bool:
        """Whether a value would be taken, as far as can be known before."""
        start = await self._redis.client.call("TYPE", self._target(head).physical)
        if start != b"string":
            return True
        start = await self._redis.client.call("GETRANGE", self._target(head).physical, 0, 15)
        return not (isinstance(start, bytes) and len(start) == 16 and start.isdigit() and int(start) >= head.version)

    async def elements(self, head: DurableRecord, elements: Sequence[DurableRecord], before: int) -> None:
        """Make some elements ready, behind as many as there are."""
        target = self._target(head)
        (part,) = self._restorer.parts(target, [head, *elements])
        ready = self._ready(target)
        if not before:
            self._commands.append(("UNLINK", ready))
        elif head.type == "list":
            # When the reply is lost, the same is sent again.
            self._commands.append(("LTRIM", ready, 0, before - 1))
        cells = [cell for row in part.rows for cell in row]
        self._commands += [(part.command, ready, *cells), ("PEXPIRE", ready, _STAGED_MS)]
        self._bytes += _total_bytes(cells)
        await self._settle_some()

    async def key(self, head: DurableRecord, documents: int) -> None:
        """All of a key has been told."""
        target = self._target(head)
        place = ready = target.physical
        text = b""
        if head.type in _STRUCTURES and documents == 1:
            self._tell(head, 1, "skipped")  # nothing lies in it
            return
        if head.type in _STRUCTURES:
            ready = self._ready(target)
            if head.type == "list" and head.size < documents - 1:
                self._commands.append(("LTRIM", ready, -head.size, -1))
        else:
            (part,) = self._restorer.parts(target, [head])
            text = _cell_bytes(part.rows[0][0])
        self._number += 1
        self._waiting.append(_StagedKey(head, documents, place, ready, text))
        self._bytes += len(text)
        await self._settle_some()

    async def settle(self) -> None:
        """Put what is ready in its place.

        Raises:
            UnavailableError: the server stayed away, is full, or the namespace is being cleared.
        """
        commands, self._commands = self._commands, []
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        try:
            if commands:
                await self._redis.client.read_many(commands, aside=True)
            letters = await self._restored(waiting) if waiting else ""
        except ServerError as error:
            raise public_error(error, self._redis.client.address) from error
        for one, letter in zip(waiting, letters, strict=True):
            if letter not in _OUTCOMES:
                raise UnavailableError(f"key {one.head.key!r}", "what was made ready for it has expired; run it again")
            self._tell(one.head, one.documents, _OUTCOMES[letter])

    async def _settle_some(self) -> None:
        if self._bytes >= _MOST_BYTES or len(self._waiting) >= _MOST_KEYS or len(self._commands) >= 4 * _MOST_KEYS:
            await self.settle()

    async def _restored(self, waiting: Sequence[_StagedKey]) -> str:
        keys = [key for one in waiting for key in (one.place, one.ready)]
        rows: list[Argument] = []
        for one in waiting:
            rows += (one.head.version if one.head.type == _VALUE else 0, one.head.expires, one.text)
        for _ in range(_MOST_TRIES):
            letters = await self._redis.restore_scripts.key_restore(
                self._redis.owner(self._space), keys, _ACTOR, self._terms, rows
            )
            if letters != LOST:
                return letters
            await self._endpoint.joined(self._space.namespace, again=True)
        raise UnavailableError(
            f"namespace {self._space.namespace!r}",
            "Redis lacks what the durable tier has of it, which cannot be restored now; try again",
        )

    def _target(self, head: DurableRecord) -> Target:
        return self._redis.keyspace.target(head.key)

    def _ready(self, target: Target) -> bytes:
        return self._redis.keyspace.item(target, _STAGED, f"{self._mark}.{self._number}")


def _total_bytes(cells: Sequence[Argument]) -> int:
    return sum(len(cell) for cell in cells if isinstance(cell, bytes | str))


def _cell_bytes(cell: Argument) -> bytes:
    if isinstance(cell, bytes):
        return cell
    raise InvalidError("body", cell, "it is none of a string's")
