"""Commands on lists, hashes and sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.faces.cli.app import DATA, command, hashes, members
from sharedmem.faces.cli.keys import Key, OfKind, Ttl, Value
from sharedmem.faces.cli.output import answer, body, cell, nothing, rows_of, said, table
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.faces.cli.values import in_order, read_value
from sharedmem.faces.operations import store as table_of

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Field = Annotated[str, typer.Argument(help="Name of the field.")]
Values = Annotated[list[str], typer.Argument(metavar="VALUE...", help="As `set` takes its value.")]


@command("append", DATA, example="""sharedmem append chat '{"by": "me", "says": "hello"}' --max-length 100""")
def append(
    context: typer.Context,
    key: Key,
    value: Value,
    max_length: Annotated[int | None, typer.Option(help="Keep only that many of the newest.")] = None,
    ttl: Ttl = None,
    kind: OfKind = None,
) -> None:
    """Put a value at the end of a list, and tell the list's length."""
    options = options_of(context)
    request = table_of.ListAppend(key=key, value=read_value(value), max_length=max_length, ttl=ttl, kind=kind)
    length = perform(options, table_of.LIST_APPEND, request)
    answer(options, length, lambda: said(key, (" has now ", "dim"), (str(length), "cyan")))


@command("list", DATA, example="sharedmem list chat --start -10")
def list_(
    context: typer.Context,
    key: Key,
    start: Annotated[int, typer.Option(help="First position; negative ones count from the end.")] = 0,
    end: Annotated[int, typer.Option(help="Last position, included.")] = -1,
) -> None:
    """Show a list, or a part of it."""
    options = options_of(context)
    values = perform(options, table_of.LIST_READ, table_of.ListRead(key=key, start=start, end=end))
    answer(options, values, lambda: rows_of(values, first=_first(len(values), start, end)))


@command("all", None, group=hashes, example="sharedmem hash agent:planner")
def hash_all(context: typer.Context, key: Key) -> None:
    """Show all fields."""
    options = options_of(context)
    fields = perform(options, table_of.HASH_ALL, table_of.OnKey(key=key))
    answer(options, fields, lambda: _fields_picture(fields))


@command("get", None, group=hashes, example="sharedmem hash get agent:planner role")
def hash_get(context: typer.Context, key: Key, field: Field) -> None:
    """Show one field; exit code 3 when there is none."""
    options = options_of(context)
    value = perform(options, table_of.HASH_GET, table_of.HashGet(key=key, field=field))
    answer(options, value, lambda: body(value))


@command("set", None, group=hashes, example="sharedmem hash set agent:planner role lead")
def hash_set(
    context: typer.Context, key: Key, field: Field, value: Value, ttl: Ttl = None, kind: OfKind = None
) -> None:
    """Set one field, and tell how many are new."""
    options = options_of(context)
    request = table_of.HashSet(key=key, values={field: read_value(value)}, ttl=ttl, kind=kind)
    added = perform(options, table_of.HASH_SET, request)
    answer(options, added, lambda: said(field, (" is set" + ("" if added else " anew"), "dim")))


@command("del", None, group=hashes, example="sharedmem hash del agent:planner role")
def hash_delete(
    context: typer.Context, key: Key, fields: Annotated[list[str], typer.Argument(metavar="FIELD...")]
) -> None:
    """Remove fields, and tell how many there were."""
    options = options_of(context)
    removed = perform(options, table_of.HASH_DELETE, table_of.HashDelete(key=key, fields=tuple(fields)))
    answer(options, removed, lambda: said(f"{removed} removed", (f" of {len(fields)}", "dim")))


@command("list", None, group=members, example="sharedmem members topics")
def members_list(context: typer.Context, key: Key) -> None:
    """Show all members."""
    options = options_of(context)
    found = perform(options, table_of.SET_MEMBERS, table_of.OnKey(key=key))
    answer(options, found, lambda: rows_of(in_order(found), first=1))


@command("add", None, group=members, example="sharedmem members add topics tides ferries")
def members_add(context: typer.Context, key: Key, values: Values, ttl: Ttl = None, kind: OfKind = None) -> None:
    """Add members, and tell how many are new."""
    options = options_of(context)
    request = table_of.SetAdd(key=key, values=tuple(map(read_value, values)), ttl=ttl, kind=kind)
    added = perform(options, table_of.SET_ADD, request)
    answer(options, added, lambda: said(f"{added} added", (f" of {len(values)}", "dim")))


@command("remove", None, group=members, example="sharedmem members remove topics ferries")
def members_remove(context: typer.Context, key: Key, values: Values) -> None:
    """Remove members, and tell how many there were."""
    options = options_of(context)
    request = table_of.SetRemove(key=key, values=tuple(map(read_value, values)))
    removed = perform(options, table_of.SET_REMOVE, request)
    answer(options, removed, lambda: said(f"{removed} removed", (f" of {len(values)}", "dim")))


@command("pop", None, group=members, example="sharedmem members pop topics")
def members_pop(context: typer.Context, key: Key) -> None:
    """Take a random member out and show it; exit code 3 when the set is empty."""
    options = options_of(context)
    member = perform(options, table_of.SET_POP, table_of.OnKey(key=key))
    answer(options, member, lambda: body(member))


def _first(count: int, start: int, end: int) -> int:
    """The position of the first value shown; from the end where the end is known, as the list may be shorter."""
    return end - count + 1 if start < 0 and end < 0 else start


def _fields_picture(fields: dict[str, object]) -> Table | Text:
    if not fields:
        return nothing()
    picture = table("field", "value")
    for name, value in fields.items():
        picture.add_row(cell(name), cell(value))
    return picture
