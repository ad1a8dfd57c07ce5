"""The command that shows what agents know and do: the REST service on this machine, and a page in the browser."""

from __future__ import annotations

import asyncio
import getpass
import re
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.output import fields_table, print_answer
from sharedmem.faces.cli.process_log import start_log
from sharedmem.faces.cli.serve import resume_tasks, stop_on_signals
from sharedmem.faces.cli.session import Options, options_of, without_metrics
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.redis.scope import Grant

if TYPE_CHECKING:
    from rich.table import Table

_LOCAL = "127.0.0.1"
_NO_NAME = re.compile(r"[^a-z0-9_-]+")


class OpenConsole(Record):
    """Where the page is, and for whom."""

    url: str
    """Lets one person in, once, within ten minutes."""
    namespace: str
    actor: str
    """Under this name the changes that are made in it are on the feed."""
    write: bool
    memory: str


@command("console", SERVER, example="sharedmem console --no-browser")
def console(
    context: typer.Context,
    write: Annotated[bool, typer.Option("--write", help="Let the page change things too, under your name.")] = False,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.", min=0, max=65_535)] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link and open no browser.")] = False,
) -> None:
    """Show what agents remember and do, in a page of this machine, until Ctrl-C.

    The link lets one person in, once: read-only unless --write. For a team: sharedmem serve rest --console --tokens.
    """
    from sharedmem.faces.rest import quick_loop  # noqa: PLC0415  # an extra; it says itself how to get it

    options = options_of(context)
    with asyncio.Runner(loop_factory=quick_loop()) as runner:
        runner.run(_run(options, port=port, write=write, opens_browser=not no_browser))


async def _run(options: Options, *, port: int, write: bool, opens_browser: bool) -> None:
    async with open_console(options, port=port, write=write, opens_browser=opens_browser) as told:
        await told.wait()


@asynccontextmanager
async def open_console(
    options: Options, *, namespace: str | None = None, port: int, write: bool, opens_browser: bool
) -> AsyncIterator[asyncio.Event]:
    """Serve the page while the block runs, and print its link; yields what is set by Ctrl-C.

    Args:
        options: of the command.
        namespace: what is looked at; None: that of the options.
        port: on this machine; 0 takes a free one.
        write: whether the person may change things.
        opens_browser: whether a browser is opened on a terminal.
    """
    from sharedmem.faces.rest import Console, LoginCode, RestServer, create_app  # noqa: PLC0415  # likewise

    # The page is for one person, whose rights its token tells; what this process may do is another matter.
    settings = without_metrics(options.settings()).replace(access="namespaced")
    start_log(settings, is_service=True)
    namespace, actor = namespace or settings.namespace, settings.actor or _person()
    everything = Grant(pattern=f"{namespace}:*", writes=write)
    bearer = Bearer.of(
        namespace, actor=actor, grants=[everything], operator=True, administrator=True, read_only=not write
    )
    token, entry = new_token(bearer, label="console")
    login = LoginCode(token)
    page = Console(login)
    async with Hub.open(settings=settings) as hub:
        app = create_app(hub, admission=TokenFile([entry]), console=page)
        async with RestServer(app, ListenAddress(host=_LOCAL, port=port), has_tokens=True) as server:
            await resume_tasks(hub, namespace)
            link = f"{server.url}/console/#/login?code={login.code}"
            shown = OpenConsole(url=link, namespace=namespace, actor=actor, write=write, memory=hub.url)
            with stop_on_signals() as told:
                print_answer(options, shown, lambda: _picture(shown))
                if opens_browser and sys.stdout.isatty():
                    await asyncio.to_thread(webbrowser.open, link)
                yield told


def _person() -> str:
    """Return the name under which a person changes things: that of the account, as a name may be spelled."""
    try:
        account = getpass.getuser()
    except (OSError, KeyError):
        account = ""
    return _NO_NAME.sub("-", account.lower()).strip("-")[:60] or "person"


def _picture(shown: OpenConsole) -> Table:
    rows: list[tuple[str, object]] = [
        ("open", shown.url),
        ("lets in", "one person, once, within ten minutes"),
        ("as", f"{shown.actor}, who may {'change things' if shown.write else 'look (--write to change things)'}"),
        ("memory", f"{shown.memory}, namespace {shown.namespace}"),
        ("stop", "Ctrl-C"),
    ]
    return fields_table(rows, title="The console")
