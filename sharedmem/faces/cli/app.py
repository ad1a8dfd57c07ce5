"""The tree of commands, empty: its global options, its groups, and how a command joins it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sharedmem import __version__
from sharedmem.faces.cli.session import Options

Command = TypeVar("Command", bound=Callable[..., None])

ORDER = (
    *("get", "set", "rm", "ls", "incr", "append", "list"),
    *("publish", "subscribe", "watch"),
    *("lock", "leader"),
    *("presence", "limits"),
    *("remember", "recall", "evolution", "fsck", "archive", "forget", "embed"),
    *("usage", "clear", "acl"),
    *("restore", "export", "import", "copy", "backfill"),
    *("up", "down", "status", "metrics", "demo", "doctor", "config", "redis-cli"),
)
"""How the overview lists the commands."""
DATA, LIVE, NAMESPACE, SERVER = "Shared data", "Live", "A namespace as a whole", "Server and installation"
AGREEMENT, DURABLE, MEMORY = "Agreement", "What lasts", "Memory"

app = typer.Typer(
    name="sharedmem",
    help="The shared memory of your agents, from the shell.\n\n"
    "Tables on a terminal, JSON to a pipe or with --json. Without a URL a private server of this machine is used. "
    "Options below may stand before or after the command.",
    epilog="Try:  sharedmem demo",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
hashes = typer.Typer(help="Facts about one thing, field by field; `hash KEY` shows them all.")
members = typer.Typer(help="Unique things; `members KEY` shows them all.")
app.add_typer(hashes, name="hash", rich_help_panel=DATA, epilog="Try:  sharedmem hash agent:planner")
app.add_typer(members, name="members", rich_help_panel=DATA, epilog="Try:  sharedmem members topics")
serve = typer.Typer(help="Let agents of other machines and languages in, until Ctrl-C.")
app.add_typer(serve, name="serve", rich_help_panel=SERVER, epilog="Try:  sharedmem serve rest")
tokens = typer.Typer(help="Tokens by which servers know their callers: made here, shown once, taken back here.")
app.add_typer(tokens, name="token", rich_help_panel=SERVER, epilog="Try:  sharedmem token create --actor planner")

plans = typer.Typer(help="What agents decided and how that went; `plans SESSION` shows the newest plans.")
app.add_typer(plans, name="plans", rich_help_panel=AGREEMENT, epilog="Try:  sharedmem plans desk")
queues = typer.Typer(help="Tasks that are handed out, each done at least once; `queue NAME` shows what is in a queue.")
app.add_typer(queues, name="queue", rich_help_panel=AGREEMENT, epilog="Try:  sharedmem queue put jobs hello")

durable = typer.Typer(help="The durable tier, which keeps what must last.")
app.add_typer(durable, name="durable", rich_help_panel=DURABLE, epilog="Try:  sharedmem durable status")

memories = typer.Typer(help="What agents remember; `memories list` shows the newest.")
app.add_typer(memories, name="memories", rich_help_panel=MEMORY, epilog="Try:  sharedmem memories list")
threads = typer.Typer(help="Conversations, and what was said in them.")
app.add_typer(threads, name="thread", rich_help_panel=MEMORY, epilog="Try:  sharedmem thread stats main")
graph = typer.Typer(help="What was true of the world, and what was known of it when; each group has a graph.")
app.add_typer(graph, name="graph", rich_help_panel=MEMORY, epilog="Try:  sharedmem graph groups")
notes = typer.Typer(help="What conversations became: notes that are consolidated and superseded, never lost.")
app.add_typer(notes, name="notes", rich_help_panel=MEMORY, epilog="Try:  sharedmem notes find address --app shop")
tasks = typer.Typer(help="What synthesis was asked to do, and how far that is.")
app.add_typer(tasks, name="task", rich_help_panel=MEMORY, epilog="Try:  sharedmem task list")
cache = typer.Typer(help="Answers that somebody has paid for already.")
app.add_typer(cache, name="cache", rich_help_panel=MEMORY, epilog="Try:  sharedmem cache stats")
index = typer.Typer(help="The indexes by which memories and answers are found.")
app.add_typer(index, name="index", rich_help_panel=MEMORY, epilog="Try:  sharedmem index list")

USUAL = {
    "serve": (serve, "rest"),
    "hash": (hashes, "all"),
    "members": (members, "list"),
    "plans": (plans, "list"),
    "queue": (queues, "stats"),
}
"""What a group does when none of its commands is named."""

NUMBERS = {"ignore_unknown_options": True}
"""Lets a command take negative numbers as arguments."""
PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Lets a command take whatever follows as arguments."""


def command(
    name: str, panel: str | None, *, example: str, group: typer.Typer = app, words: dict[str, bool] | None = None
) -> Callable[[Command], Command]:
    """Register a command; its docstring is its help, which ends with the example as a line to paste.

    Args:
        name: what people type.
        panel: the heading it stands under in the overview; None inside a group.
        example: a whole command line.
        group: where it belongs.
        words: `NUMBERS` or `PASSED_ON`, where words that begin with a dash are no options.
    """
    return group.command(name, epilog=f"Try:  {example}", rich_help_panel=panel, context_settings=words)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sharedmem {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Server to use; without it SHAREDMEM_REDIS_URL, else the embedded one.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace of plain keys, those without a colon.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Act with the rights of this actor; without it you may do everything.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, also on a terminal.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of the embedded server.")] = None,
    version: Annotated[  # noqa: ARG001  its callback has answered by then
        bool, typer.Option("--version", help="Tell the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = Options(url=url, namespace=namespace, actor=actor, json=json, data_dir=data_dir)
