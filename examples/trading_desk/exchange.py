"""A fake exchange for any process: a SQLite file, in which every received order is recorded for good.

It never refuses an order because it was sent before: an order that is sent twice is executed twice, as on a real
exchange without further information. So this file is the proof. There are two venues:

- `Lantern` lets clients look up an order by its reference, at any time.
- `Quayside` publishes its statement only after the close.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mishaps import AT_THE_EXCHANGE, Mishap

from sharedmem import SharedMemoryError

LANTERN, QUAYSIDE = "Lantern", "Quayside"
VENUES = {"KELP": LANTERN, "SALT": LANTERN, "ROPE": QUAYSIDE, "TIDE": QUAYSIDE}
_PATIENCE_S = 30.0
_TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    reference TEXT NOT NULL,
    decision TEXT NOT NULL,
    venue TEXT NOT NULL,
    price REAL NOT NULL,
    size_usdt REAL NOT NULL,
    executor TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('accepted', 'rejected', 'late'))
);
CREATE VIEW IF NOT EXISTS orders AS SELECT * FROM requests WHERE outcome = 'accepted';
CREATE TABLE IF NOT EXISTS mishaps (decision TEXT PRIMARY KEY, kind TEXT NOT NULL, executor TEXT NOT NULL);
"""


class RejectedError(SharedMemoryError):
    """The exchange has refused the order: nothing was bought or sold."""


class ExchangeTimeoutError(SharedMemoryError):
    """The exchange has not responded: it is unknown whether it has the order."""


@dataclass(frozen=True)
class Order:
    """An order of an executor."""

    reference: str
    """The sender's reference for it."""
    decision: str
    venue: str
    price: float
    size_usdt: float


@dataclass(frozen=True)
class Placed:
    """An order that the exchange has accepted."""

    order_id: str
    reference: str
    decision: str
    size_usdt: float


class Exchange:
    """One process's client of the exchange. Its calls block: from a running event loop call them in a thread.

    Args:
        path: the file.
        executor: the caller, recorded with each order.
        mishaps: failures to simulate, by decision.
        hang_s: how long a simulated hang takes.
    """

    def __init__(
        self, path: Path, *, executor: str = "", mishaps: Mapping[str, Mishap] | None = None, hang_s: float = 0.0
    ) -> None:
        self._path = path
        self._executor = executor
        self._mishaps = mishaps or {}
        self._hang_s = hang_s

    def found(self) -> None:
        """Create an empty file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        with self._opened() as connection:
            connection.executescript(_TABLES)

    def place(self, order: Order, *, permitted: Callable[[], bool] = lambda: True) -> Placed:
        """Send an order.

        Args:
            order: the order.
            permitted: called at the last moment, while no other client is served: an order whose sender has lost its
                claim meanwhile is refused as late. (Real exchanges have this as the time up to which an
                order may arrive.)

        Raises:
            RejectedError: the order was refused.
            ExchangeTimeoutError: no response; the order may have been accepted.
        """
        mishap = self.strikes(order.decision, AT_THE_EXCHANGE)
        if mishap is Mishap.TIMEOUT_LOST:
            raise ExchangeTimeoutError(f"no answer from {order.venue}")
        if mishap is Mishap.HANG:
            time.sleep(self._hang_s)
        number, outcome = self._record(order, permitted, "rejected" if mishap is Mishap.REJECTION else "accepted")
        if mishap is Mishap.TIMEOUT_ACCEPTED:
            raise ExchangeTimeoutError(f"no answer from {order.venue}")
        if outcome != "accepted":
            why = "the order came too late" if outcome == "late" else "the margin does not suffice"
            raise RejectedError(f"{order.venue} says: {why}")
        return Placed(_order_id(order.venue, number), order.reference, order.decision, order.size_usdt)

    def strikes(self, decision: str, kinds: tuple[Mishap, ...]) -> Mishap | None:
        """Return the mishap of a decision if it has one of these kinds and has not happened yet; record that it has."""
        mishap = self._mishaps.get(decision)
        if mishap not in kinds:
            return None
        with self._serving() as connection:
            row = (decision, mishap.value, self._executor)
            struck = connection.execute("INSERT OR IGNORE INTO mishaps VALUES (?, ?, ?)", row)
        return mishap if struck.rowcount else None

    def look_up(self, reference: str) -> Placed | None:
        """Return the order that was sent to `Lantern` under a reference. Waits for orders in progress."""
        with self._serving() as connection:
            row = connection.execute(f"{_SELECT} WHERE venue = ? AND reference = ?", (LANTERN, reference)).fetchone()
        return _placed(row) if row else None

    def statement(self) -> list[Placed]:
        """Return every accepted order, in order: the statement after the close."""
        with self._serving() as connection:
            return [_placed(row) for row in connection.execute(f"{_SELECT} ORDER BY id")]

    def mishaps(self) -> dict[str, int]:
        """Return how often each kind of mishap has happened."""
        with self._serving() as connection:
            return dict(connection.execute("SELECT kind, COUNT(*) FROM mishaps GROUP BY kind ORDER BY kind"))

    def _record(self, order: Order, permitted: Callable[[], bool], outcome: str) -> tuple[int, str]:
        with self._serving() as connection:
            # A look-up of this order waits for this transaction, or came before it. If a successor looked it up
            # before, then our claim is over by now, and `permitted` returns False.
            result = outcome if permitted() else "late"
            row = (time.time(), *_row(order), self._executor, result)
            cursor = connection.execute("INSERT INTO requests VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return cursor.lastrowid or 0, result

    @contextmanager
    def _serving(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that excludes all others, also if it only reads."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=_PATIENCE_S, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()  # rolls back what was not committed


_SELECT = "SELECT venue, id, reference, decision, size_usdt FROM orders"


def _row(order: Order) -> tuple[str, str, str, float, float]:
    return order.reference, order.decision, order.venue, order.price, order.size_usdt


def _placed(row: tuple[str, int, str, str, float]) -> Placed:
    venue, number, reference, decision, size_usdt = row
    return Placed(_order_id(venue, number), reference, decision, size_usdt)


def _order_id(venue: str, number: int) -> str:
    return f"{venue[0]}-{number:05d}"
