"""What is asked of Cosmos DB: texts and parameters, decided without I/O.

The texts are those that both the service and the emulator of the tests take: no DISTINCT, OFFSET or GROUP BY. A sort
names the namespace first, so that a composite index of the container serves it (`cosmos_layout`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from sharedmem.durable.cosmos_documents import partition_of
from sharedmem.durable.protocol import Scalar
from sharedmem.errors import InvalidError

Position = tuple[str, str]
"""Key and element of the last document seen."""

_LARGEST_LIMIT = 1_000
_FIELD = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_BEHIND = "(c.key > @key OR (c.key = @key AND c.element > @element))"


class Query(NamedTuple):
    """A query text and what its parameters stand for.

    `partition` is the whole partition key where one logical partition answers. Elsewhere it is empty although the
    text names the namespace: the service then says which partitions have it, and the SDK merges their sorted
    answers. Given the namespace as a partition key's prefix, the SDK would put sorted answers one behind the other.
    """

    text: str
    values: Mapping[str, Scalar]
    partition: list[str] | None = None

    @property
    def parameters(self) -> list[dict[str, object]]:
        """As the SDK takes them."""
        return [{"name": f"@{name}", "value": value} for name, value in self.values.items()]


def of_key(key: str, after: Position | None) -> Query:
    """All documents of a key, the head first, then by element."""
    namespace, scope, _ = partition = partition_of(key)
    behind = " AND c.element > @element" if after else ""
    text = (
        "SELECT * FROM c WHERE c.namespace = @namespace AND c.scope = @scope AND c.key = @key"
        f"{behind} ORDER BY c.element ASC"
    )
    values: dict[str, Scalar] = {"namespace": namespace, "scope": scope, "key": key}
    return Query(text, values | ({"element": after[1]} if after else {}), partition)


def of_namespace(
    namespace: str, after: Position | None, *, changed_after: int = 0, heads_only: bool = False, columns: str = "*"
) -> Query:
    """The documents of a namespace, by key and element."""
    conditions, values = ["c.namespace = @namespace"], dict[str, Scalar](namespace=namespace)
    if changed_after:
        conditions.append("c.stamp > @stamp")
        values["stamp"] = changed_after
    if heads_only:
        conditions.append('c.element = ""')
    if after:
        conditions.append(_BEHIND)
        values |= {"key": after[0], "element": after[1]}
    text = (
        f"SELECT {columns} FROM c WHERE {' AND '.join(conditions)} ORDER BY c.namespace ASC, c.key ASC, c.element ASC"
    )
    return Query(text, values)


def of_type(namespace: str, type_: str, *, where: Mapping[str, Scalar], limit: int) -> Query:
    """Documents of one type, newest first.

    Raises:
        InvalidError: a field that is no path of names, or a limit out of bounds.
    """
    if not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} documents")
    values: dict[str, Scalar] = {"namespace": namespace, "type": type_}
    conditions = ["c.namespace = @namespace", "c.type = @type", "c.deleted = false"]
    for number, (field, value) in enumerate(where.items()):
        conditions.append(f"c{_path(field)} = @where{number}")
        values[f"where{number}"] = value
    text = (
        f"SELECT TOP {limit} * FROM c WHERE {' AND '.join(conditions)} "
        "ORDER BY c.namespace DESC, c.type DESC, c.stamp DESC"
    )
    return Query(text, values)


def _path(field: str) -> str:
    """A field of the body, in brackets: names such as `order` are words of the query language."""
    if not _FIELD.fullmatch(field):
        raise InvalidError("where", field, "name a field with letters, digits and '_', inner ones behind dots")
    return "".join(f'["{name}"]' for name in ("body", *field.split(".")))


def highest_stamp(namespace: str) -> Query:
    """The highest stamp of a namespace, or nothing."""
    text = "SELECT TOP 1 VALUE c.stamp FROM c WHERE c.namespace = @namespace ORDER BY c.namespace DESC, c.stamp DESC"
    return Query(text, {"namespace": namespace})


def next_namespace(after: str) -> Query:
    """The first namespace behind another one: to leap from one to the next reads one entry of the index each."""
    return Query(
        "SELECT TOP 1 VALUE c.namespace FROM c WHERE c.namespace > @after ORDER BY c.namespace ASC", {"after": after}
    )
