"""Documents as rows of SQLite: the table layout and every SQL statement."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, TypeAlias

import orjson

from sharedmem.durable.protocol import Scalar
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.models.record import all_of_checked

# ruff: noqa: S608  # statements contain only names of sharedmem; values of callers are parameters


Row: TypeAlias = tuple[str | int, ...]
Value: TypeAlias = str | int | float
Statement: TypeAlias = tuple[str, Sequence[Value]]

LAYOUT = 1
# "sMem", read as a number: by which `file` and SQLite identify the file.
APPLICATION_ID = 0x734D656D
PAGE = 500
_MOST_FOUND = 1000
# Up to this many changes are sorted by SQLite; more are found in a scan of the whole namespace.
_FEW = 2000

_COLUMNS = tuple(DurableRecord.model_fields)
_NUMBERS = frozenset({"version", "stamp", "floor", "size", "created", "expires", "deleted"})
# The columns of a sound row.
_TYPES = tuple(int if name in _NUMBERS else str for name in _COLUMNS)
_numbers_of = itemgetter(*(at for at, name in enumerate(_COLUMNS) if name in _NUMBERS))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM documents"
_FIELD = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


def _column(name: str) -> str:
    return f"{name} {'INTEGER' if name in _NUMBERS else 'TEXT'} NOT NULL"


# A table with a rowid: with the rows in the tree of the keys (WITHOUT ROWID), writing took 1.6 times as long.
_DEFINITIONS = ", ".join(map(_column, _COLUMNS))
MAKE = (
    f"CREATE TABLE documents (namespace TEXT NOT NULL, {_DEFINITIONS}, PRIMARY KEY (namespace, key, element))",
    "CREATE INDEX by_stamp ON documents (namespace, stamp)",
    "CREATE INDEX by_type ON documents (namespace, type, stamp)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LAYOUT}",
)

_NEW = ", ".join(
    f"{name} = excluded.{name}" if name != "floor" else "floor = max(floor, excluded.floor)"
    for name in _COLUMNS
    if name not in {"key", "element"}
)
_INSERT = f"INSERT INTO documents (namespace, {', '.join(_COLUMNS)}) VALUES "
_ONE_ROW = f"(?{', ?' * len(_COLUMNS)})"
_UNLESS_NEWER = f" ON CONFLICT (namespace, key, element) DO UPDATE SET {_NEW} WHERE excluded.stamp > stamp"
MOST_ROWS = 50
"""Rows that one statement stores: more gain little."""


@cache
def upsert(rows: int) -> str:
    """Return the statement that stores rows; a row is not changed if one with the same or a higher stamp exists.

    The writing thread passes the interpreter's lock on once for each statement: while a hub is busy, statements of one
    row would each wait for the lock again.
    """
    return _INSERT + ", ".join([_ONE_ROW] * rows) + _UNLESS_NEWER


_PLACE = "namespace = ? AND key = ? AND element = ?"
RAISE_FLOOR = f"UPDATE documents SET floor = ? WHERE {_PLACE} AND floor < ?"
STAMP = f"SELECT stamp FROM documents WHERE {_PLACE}"
ONE = f"{_SELECT} WHERE {_PLACE}"
ALL_OF_KEY = f"{_SELECT} WHERE namespace = ? AND key = ? ORDER BY element"
HIGHEST = "SELECT coalesce(max(stamp), 0) FROM documents WHERE namespace = ?"
# Jump from each namespace to the next one, however many documents are between.
NAMESPACES = """
WITH RECURSIVE found(name) AS (
    SELECT min(namespace) FROM documents
    UNION ALL
    SELECT (SELECT min(namespace) FROM documents WHERE namespace > name) FROM found WHERE name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL
"""
CHANGED = f"SELECT count(*) FROM (SELECT 1 FROM documents WHERE namespace = ? AND stamp > ? LIMIT {_FEW + 1})"


def row_of(record: DurableRecord) -> Row:
    """Return the parameters of a row of `upsert`."""
    return (
        record.namespace,
        record.key,
        record.element,
        record.type,
        record.kind,
        record.version,
        record.stamp,
        record.floor,
        record.size,
        record.created,
        record.expires,
        record.actor,
        record.codec,
        record.deleted,
        record.body,
    )


def records_of(rows: Iterable[Row]) -> list[DurableRecord]:
    """Return the documents of selected rows.

    Raises:
        ValidationError: another program has changed a row.
    """
    return all_of_checked(DurableRecord, map(_values_of, rows))


def _values_of(row: Row) -> dict[str, Any]:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    if tuple(map(type, row)) != _TYPES or values["deleted"] not in {0, 1} or min(_numbers_of(row)) < 0:
        return dict(DurableRecord.model_validate(values))
    values["deleted"] = values["deleted"] == 1
    return values


def place_of(key: str, element: str = "") -> tuple[str, str, str]:
    """Return namespace, key and element."""
    return key.partition(":")[0], key, element


# -- iteration --------------------------------------------------------------------------------------


def page(namespace: str, changed: int, choice: tuple[int, bool], after: tuple[str, str]) -> Statement:
    """Return the statement for one page of an iteration.

    Args:
        namespace: namespace of the documents.
        changed: `CHANGED` for the stamp of the choice.
        choice: the stamp that documents must exceed (0: any), and whether to return only heads.
        after: key and element behind which the page begins.
    """
    changed_after, heads_only = choice
    # SQLite does not have these numbers: by stamp, each page of a large change would sort all of it.
    index, stamp = (" INDEXED BY by_stamp", "stamp") if changed <= _FEW else ("", "+stamp")
    conditions = ["namespace = ?", "(key, element) > (?, ?)"]
    values: list[Value] = [namespace, *after]
    if changed_after:
        conditions.append(f"{stamp} > ?")
        values.append(changed_after)
    if heads_only:
        conditions.append("element = ''")
    source = _SELECT + (index if changed_after else "")
    return f"{source} WHERE {' AND '.join(conditions)} ORDER BY key, element LIMIT {PAGE}", values


# -- querying -------------------------------------------------------------------------------------


def query(namespace: str, of_type: str, where: Mapping[str, Scalar], limit: int) -> Statement:
    """Return the statement that finds documents by fields of their bodies, without a limit: see `matches`.

    Raises:
        InvalidError: a field is not a name, a value can equal no text or number, or the limit is out of bounds.
    """
    if not 1 <= limit <= _MOST_FOUND:
        raise InvalidError("limit", limit, f"ask for 1 to {_MOST_FOUND:,}")
    conditions = ["namespace = ?", "type = ?", "deleted = 0"]
    values: list[Value] = [namespace, of_type]
    for field, wanted in where.items():
        condition, more = _equality(_path(field), field, wanted)
        conditions.append(condition)
        values += more
    return f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY stamp DESC, key, element", values


def matches(record: DurableRecord, where: Mapping[str, Scalar]) -> bool:
    """Return whether the body matches: SQLite reads texts only up to their first NUL, and so finds too many."""
    try:
        body = orjson.loads(record.body) if where else None
    except orjson.JSONDecodeError:
        return False
    return all(_holds(body, field, wanted) for field, wanted in where.items())


def _holds(body: object, field: str, wanted: Scalar) -> bool:
    for name in field.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body == wanted and isinstance(body, bool) is isinstance(wanted, bool)


def _path(field: str) -> str:
    if not _FIELD.fullmatch(field):
        raise InvalidError("field", field, "write letters, digits and _, with dots between the names of inner fields")
    return "$." + ".".join(f'"{name}"' for name in field.split("."))


def _equality(path: str, field: str, wanted: Scalar) -> tuple[str, list[Value]]:
    """Return a condition that is never true for a body that is not JSON, such as the empty one of a structure."""
    held, kind = "json_extract(body, ?)", "json_type(body, ?)"
    values: list[Value] = [path]
    if isinstance(wanted, bool):
        condition = f"{kind} = ?"
        values.append(str(wanted).lower())
    elif isinstance(wanted, str) and "\0" in wanted:
        condition = f"{kind} = 'text'"
    else:
        kinds = "('text')" if isinstance(wanted, str) else "('integer', 'real')"
        # Each condition reads the whole body: the most selective one is first.
        condition = f"{held} = ? AND {kind} IN {kinds}"
        values += [_comparable(field, wanted), path]
    return f"CASE WHEN json_valid(body) THEN {condition} END", values


def _comparable(field: str, wanted: str | float) -> Value:
    try:
        if isinstance(wanted, str):
            wanted.encode()
            return wanted
        return wanted if isinstance(wanted, int) and wanted.bit_length() < 64 else _finite(float(wanted))
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidError(field, wanted, "no value in JSON can equal it") from error


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise OverflowError
    return number


# -- purging --------------------------------------------------------------------------------------

# The last key of the next part of a purge; parts end between keys.
PART_END = "SELECT key FROM documents WHERE namespace = ? AND key > ? ORDER BY key LIMIT 1 OFFSET 1000"
LAST_KEY = "SELECT max(key) FROM documents WHERE namespace = ?"

_PART = "namespace = :namespace AND key > :first AND key <= :last"
PURGE = (
    # Elements newer than their head belong to a newer head that has not arrived yet, here and below.
    f"""
    DELETE FROM documents WHERE {_PART} AND element <> '' AND EXISTS (
        SELECT 1 FROM documents AS head
        WHERE head.namespace = documents.namespace AND head.key = documents.key AND head.element = ''
        AND (
            documents.stamp < head.floor
            OR documents.stamp <= head.stamp AND head.deleted = 0 AND head.expires BETWEEN 1 AND :now_ms
        )
    )
    """,
    """
    DELETE FROM documents WHERE rowid IN (
        SELECT item FROM (
            SELECT
                one.rowid AS item, head.size AS size,
                row_number() OVER (PARTITION BY one.key ORDER BY one.element DESC) AS place
            FROM documents AS head CROSS JOIN documents AS one
            WHERE head.namespace = :namespace AND head.key > :first AND head.key <= :last
            AND head.element = '' AND head.type = 'list' AND head.deleted = 0
            AND one.namespace = :namespace AND one.key = head.key AND one.element <> ''
            AND one.deleted = 0 AND one.stamp BETWEEN head.floor AND head.stamp
        )
        WHERE place > size
    )
    """,
    f"DELETE FROM documents WHERE {_PART} AND deleted = 1 AND stamp < :tombstones_before",
    f"DELETE FROM documents WHERE {_PART} AND element = '' AND deleted = 0 AND expires BETWEEN 1 AND :now_ms",
)
"""Statements that together purge a part of a namespace, elements before the heads that decide about them."""
