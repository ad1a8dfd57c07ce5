"""The command that enters the MCP server in the configuration of a client."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.config import masked
from sharedmem.faces.cli.app import command, mcp
from sharedmem.faces.cli.mcp_clients import CLIENTS, ServerEntry, client_named, merged, rendered, replace_file
from sharedmem.faces.cli.output import confirm, fields_table, print_answer
from sharedmem.faces.cli.session import Options, options_of
from sharedmem.models import Record
from sharedmem.redis.keys import check_name

if TYPE_CHECKING:
    from rich.table import Table


class InstalledClient(Record):
    """What was entered, and where."""

    client: str
    file: str
    server: str
    backup: str | None
    """What the file held before; None if there was no file."""
    next: str


@command("install", None, group=mcp, example="sharedmem -n tides mcp install claude-code --print")
def mcp_install(
    context: typer.Context,
    client: Annotated[
        str, typer.Argument(metavar="CLIENT", help=f"{', '.join(CLIENTS)}.", autocompletion=lambda: [*CLIENTS])
    ],
    name: Annotated[str, typer.Option(help="The server's name in the client.")] = "sharedmem",
    write: Annotated[bool, typer.Option("--write", help="Offer tools that change something too.")] = False,
    tools: Annotated[str, typer.Option(help="Profiles of tools, separated by commas; all if left out.")] = "",
    file: Annotated[Path | None, typer.Option(help="Another configuration file than the client's own.")] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Show what to enter, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Enter the MCP server in the configuration of a client, after showing it; all else in the file stays.

    The namespace, the actor and the URL are those of this command line.
    """
    found, options = client_named(client), options_of(context)
    entry = _entry_of(options, check_name("name", name), write=write, tools=tools)
    if only_print:
        typer.echo(rendered(found, entry), nl=False)
        return
    target = file or found.file()
    text = merged(found, entry, target)
    typer.echo(f"{target}:\n{rendered(found, _masked(entry))}", err=True)
    if not yes:
        confirm(lambda: f"Enter this for {found.title}?", "client", client, otherwise="say --yes, or --print")
    backup = replace_file(target, text)
    answer = InstalledClient(
        client=found.title,
        file=str(target),
        server=entry.name,
        backup=str(backup) if backup else None,
        next=f"{found.restart}: the tools of {entry.name!r} are there",
    )
    print_answer(options, answer, lambda: _picture(answer))


def _entry_of(options: Options, name: str, *, write: bool, tools: str) -> ServerEntry:
    settings = options.settings()
    if tools:
        from sharedmem.faces.mcp.options import check_profiles  # noqa: PLC0415  # an extra; it says itself how to get it

        check_profiles(tools.split(","))
    args = ["--namespace", settings.namespace, *(("--actor", settings.actor) if settings.actor else ())]
    if options.data_dir:
        args += ["--data-dir", str(options.data_dir.absolute())]
    args += ["serve", "mcp", *(("--write",) if write else ()), *(("--tools", tools) if tools else ())]
    # Programs with windows do not have the PATH of a shell.
    program = shutil.which("sharedmem")
    command, first = (program, []) if program else (sys.executable, ["-m", "sharedmem"])
    # Not as an argument, which every user of the machine could see.
    env = {"SHAREDMEM_REDIS_URL": settings.redis_url} if settings.redis_url else {}
    return ServerEntry(name, command, [*first, *args], env)


def _masked(entry: ServerEntry) -> ServerEntry:
    return entry._replace(env={key: masked(value) for key, value in entry.env.items()})


def _picture(answer: InstalledClient) -> Table:
    rows: list[tuple[str, object]] = [("file", answer.file), ("server", answer.server)]
    if answer.backup:
        rows.append(("before", answer.backup))
    return fields_table([*rows, ("next", answer.next)], title=f"Entered for {answer.client}")
