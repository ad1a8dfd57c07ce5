"""Commands on messages and changes as they happen: publish, subscribe, watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sharedmem.api import FeedOperation
from sharedmem.api.operation import find_feed
from sharedmem.api.store import ChangeWatch, MessageSubscribe
from sharedmem.faces.cli.app import LIVE, command
from sharedmem.faces.cli.data import Value
from sharedmem.faces.cli.operations import operation_command
from sharedmem.faces.cli.output import cell, console, is_interactive, print_note, styled_text, write_line
from sharedmem.faces.cli.session import Options, open_store, options_of
from sharedmem.faces.cli.values import json_text
from sharedmem.models import Change, Gap, Message, Missed, Record

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

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
