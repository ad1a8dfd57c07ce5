"""Commands on a whole namespace: usage, clear, acl."""

from __future__ import annotations

import asyncio
import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.cli.app import NAMESPACE, command
from sharedmem.faces.cli.output import (
    cell,
    format_count,
    format_size,
    print_answer,
    print_note,
    progress,
    styled_text,
    table,
)
from sharedmem.faces.cli.session import Options, options_of, use_store, without_metrics
from sharedmem.hub import Hub
from sharedmem.models import Usage

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

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
