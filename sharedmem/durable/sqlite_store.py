"""A durable store in one SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar

from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.durable import sqlite_rows
from sharedmem.durable.protocol import Scalar, is_user_namespace
from sharedmem.durable.sqlite_file import SqliteFile, SqliteThread, back_up, path_of, transaction, url_of
from sharedmem.errors import UnavailableError, UsageError
from sharedmem.models import Charges, DurableRecord, Outcome, Put

T = TypeVar("T")

_LOCK_TIMEOUT_S = 5.0
_READERS = 2
_PAGE_CHARACTERS = 4_000_000
_LONG_LOG_PAGES = 16_000
_STORED, _OLDER = Put(outcome=Outcome.STORED), Put(outcome=Outcome.OLDER)
# The errors of a bound value that no column can store.
_UNSTORABLE_ERRORS = (OverflowError, UnicodeEncodeError, sqlite3.DataError)


class SqliteDurable:
    """A `Durable` on a local file: WAL, one writing thread, one `fsync` for all puts that wait for it.

    An acknowledged put is on the disk: it survives `kill -9` and a power failure. Other processes may use the file.

    Args:
        path: the file; its folder must exist.
        clock: gives the time of creation; None: the clock of the machine.
        patience_s: seconds to wait while another process writes.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None, patience_s: float = _LOCK_TIMEOUT_S) -> None:
        self._file = SqliteFile(path, patience_s)
        self._clock = clock or SystemClock()
        self._writer: _GroupCommit | None = None
        self._readers: list[SqliteThread] = []
        self._charged = dict.fromkeys(("reads", "writes", "queries"), 0)

    @classmethod
    def at(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Return the store of a `sqlite:///path/file.db`.

        Raises:
            ConfigError: the URL names no absolute path.
        """
        return cls(path_of(url), clock=clock)

    @property
    def url(self) -> str:
        """`sqlite:///path/file.db`."""
        return url_of(self._file.path)

    async def open(self, *, create: bool = True) -> str:
        """Open the file, and create it with mode 0600 if it is missing; return its id.

        Args:
            create: whether to create it.

        Raises:
            NotFoundError: the file is missing, and `create` is false.
            ConfigError: it belongs to another program, or to a newer version of sharedmem.
            UnavailableError: it cannot be opened or written, or its folder is missing.
        """
        await self.close()
        made = self._clock.now().isoformat()
        identity = await asyncio.to_thread(self._file.open, new_id(24), made, create=create)
        self._charged = dict.fromkeys(self._charged, 0)
        self._readers = [SqliteThread(self._file, "sqlite-reader") for _ in range(_READERS)]
        self._writer = _GroupCommit(SqliteThread(self._file, "sqlite-writer"))
        return identity

    async def close(self) -> None:
        """Finish running jobs, and close the file; may be called again."""
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, []
        if writer is not None:
            await writer.close()
        for lane in readers:
            await lane.close()

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """Store each record unless a newer one exists; all in one transaction.

        Puts that arrive during a write share the next transaction. A record that no column can store (an integer beyond
        64 bits, a body of over a gigabyte) is rejected alone.

        Raises:
            UnavailableError: the file cannot be written now; nothing of this put is stored.
        """
        if not records:
            return []
        self._charged["writes"] += len(records)
        return await self._writing().put(records)

    async def get(self, key: str, element: str = "") -> DurableRecord | None:
        """Return one document, tombstones and expired ones included.

        Raises:
            UnavailableError: the file cannot be read now.
        """
        found = await self._read(
            lambda connection: _select(connection, sqlite_rows.ONE, sqlite_rows.place_of(key, element))
        )
        return found[0] if found else None

    async def records(self, key: str) -> list[DurableRecord]:
        """Return all documents of a key, the head first, then by element.

        Raises:
            UnavailableError: the file cannot be read now.
        """
        return await self._read(
            lambda connection: _select(connection, sqlite_rows.ALL_OF_KEY, sqlite_rows.place_of(key)[:2])
        )

    async def query(
        self, namespace: str, *, of_type: str, where: Mapping[str, Scalar] | None = None, limit: int = 100
    ) -> list[DurableRecord]:
        """Return documents of a namespace that are not deleted, newest stamp first.

        It reads documents of the type until it has found enough.

        Args:
            namespace: the namespace.
            of_type: only documents of that type.
            where: fields of the JSON body that must be equal, with dots for inner ones (`address.city`).
            limit: most results, 1 to 1,000.

        Raises:
            InvalidError: a field name has other characters than letters, digits, `_`, dots; or the limit is wrong.
            UnavailableError: the file cannot be read now.
        """
        wanted = dict(where or {})
        statement = sqlite_rows.query(namespace, of_type, wanted, limit)
        self._charged["queries"] += 1
        return await self._reader().run(partial(_select_matching, statement=statement, wanted=wanted, limit=limit))

    async def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        """Yield pages of the documents of a namespace, tombstones included, by key and element.

        Each page is a separate read, so that a slow reader blocks no writer. Concurrent changes may be missing from the
        result.

        Args:
            namespace: the namespace.
            changed_after: only documents with a higher stamp.
            heads_only: without elements.
            after: (key, element) after which to continue.

        Raises:
            UnavailableError: the file cannot be read now.
        """
        position = after or ("", "")
        while page := await self._read(
            partial(_page, namespace=namespace, choice=(changed_after, heads_only), after=position)
        ):
            yield page
            position = page[-1].key, page[-1].element

    async def highest(self, namespace: str) -> int:
        """Return the highest stamp of a namespace; 0 without documents.

        Raises:
            UnavailableError: the file cannot be read now.
        """
        return await self._read(
            lambda connection: int(connection.execute(sqlite_rows.HIGHEST, (namespace,)).fetchone()[0])
        )

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have documents, sorted.

        Raises:
            UnavailableError: the file cannot be read now.
        """
        found = await self._read(lambda connection: [name for (name,) in connection.execute(sqlite_rows.NAMESPACES)])
        return list(filter(is_user_namespace, found))

    async def purge(self, namespace: str, *, now_ms: int, tombstones_before: int) -> int:
        """Delete documents that no reader can see any more; return their number.

        One transaction for about a thousand documents, so that puts run in between.

        Args:
            namespace: the namespace.
            now_ms: milliseconds since 1970: keys that expire then or earlier are expired.
            tombstones_before: tombstones with a lower stamp are deleted.

        Raises:
            UnavailableError: the file cannot be written now; some documents may be deleted.
        """
        values: dict[str, str | int] = {
            "namespace": namespace,
            "now_ms": now_ms,
            "tombstones_before": tombstones_before,
            "first": "",
        }
        removed = 0
        while True:
            end, number = await self._writing().run(partial(_purge_part, values=values))
            removed += number
            if end is None:
                return removed
            values["first"] = end

    async def check(self) -> list[str]:
        """Return the problems of the file, in sentences: damage, rights, a log that cannot be emptied; reads it all."""
        try:
            return await self._reader().run(partial(_problems, file=self._file))
        except UnavailableError as error:
            return [str(error)]

    async def backup(self, path: Path, progress: Callable[[int, int], object] | None = None) -> None:
        """Copy the present store into a new file, with mode 0600, while it is in use.

        Args:
            path: the new file; it replaces an existing one, and is created completely or not at all.
            progress: called with the number of copied pages and of all pages, every four megabytes.

        Raises:
            InvalidError: the path is the file itself.
            UnavailableError: one of the files cannot be used: no space, no access, no folder.
        """
        target = self._file.other(path)
        self._writing()
        loop = asyncio.get_running_loop()

        def report(done: int, pages: int) -> None:
            if progress is not None:
                loop.call_soon_threadsafe(progress, done, pages)

        lane = SqliteThread(self._file, "sqlite-backup")
        try:
            await lane.run(lambda connection: back_up(connection, target, report))
        finally:
            await lane.close()

    def charges(self) -> Charges:
        """Return the requests since it was opened: documents written, reads and queries."""
        return Charges(**self._charged)

    async def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        self._charged["reads"] += 1
        return await self._reader().run(job)

    def _reader(self) -> SqliteThread:
        if not self._readers:
            raise self._closed()
        return min(self._readers, key=lambda lane: lane.waiting)

    def _writing(self) -> _GroupCommit:
        if self._writer is None:
            raise self._closed()
        return self._writer

    def _closed(self) -> UsageError:
        return UsageError(self._file.name, "it is not open; open it first")

    def __repr__(self) -> str:
        return f"<SqliteDurable {self.url}, {'open' if self._writer else 'closed'}>"


class _GroupCommit:
    """Puts that arrive during a write wait together, and share one commit."""

    def __init__(self, lane: SqliteThread) -> None:
        self._lane = lane
        self.run = lane.run
        self._waiting: list[tuple[Sequence[DurableRecord], asyncio.Future[list[Put]]]] = []
        self._work: asyncio.Task[None] | None = None

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        answer: asyncio.Future[list[Put]] = asyncio.get_running_loop().create_future()
        self._waiting.append((records, answer))
        if self._work is None:
            self._work = asyncio.create_task(self._write())
        return await answer

    async def close(self) -> None:
        if self._work is not None:
            await self._work
        await self._lane.close()

    async def _write(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                answers = await self._lane.run(partial(_put_all, group=[records for records, _ in group]))
            except Exception as error:  # noqa: BLE001  # any exception goes to the waiting callers
                _fail_group(group, error)
            else:
                for (_, answer), puts in zip(group, answers, strict=True):
                    _resolve(answer, puts)
        self._work = None


def _fail_group(group: Sequence[tuple[object, asyncio.Future[list[Put]]]], error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)


def _resolve(answer: asyncio.Future[list[Put]], puts: list[Put]) -> None:
    # Its caller may have been cancelled.
    if not answer.done():
        answer.set_result(puts)


# -- jobs of the threads ------------------------------------------------------------------


def _put_all(connection: sqlite3.Connection, group: Sequence[Sequence[DurableRecord]]) -> list[list[Put]]:
    with transaction(connection):
        cursor = connection.cursor()
        puts: list[Put] = []
        every = [record for records in group for record in records]
        for first in range(0, len(every), sqlite_rows.MOST_ROWS):
            puts += _put_some(cursor, every[first : first + sqlite_rows.MOST_ROWS])
    outcomes = iter(puts)
    return [list(islice(outcomes, len(records))) for records in group]


def _put_some(cursor: sqlite3.Cursor, records: Sequence[DurableRecord]) -> list[Put]:
    """Store records with one statement; one by one if one of them is older than its document, or cannot be stored."""
    values = [value for record in records for value in sqlite_rows.row_of(record)]
    with suppress(*_UNSTORABLE_ERRORS):
        if cursor.execute(sqlite_rows.upsert(len(records)), values).rowcount == len(records):
            return [_STORED] * len(records)
    # What the statement has stored by now is stored again, to no effect.
    return [_put(cursor, record) for record in records]


def _put(cursor: sqlite3.Cursor, record: DurableRecord) -> Put:
    try:
        if cursor.execute(sqlite_rows.upsert(1), sqlite_rows.row_of(record)).rowcount:
            return _STORED
    except _UNSTORABLE_ERRORS as error:
        return Put(outcome=Outcome.REFUSED, reason=f"SQLite cannot store it: {error}")
    place = sqlite_rows.place_of(record.key, record.element)
    if record.floor:
        cursor.execute(sqlite_rows.RAISE_FLOOR, (record.floor, *place, record.floor))
    ((stamp,),) = cursor.execute(sqlite_rows.STAMP, place)
    return _STORED if stamp == record.stamp else _OLDER


def _select(connection: sqlite3.Connection, statement: str, values: Sequence[sqlite_rows.Value]) -> list[DurableRecord]:
    return sqlite_rows.records_of(connection.execute(statement, values))


def _select_matching(
    connection: sqlite3.Connection, *, statement: sqlite_rows.Statement, wanted: Mapping[str, Scalar], limit: int
) -> list[DurableRecord]:
    found: list[DurableRecord] = []
    cursor = connection.execute(*statement)
    for row in cursor:
        found += (one for one in sqlite_rows.records_of([row]) if sqlite_rows.matches(one, wanted))
        if len(found) == limit:
            break
    # An open cursor would keep the log from being emptied.
    cursor.close()
    return found


def _page(
    connection: sqlite3.Connection, *, namespace: str, choice: tuple[int, bool], after: tuple[str, str]
) -> list[DurableRecord]:
    changed = connection.execute(sqlite_rows.CHANGED, (namespace, choice[0])).fetchone()[0] if choice[0] else 0
    rows: list[sqlite_rows.Row] = []
    characters = 0
    cursor = connection.execute(*sqlite_rows.page(namespace, changed, choice, after))
    for row in cursor:
        rows.append(row)
        characters += len(str(row[-1]))
        if characters > _PAGE_CHARACTERS:
            break
    cursor.close()
    return sqlite_rows.records_of(rows)


def _purge_part(connection: sqlite3.Connection, *, values: Mapping[str, str | int]) -> tuple[str | None, int]:
    """Return (last key of the part, or None for the last part; number of deleted documents)."""
    where = values["namespace"], values["first"]
    with transaction(connection):
        end = connection.execute(sqlite_rows.PART_END, where).fetchone()
        last = end[0] if end else connection.execute(sqlite_rows.LAST_KEY, where[:1]).fetchone()[0]
        removed = sum(connection.execute(one, {**values, "last": last}).rowcount for one in sqlite_rows.PURGE)
    return end and last, removed


def _problems(connection: sqlite3.Connection, *, file: SqliteFile) -> list[str]:
    found = [f"{file.name}: {line}" for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
    if file.path.stat().st_mode & 0o007:
        found.append(f"{file.name} can be read by every user of this machine; run chmod o-rwx")
    ((_, pages, moved),) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    if pages - moved > _LONG_LOG_PAGES:
        found.append(f"{file.name}: {pages - moved} pages wait in its log, since a process reads it; end that process")
    return found
