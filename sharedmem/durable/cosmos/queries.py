"""What is asked of Cosmos DB: texts and parameters, decided without I/O.

The texts are those that both the service and the emulator of the tests take: no DISTINCT, OFFSET or GROUP BY. A sort
names the namespace first, so that a composite index of the container serves it (`cosmos_layout`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sharedmem.durable.cosmos.documents import partition_of
from sharedmem.durable.protocol import Scalar
from sharedmem.errors import InvalidError

Given: TypeAlias = "Scalar | list[float]"
"""What a parameter may stand for."""

Position = tuple[str, str]
"""Key and element of the last document seen."""

_LARGEST_LIMIT = 1_000
_FIELD = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_BEHIND = "(c.key > @key OR (c.key = @key AND c.element > @element))"


class Columns(NamedTuple):
    """How the documents of a container name what queries ask for."""

    namespace: str
    on_top: str
    """Fields of the body behind this lie at the top of a document, others in its `body`."""
    by_key: bool
    """Whether a key has a logical partition of its own."""


RECORDS = Columns("namespace", "", by_key=True)
MEMORIES = Columns("tenant_id", "item", by_key=False)
GRAPHS = Columns("namespace", "", by_key=False)


class Query(NamedTuple):
    """A query text and what its parameters stand for.

    `partition` is the whole partition key where one logical partition answers. Elsewhere there is none, although the
    text names the namespace: the service then says which physical partitions hold it, and the SDK merges their
    sorted answers. With the namespace as a prefix of the key it would put these one behind the other, unmerged.
    """

    text: str
    values: Mapping[str, Given]
    partition: list[str] | None = None

    @property
    def parameters(self) -> list[dict[str, object]]:
        """As the SDK takes them."""
        return [{"name": f"@{name}", "value": value} for name, value in self.values.items()]


def of_key(key: str, after: Position | None, *, at: Columns = RECORDS) -> Query:
    """All documents of a key, the head first, then by element."""
    namespace, scope, _ = partition = partition_of(key)
    conditions = [f"c.{at.namespace} = @namespace"]
    values: dict[str, Scalar] = {"namespace": namespace}
    if at.by_key:
        conditions.append("c.scope = @scope")
        values["scope"] = scope
    conditions.append("c.key = @key")
    values["key"] = key
    if after:
        conditions.append("c.element > @element")
        values["element"] = after[1]
    order = "c.element ASC" if at.by_key else f"c.{at.namespace} ASC, c.key ASC, c.element ASC"
    return Query(_select("*", conditions, order), values, partition if at.by_key else None)


def of_id(namespace: str, id_: str) -> Query:
    """The documents of a memory, wherever in its tenant they lie, newest first; more than one while it moves."""
    conditions = ["c.tenant_id = @namespace", "c.id = @id"]
    return Query(_select("*", conditions, "c.stamp DESC"), {"namespace": namespace, "id": id_})


def of_namespace(
    namespace: str,
    after: Position | None,
    *,
    changed_after: int = 0,
    heads_only: bool = False,
    columns: str = "*",
    at: Columns = RECORDS,
) -> Query:
    """The documents of a namespace, by key and element."""
    conditions = [f"c.{at.namespace} = @namespace"]
    values: dict[str, Scalar] = {"namespace": namespace}
    if changed_after:
        conditions.append("c.stamp > @stamp")
        values["stamp"] = changed_after
    if heads_only:
        conditions.append('c.element = ""')
    if after:
        conditions.append(_BEHIND)
        values |= {"key": after[0], "element": after[1]}
    return Query(_select(columns, conditions, f"c.{at.namespace} ASC, c.key ASC, c.element ASC"), values)


def of_type(namespace: str, type_: str, *, where: Mapping[str, Scalar], limit: int, at: Columns = RECORDS) -> Query:
    """Documents of one type, newest first.

    Raises:
        InvalidError: a field that is no path of names, or a limit out of bounds.
    """
    if not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} documents")
    conditions = [f"c.{at.namespace} = @namespace", "c.type = @type", "c.deleted = false"]
    values: dict[str, Scalar] = {"namespace": namespace, "type": type_}
    for number, (field, value) in enumerate(where.items()):
        conditions.append(f"c{_path(field, at.on_top)} = @where{number}")
        values[f"where{number}"] = value
    order = f"c.{at.namespace} DESC, c.type DESC, c.stamp DESC"
    return Query(_select(f"TOP {limit} *", conditions, order), values)


def highest_stamp(namespace: str, *, at: Columns = RECORDS) -> Query:
    """The highest stamp of a namespace, or nothing."""
    conditions = [f"c.{at.namespace} = @namespace"]
    text = _select("TOP 1 VALUE c.stamp", conditions, f"c.{at.namespace} DESC, c.stamp DESC")
    return Query(text, {"namespace": namespace})


def next_namespace(after: str, *, at: Columns = RECORDS) -> Query:
    """The first namespace behind another one: to leap from one to the next reads one entry of the index each."""
    name = f"c.{at.namespace}"
    return Query(_select(f"TOP 1 VALUE {name}", [f"{name} > @after"], f"{name} ASC"), {"after": after})


def _select(what: str, conditions: Sequence[str], order: str) -> str:
    # Nothing of a user's is in the text but a limit and the names of fields, which are checked.
    return f"SELECT {what} FROM c WHERE {' AND '.join(conditions)} ORDER BY {order}"  # noqa: S608  # see above


def _path(field: str, on_top: str) -> str:
    """A field of the body, in brackets: names such as `order` are words of the query language."""
    if not _FIELD.fullmatch(field):
        raise InvalidError("where", field, "name a field with letters, digits and '_', inner ones behind dots")
    names = field.split(".")
    names = names[1:] if names[0] == on_top and len(names) > 1 else ["body", *names]
    return "".join(f'["{name}"]' for name in names)
