"""Commands on single keys: get, set, rm, ls, incr."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.config import Kind
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import DATA, NUMBERS, command
from sharedmem.faces.cli.output import ago, answer, body, console, duration, is_for_people, note, said, write_line
from sharedmem.faces.cli.session import Options, opened, options_of, perform
from sharedmem.faces.cli.tree import tree_of
from sharedmem.faces.cli.values import json_text, read_value
from sharedmem.faces.operations import store as table_of
from sharedmem.models import Entry

if TYPE_CHECKING:
    from rich.console import RenderableType

Key = Annotated[
    str, typer.Argument(help="Plain (in the namespace) or absolute, with a colon.", autocompletion=completion.keys)
]
Value = Annotated[str, typer.Argument(help="JSON, @file, or - for standard input; what is no JSON is a text.")]
Ttl = Annotated[float | None, typer.Option(help="Seconds to live; without it the kind or the rules decide.")]
OfKind = Annotated[Kind | None, typer.Option(help="Kind of memory, which sets how long it lives.")]


@command("get", DATA, example="sharedmem get plan")
def get(
    context: typer.Context,
    key: Key,
    entry: Annotated[bool, typer.Option("--entry", help="With version, actor, times and ttl.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Text or bytes just as they are, without quotes.")] = False,
) -> None:
    """Show a value; exit code 3 when there is none.

    JSON output: times are ISO 8601 text, bytes {"$base64": "..."}.
    """
    options = options_of(context)
    found = perform(options, table_of.VALUE_ENTRY, table_of.OnKey(key=key))
    if raw:
        _write_raw(found.value)
    else:
        answer(options, found if entry else found.value, lambda: _entry_picture(found))


@command("set", DATA, example="""sharedmem set plan '{"step": 1}' --ttl 3600""")
def set_(
    context: typer.Context,
    key: Key,
    value: Value,
    ttl: Ttl = None,
    if_version: Annotated[
        int | None, typer.Option(help="Write only over this version; 0: only if there is no value.")
    ] = None,
    kind: OfKind = None,
) -> None:
    """Write a value under a new version, which is told; exit code 4 when --if-version finds another."""
    options = options_of(context)
    request = table_of.ValueWrite(key=key, value=read_value(value), ttl=ttl, kind=kind, if_version=if_version)
    version = perform(options, table_of.VALUE_WRITE, request)
    answer(options, version, lambda: said(key, (" is at version ", "dim"), (str(version), "cyan")))


@command("rm", DATA, example="sharedmem rm plan")
def rm(
    context: typer.Context,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Keys of any type.", autocompletion=completion.keys)
    ],
) -> None:
    """Remove keys with whatever they hold, and tell how many there were."""
    options = options_of(context)
    removed = asyncio.run(_remove(options, keys))
    answer(options, removed, lambda: said(f"{removed} removed", (f" of {len(keys)}", "dim")))


async def _remove(options: Options, keys: list[str]) -> int:
    async with opened(options.settings()) as (_, store):
        return sum([await table_of.KEY_DELETE.run(store, table_of.OnKey(key=key)) for key in keys])


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
    found = perform(options, table_of.KEY_LIST, table_of.KeyList(pattern=pattern))
    if not is_for_people(options):
        answer(options, found, lambda: "")
    elif not found:
        note(f"no key matches {pattern!r}; other namespaces: sharedmem status")
    elif tree:
        console().print(tree_of(found))
    else:
        for key in found:
            console().print(_key_picture(key))


@command("incr", DATA, example="sharedmem incr visits", words=NUMBERS)
def incr(
    context: typer.Context,
    key: Key,
    by: Annotated[int, typer.Argument(help="How much to add; negative to count down.")] = 1,
    ttl: Ttl = None,
    kind: OfKind = None,
) -> None:
    """Add to a counter, which starts at 0, and tell the new number."""
    options = options_of(context)
    request = table_of.CounterIncrement(key=key, by=by, ttl=ttl, kind=kind)
    number = perform(options, table_of.COUNTER_INCREMENT, request)
    answer(options, number, lambda: said(key, (" is at ", "dim"), (str(number), "cyan")))


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
    return said((f"{namespace}:", "dim"), (scope, "cyan"), (separator, "dim"), identifier)


def _entry_picture(entry: Entry) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    life = "stays" if entry.ttl is None else f"expires in {duration(entry.ttl)}"
    who = (
        f"version {entry.version} by {entry.actor}, {ago(entry.updated)}"
        if entry.version
        else "set by a foreign client"
    )
    return Group(body(entry.value), said((f"{entry.key}: {who}, {life}", "dim")))
