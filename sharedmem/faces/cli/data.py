"""Commands on shared data: keys (get, set, delete, ls, incr), lists, hashes, sets, messages; and a whole namespace."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from sharedmem.api import FeedOperation
from sharedmem.api.operation import find_feed
from sharedmem.api.store import ChangeWatch, MessageSubscribe
from sharedmem.config import Kind
from sharedmem.errors import InvalidError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import DATA, LIVE, NAMESPACE, NUMBERS, Reads, command, hashes, members, operation_command
from sharedmem.faces.cli.output import (
    body,
    cell,
    console,
    dim,
    format_age,
    format_count,
    format_duration,
    format_size,
    is_interactive,
    json_text,
    list_table,
    print_answer,
    print_note,
    progress,
    read_value,
    rows_table,
    sort_members,
    stack,
    styled_text,
    table,
    write_line,
)
from sharedmem.faces.cli.session import Options, open_store, options_of, perform, use_store, without_metrics
from sharedmem.hub import Hub
from sharedmem.models import Change, Entry, Gap, Message, Missed, Record, Usage

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text
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


# -- messages and changes -------------------------------------------------------------------------


Request = TypeVar("Request", bound=Record)
Answer = TypeVar("Answer", bound=Record)
Count = Annotated[int | None, typer.Option(min=1, help="Leave after that many; without it Ctrl-C ends it.")]
_REMOVALS = frozenset({"delete", "clear", "hdel", "srem", "spop", "gap"})


@operation_command("message.publish", "publish", LIVE, example="sharedmem publish news 'the ferry is late'")
def publish(
    heard: int,
    channel: Annotated[str, typer.Argument(help="Plain (<namespace>:shared:<channel>) or absolute.")],
    message: Value,
) -> RenderableType:
    """Send a message to the current subscribers, and show how many received it."""
    return styled_text((str(heard), "cyan"), " received it" if heard else " subscribers: it reached no one")


@command("subscribe", LIVE, example="sharedmem subscribe news 'alerts-*'")
def subscribe(
    context: typer.Context,
    channels: Annotated[list[str], typer.Argument(metavar="CHANNEL", help="With * and ? it is a pattern.")],
    count: Count = None,
) -> None:
    """Show messages as they come; to a pipe one JSON object a line."""
    request = MessageSubscribe(channels=tuple(channels))
    print_note(f"listening to {', '.join(channels)}; Ctrl-C ends")
    _follow(options_of(context), find_feed("message.subscribe"), request, count=count, picture=_message_picture)


@command("watch", LIVE, example="sharedmem watch 'plan*' --since 0")
def watch(
    context: typer.Context,
    pattern: Annotated[str, typer.Argument(help="With * and ?; as in `ls`.")] = "*",
    since: Annotated[
        str | None, typer.Option(help="Cursor of the last change seen, or a version; 0 from the oldest kept.")
    ] = None,
    count: Count = None,
) -> None:
    """Show changes as they happen; to a pipe one JSON object a line, whose cursor --since takes."""
    request = ChangeWatch(pattern=pattern, since=since)
    print_note(f"watching {pattern}; Ctrl-C ends")
    _follow(options_of(context), find_feed("change.watch"), request, count=count, picture=_change_picture)


def _follow(
    options: Options,
    feed: FeedOperation[Answer],
    request: Record,
    *,
    count: int | None,
    picture: Callable[[Answer], Text],
) -> None:
    """Show what a feed brings until it was enough, or for ever."""
    terminal = console() if is_interactive(options) else None

    async def work() -> None:
        left = count
        async with open_store(options.settings()) as (_, store):
            async for item in feed.run(store, request):
                if terminal is None:
                    write_line(json_text(_json_item(item)))
                else:
                    terminal.print(picture(item))
                left = None if left is None else left - 1
                if left == 0:
                    return

    asyncio.run(work())


def _json_item(item: Record) -> object:
    if isinstance(item, Missed):
        return {"channel": item.channel, "missed": item.value}
    return item


def _message_picture(message: Message) -> Text:
    if isinstance(message, Missed):
        return styled_text((f"{message.channel}: messages may be lost: {message.value}", "yellow"))
    return styled_text((f"{message.channel}  ", "dim"), cell(message.value))


def _change_picture(change: Change) -> Text:
    at = f"{change.at.astimezone():%H:%M:%S.%f}"[:-3]
    if isinstance(change, Gap):
        return styled_text((f"{at}  changes before this were trimmed; read the keys again", "yellow"))
    style = "red" if change.operation in _REMOVALS else "green"
    what, who = (f"{change.operation:<9} ", style), (f"{change.actor:<14} ", "cyan")
    return styled_text((f"{at}  ", "dim"), what, who, (f"{change.version}  ", "dim"), change.key)


# -- a namespace as a whole -----------------------------------------------------------------------


_BAR_WIDTH = 24
_PASSWORD_BYTES = 24


@command("usage", NAMESPACE, example="sharedmem usage --namespace research")
def usage(context: typer.Context) -> None:
    """Count keys and bytes of the namespace, by type; other users of the server hardly notice."""
    options = options_of(context)
    found = _count_usage(options)
    print_answer(options, found, lambda: _usage_picture(found))


@command("clear", NAMESPACE, example="sharedmem clear --namespace scratch --yes")
def clear(
    context: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Remove every key of the namespace that may be written; paced, so that other clients do not wait."""
    options = options_of(context)
    total = None if yes else _confirm_clear(options)
    with progress("removing", total=total) as done:
        removed = use_store(options, lambda store: store.clear(done))
    print_answer(options, removed, lambda: styled_text(format_count(removed, "key"), " removed"))


@command("acl", NAMESPACE, example="sharedmem acl researcher-1 --namespace research")
def acl(
    context: typer.Context,
    actor: Annotated[str, typer.Argument(help="Whose rights the Redis user shall have.")],
    user: Annotated[str | None, typer.Option(help="Name of the Redis user; without it the actor's.")] = None,
    password: Annotated[str | None, typer.Option(help="Its password; without it a new one is made up.")] = None,
    subscribe: Annotated[list[str] | None, typer.Option(help="A further namespace it may read; repeatable.")] = None,
    grant: Annotated[list[str] | None, typer.Option(help="Absolute pattern it may also write; repeatable.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make or replace the user on the server.")] = False,
) -> None:
    """Show the ACL SETUSER command that gives a Redis user the rights of an actor, so that the server enforces them."""
    options = options_of(context)
    name, secret = user or actor, password or secrets.token_urlsafe(_PASSWORD_BYTES)

    async def work() -> list[str]:
        settings = without_metrics(options.settings()).replace(access="namespaced")
        async with Hub.open(settings=settings) as hub:
            store = hub.store(settings.namespace, actor=actor, subscribe=subscribe or (), grants=grant or ())
            if apply:
                await store.access.apply(name, password=secret)
            return store.access.acl_rules(password=secret)

    text = " ".join(["ACL SETUSER", name, *asyncio.run(work())])
    print_answer(options, {"user": name, "password": secret, "command": text, "applied": apply}, lambda: cell(text))
    print_note(
        f"applied: user {name} may log in; the server forgets it at its end unless it has an aclfile"
        if apply
        else "paste it into redis-cli, or say --apply"
    )


def _count_usage(options: Options) -> Usage:
    with progress("counting") as done:
        return use_store(options, lambda store: store.usage(done))


def _confirm_clear(options: Options) -> int:
    """How many keys there are, when the person agrees to lose them.

    Raises:
        InvalidError: there is no terminal to ask on.
        typer.Exit: the person does not agree.
    """
    if not sys.stdin.isatty():
        raise InvalidError(
            "clear", options.settings().namespace, "it cannot be confirmed without a terminal; say --yes"
        )
    found = _count_usage(options)
    what = f"{format_count(found.keys, 'key')} ({format_size(found.bytes)}) of namespace {found.namespace}"
    if not typer.confirm(f"Remove {what}?", err=True):
        raise typer.Exit(1)
    return found.keys


def _usage_picture(found: Usage) -> Table:
    picture = table("type", "keys", "bytes", "share", title=f"namespace {found.namespace}", right=["keys", "bytes"])
    for name, part in sorted(found.types.items(), key=lambda row: -row[1].bytes):
        picture.add_row(name, f"{part.keys:,}", format_size(part.bytes), _share_bar(part.bytes, found.bytes))
    picture.add_section()
    picture.add_row("all", f"{found.keys:,}", format_size(found.bytes), "", style="bold")
    return picture


def _share_bar(part: int, whole: int) -> RenderableType:
    from rich.progress_bar import ProgressBar  # noqa: PLC0415  a pipe does not wait for it

    return ProgressBar(
        total=max(whole, 1), completed=part, width=_BAR_WIDTH, complete_style="cyan", finished_style="cyan"
    )
