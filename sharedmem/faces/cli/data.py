"""Commands on shared data: keys (get, set, rm, ls, incr), lists, hashes and sets."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from sharedmem.config import Kind
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import DATA, NUMBERS, command, hashes, members
from sharedmem.faces.cli.operations import Reads, operation_command
from sharedmem.faces.cli.output import (
    body,
    console,
    dim,
    format_age,
    format_count,
    format_duration,
    is_interactive,
    list_table,
    print_answer,
    print_note,
    rows_table,
    stack,
    styled_text,
    write_line,
)
from sharedmem.faces.cli.session import Options, open_store, options_of, perform
from sharedmem.faces.cli.values import json_text, read_value, sort_members
from sharedmem.models import Entry

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree


_MAX_CHILDREN = 30
_DEPTH_STYLES = ("bold", "cyan", "")
Branch: TypeAlias = "dict[str, Branch]"


def split_keys(keys: list[str]) -> Branch:
    """The keys by their parts."""
    root: Branch = {}
    for key in keys:
        branch = root
        for part in key.split(":"):
            branch = branch.setdefault(part, {})
    return root


def key_tree(keys: list[str]) -> Tree:
    """The picture of it, for a terminal."""
    from rich.text import Text  # noqa: PLC0415  a pipe does not wait for it
    from rich.tree import Tree  # noqa: PLC0415  likewise

    picture = Tree(Text(format_count(len(keys), "key"), style="dim"), guide_style="dim")
    _add_branches(picture, split_keys(keys), depth=0)
    return picture


def _add_branches(picture: Tree, branch: Branch, *, depth: int) -> None:
    from rich.text import Text  # noqa: PLC0415  likewise

    style = _DEPTH_STYLES[min(depth, len(_DEPTH_STYLES) - 1)]
    for part, below in list(branch.items())[:_MAX_CHILDREN]:
        count = (f"  {_count_leaves(below):,}", "dim") if below else ("", "")
        _add_branches(picture.add(Text.assemble((part, style), count)), below, depth=depth + 1)
    if len(branch) > _MAX_CHILDREN:
        picture.add(Text(f"... {len(branch) - _MAX_CHILDREN:,} more", style="dim"))


def _count_leaves(branch: Branch) -> int:
    return sum(_count_leaves(below) for below in branch.values()) if branch else 1


Key = Annotated[
    str, typer.Argument(help="Plain (in the namespace) or absolute, with a colon.", autocompletion=completion.keys)
]
Value = Annotated[
    str,
    typer.Argument(metavar="value", help="JSON, @file, or - for standard input; what is no JSON is a text."),
    Reads(read_value),
]
Ttl = Annotated[float | None, typer.Option(help="Seconds to live; without it the kind or the rules decide.")]
OfKind = Annotated[Kind | None, typer.Option(help="Kind of memory, which sets how long it lives.")]


@command("get", DATA, example="sharedmem get plan")
def get(
    context: typer.Context,
    key: Key,
    entry: Annotated[bool, typer.Option("--entry", help="With version, actor, times and ttl.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Text or bytes just as they are, without quotes.")] = False,
) -> None:
    """Show a value; exit code 3 if it does not exist.

    JSON output: times are ISO 8601 text, bytes {"$base64": "..."}.
    """
    options = options_of(context)
    found = perform(options, "value.entry", key=key)
    if raw:
        _write_raw(found.value)
    else:
        print_answer(options, found if entry else found.value, lambda: _entry_picture(found))


@operation_command("value.write", "set", DATA, example="""sharedmem set plan '{"step": 1}' --ttl 3600""")
def set_(
    version: int,
    key: Key,
    value: Value,
    ttl: Ttl = None,
    if_version: Annotated[
        int | None, typer.Option(help="Write only over this version; 0: only if there is no value.")
    ] = None,
    kind: OfKind = None,
) -> RenderableType:
    """Write a value under a new version, and print the version; exit code 4 when --if-version finds another."""
    return styled_text(key, (" is at version ", "dim"), (str(version), "cyan"))


@command("delete", DATA, example="sharedmem delete plan")
def delete(
    context: typer.Context,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Keys of any type.", autocompletion=completion.keys)],
) -> None:
    """Delete keys of any type, and show how many there were."""
    options = options_of(context)
    removed = asyncio.run(_remove_keys(options, keys))
    print_answer(options, removed, lambda: styled_text(f"{removed} removed", (f" of {len(keys)}", "dim")))


async def _remove_keys(options: Options, keys: list[str]) -> int:
    async with open_store(options.settings()) as (_, store):
        return sum([await store.delete(key) for key in keys])


@command("ls", DATA, example="sharedmem ls --tree")
def ls(
    context: typer.Context,
    pattern: Annotated[
        str,
        typer.Argument(
            help="With * and ?. Plain: in every scope of the namespace; with a colon: absolute.",
            autocompletion=completion.keys,
        ),
    ] = "*",
    tree: Annotated[bool, typer.Option("--tree", help="By namespace, scope and parts of the name.")] = False,
) -> None:
    """List the keys that match, sorted."""
    options = options_of(context)
    found = perform(options, "key.list", pattern=pattern)
    if not is_interactive(options):
        print_answer(options, found, lambda: "")
    elif not found:
        print_note(f"no key matches {pattern!r}; other namespaces: sharedmem status")
    elif tree:
        console().print(key_tree(found))
    else:
        for key in found:
            console().print(_key_picture(key))


@operation_command("counter.increment", "incr", DATA, example="sharedmem incr visits", words=NUMBERS)
def incr(
    number: int,
    key: Key,
    by: Annotated[int, typer.Argument(help="How much to add; negative to count down.")] = 1,
    ttl: Ttl = None,
    kind: OfKind = None,
) -> RenderableType:
    """Add to a counter, which starts at 0, and show the new number."""
    return styled_text(key, (" is at ", "dim"), (str(number), "cyan"))


def _write_raw(value: object) -> None:
    if isinstance(value, str):
        sys.stdout.write(value)
    elif isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    else:
        write_line(json_text(value))


def _key_picture(key: str) -> RenderableType:
    namespace, _, rest = key.partition(":")
    scope, separator, identifier = rest.partition(":")
    return styled_text((f"{namespace}:", "dim"), (scope, "cyan"), (separator, "dim"), identifier)


def _entry_picture(entry: Entry) -> RenderableType:
    life = "stays" if entry.ttl is None else f"expires in {format_duration(entry.ttl)}"
    who = (
        f"version {entry.version} by {entry.actor}, {format_age(entry.updated)}"
        if entry.version
        else "set by a foreign client"
    )
    return stack(body(entry.value), dim(f"{entry.key}: {who}, {life}"))


Field = Annotated[str, typer.Argument(help="Name of the field.")]
Values = Annotated[list[str], typer.Argument(metavar="VALUE", help="As `set` takes its value."), Reads(read_value)]


@operation_command(
    "list.append", "append", DATA, example="""sharedmem append chat '{"by": "me", "says": "hello"}' --max-length 100"""
)
def append(
    length: int,
    key: Key,
    value: Value,
    max_length: Annotated[int | None, typer.Option(help="Keep only that many of the newest.")] = None,
    ttl: Ttl = None,
    kind: OfKind = None,
) -> RenderableType:
    """Append a value to a list, and show the list's length."""
    return styled_text(key, (" has now ", "dim"), (str(length), "cyan"))


@operation_command("list.read", "list", DATA, example="sharedmem list chat --start -10")
def list_(
    values: list[object],
    key: Key,
    start: Annotated[int, typer.Option(help="First position; negative ones count from the end.")] = 0,
    end: Annotated[int, typer.Option(help="Last position, included.")] = -1,
) -> RenderableType:
    """Show a list, or a part of it."""
    return list_table(values, first=_first_position(len(values), start, end))


@operation_command("hash.get_all", "all", group=hashes, example="sharedmem hash agent:planner")
def hash_all(fields: dict[str, object], key: Key) -> RenderableType:
    """Show all fields."""
    return rows_table(list(fields.items()), "field", "value")


@operation_command("hash.get", "get", group=hashes, example="sharedmem hash get agent:planner role")
def hash_get(value: object, key: Key, field: Field) -> RenderableType:
    """Show one field; exit code 3 if it does not exist."""
    return body(value)


@operation_command(
    "hash.set",
    "set",
    group=hashes,
    example="sharedmem hash set agent:planner role lead",
    request=lambda given: {"values": {given.pop("field"): given.pop("value")}, **given},
)
def hash_set(added: int, key: Key, field: Field, value: Value, ttl: Ttl = None, kind: OfKind = None) -> RenderableType:
    """Set one field, and show how many are new."""
    return styled_text(field, (" is set" + ("" if added else " anew"), "dim"))


@operation_command("hash.delete", "delete", group=hashes, example="sharedmem hash delete agent:planner role")
def hash_delete(
    removed: int, key: Key, fields: Annotated[list[str], typer.Argument(metavar="FIELD")]
) -> RenderableType:
    """Delete fields, and show how many there were."""
    return styled_text(f"{removed} removed", (f" of {len(fields)}", "dim"))


@operation_command("set.members", "list", group=members, example="sharedmem members topics")
def members_list(found: set[object], key: Key) -> RenderableType:
    """Show all members."""
    return list_table(sort_members(found), first=1)


@operation_command("set.add", "add", group=members, example="sharedmem members add topics tides ferries")
def members_add(added: int, key: Key, values: Values, ttl: Ttl = None, kind: OfKind = None) -> RenderableType:
    """Add members, and show how many are new."""
    return styled_text(f"{added} added", (f" of {len(values)}", "dim"))


@operation_command("set.delete", "delete", group=members, example="sharedmem members delete topics ferries")
def members_delete(removed: int, key: Key, values: Values) -> RenderableType:
    """Delete members, and show how many there were."""
    return styled_text(f"{removed} removed", (f" of {len(values)}", "dim"))


@operation_command("set.pop", "pop", group=members, example="sharedmem members pop topics")
def members_pop(member: object, key: Key) -> RenderableType:
    """Take a random member out and show it; exit code 3 when the set is empty."""
    return body(member)


def _first_position(count: int, start: int, end: int) -> int:
    """The position of the first value shown; from the end where the end is known, as the list may be shorter."""
    return end - count + 1 if start < 0 and end < 0 else start
