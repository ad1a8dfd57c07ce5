"""The command line as a whole: global options, groups, how a command is registered, and how the process runs one.

Errors are printed in one sentence, and outcomes become exit codes. A command that runs one operation of the table is
declared by its arguments and by how a person sees the answer.
"""

from __future__ import annotations

import inspect
import io
import os
import signal
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar

import typer
from typer.core import TyperGroup

from sharedmem import __version__
from sharedmem.api.operation import find_operation
from sharedmem.errors import NotFoundError, SharedMemoryError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.completion import rejoin_words_at_colons
from sharedmem.faces.cli.output import print_answer
from sharedmem.faces.cli.session import Options, options_of, perform, stop_log

if TYPE_CHECKING:
    from rich.console import RenderableType


Command = TypeVar("Command", bound=Callable[..., None])

_COMMANDS_BY_MODULE = (
    ("data", ("get", "set", "delete", "ls", "incr", "append", "list", "hash", "members")),
    ("data", ("publish", "subscribe", "watch")),
    ("coordination", ("lock", "leader", "locks", "revoke", "presence", "limits")),
    ("plans", ("plans",)),
    ("coordination", ("queue",)),
    ("memories", ("recall", "remember")),
    ("memories", ("memories", "thread")),
    ("conversations", ("conversation",)),
    ("embeddings", ("calibrate",)),
    ("graph", ("graph",)),
    ("notes", ("evolution", "fsck", "archive", "notes", "task")),
    ("cache", ("cache",)),
    ("embeddings", ("embed", "index")),
    ("data", ("usage", "clear", "acl")),
    ("durable", ("restore", "durable")),
    ("archives", ("export", "import", "copy", "backfill")),
    ("archives", ("exports",)),
    ("server", ("up", "down", "status")),
    ("tokens", ("token",)),
    ("serve", ("metrics",)),
    ("serve", ("console",)),
    ("mcp", ("serve",)),  # imports the other commands that serve
    ("mcp", ("mcp",)),
    ("installation", ("demo", "doctor", "config")),
    ("server", ("redis-cli",)),
)
MODULE_OF = {name: module for module, names in _COMMANDS_BY_MODULE for name in names}
"""The module of each command and group, in the order in which the overview lists commands."""
DATA, LIVE, NAMESPACE, SERVER = "Shared data", "Live", "A namespace as a whole", "Server and installation"
COORDINATION, DURABLE, MEMORY = "Agreement", "What lasts", "Memory"


class _Root(TyperGroup):
    """The command line as a whole; what is completed is put in order first, as what is run."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of some words."""
        words = tuple(args)
        is_completed = extra.get("resilient_parsing", False)
        context = super().make_context(
            info_name, _normalize_for_completion(args) if is_completed else args, parent, **extra
        )
        context.meta[completion.WORDS] = words
        return context

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # as the framework calls it
        """Write the names of all commands by their headings: the whole overview fits on one screen."""
        by_panel: dict[str, list[str]] = {}
        commands: Mapping[str, Any] = self.commands
        for name, found in commands.items():
            if not found.hidden:
                by_panel.setdefault(found.rich_help_panel, []).append(name)
        with formatter.section("Commands (sharedmem COMMAND --help describes one)"):
            formatter.write_dl([(panel, ", ".join(names)) for panel, names in by_panel.items()])


class _NamedGroup(TyperGroup):
    """A group that may be followed by a name instead of a command."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands that begin so, and the names that the usual command takes."""
        found = super().shell_complete(ctx, incomplete)
        usual = self.get_command(ctx, DEFAULT_COMMANDS[str(ctx.info_name)].named)
        if usual is None:
            return found
        first = next(param for param in usual.params if param.param_type_name == "argument")
        return [*found, *first.shell_complete(ctx, incomplete)]


app = typer.Typer(
    name="sharedmem",
    cls=_Root,
    help="The shared memory of your agents, from the shell.\n\n"
    "Tables on a terminal, JSON to a pipe or with --json. Without a URL a private server of this machine is used. "
    "Options below may be before or after the command.",
    epilog="Try:  sharedmem demo",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
hashes = typer.Typer(cls=_NamedGroup, help="Hashes: fields and values under one key; `hash KEY` shows them all.")
members = typer.Typer(cls=_NamedGroup, help="Sets: unique members under one key; `members KEY` shows them all.")
app.add_typer(hashes, name="hash", rich_help_panel=DATA, epilog="Try:  sharedmem hash agent:planner")
app.add_typer(members, name="members", rich_help_panel=DATA, epilog="Try:  sharedmem members topics")
serve = typer.Typer(help="Serve agents of other machines and languages, until Ctrl-C; `serve` alone serves REST.")
app.add_typer(serve, name="serve", rich_help_panel=SERVER, epilog="Try:  sharedmem serve rest")
mcp = typer.Typer(help="Coding agents and assistants as clients of `serve mcp`.")
app.add_typer(mcp, name="mcp", rich_help_panel=SERVER, epilog="Try:  sharedmem mcp install claude-code")
tokens = typer.Typer(help="Tokens that identify callers to servers, each shown once; `token` lists them.")
app.add_typer(tokens, name="token", rich_help_panel=SERVER, epilog="Try:  sharedmem token create --actor planner")

plans = typer.Typer(help="Plans of agents and their executions; `plans` lists sessions, `plans SESSION` its plans.")
app.add_typer(plans, name="plans", rich_help_panel=COORDINATION, epilog="Try:  sharedmem plans desk")
queues = typer.Typer(
    cls=_NamedGroup, help="Tasks, each done at least once; `queue` lists the queues, `queue NAME` shows one."
)
app.add_typer(queues, name="queue", rich_help_panel=COORDINATION, epilog="Try:  sharedmem queue put jobs hello")

durable = typer.Typer(help="The durable tier, which keeps what must last; `durable` shows its state.")
app.add_typer(durable, name="durable", rich_help_panel=DURABLE, epilog="Try:  sharedmem durable status")

exports = typer.Typer(help="Daily exports in a folder, and restore drills; `exports` lists them.")
app.add_typer(exports, name="exports", rich_help_panel=DURABLE, epilog="Try:  sharedmem exports run --folder exports")

memories = typer.Typer(help="What agents remember; `memories` lists the newest, `memories ID` shows one.")
app.add_typer(memories, name="memories", rich_help_panel=MEMORY, epilog="Try:  sharedmem memories list")
threads = typer.Typer(help="Memories by thread; `thread ID` shows one.")
app.add_typer(threads, name="thread", rich_help_panel=MEMORY, epilog="Try:  sharedmem thread stats main")
conversations = typer.Typer(
    help="Ordered logs with a revision and a state; `conversation` lists them, `conversation ID` shows entries."
)
app.add_typer(
    conversations, name="conversation", rich_help_panel=MEMORY, epilog="Try:  sharedmem conversation entries ticket-7"
)
graph = typer.Typer(
    help="Knowledge graphs with valid time and transaction time; `graph` lists the groups, each of which has a graph."
)
app.add_typer(graph, name="graph", rich_help_panel=MEMORY, epilog="Try:  sharedmem graph groups")
notes = typer.Typer(help="Notes made of conversations; `notes` lists the apps, `notes ID --app APP` shows a note.")
app.add_typer(notes, name="notes", rich_help_panel=MEMORY, epilog="Try:  sharedmem notes search address --app shop")
tasks = typer.Typer(help="Tasks of synthesis; `task` lists the ones that are not done, `task ID` shows one.")
app.add_typer(tasks, name="task", rich_help_panel=MEMORY, epilog="Try:  sharedmem task list")
cache = typer.Typer(help="Answers of models that were paid for once; `cache` shows its statistics.")
app.add_typer(cache, name="cache", rich_help_panel=MEMORY, epilog="Try:  sharedmem cache stats")
index = typer.Typer(help="Search indexes of memories and cached answers; `index` lists them.")
app.add_typer(index, name="index", rich_help_panel=MEMORY, epilog="Try:  sharedmem index list")


class DefaultCommands(NamedTuple):
    """What a group does when none of its commands is named: it looks, and changes nothing (`serve` serves)."""

    group: typer.Typer
    alone: str = ""
    """With no further word: list what there is. Without such a list, the help is shown."""
    named: str = ""
    """With the name of one thing: show that."""
    flagged: str = ""
    """With a flag before everything else; without it as with a name, or alone."""

    def of(self, words: Sequence[str]) -> str:
        """The command that is meant by the words behind the group; nothing when none is."""
        if not words:
            return self.alone
        return (self.flagged or self.named or self.alone) if words[0].startswith("-") else self.named


DEFAULT_COMMANDS = {
    "hash": DefaultCommands(hashes, named="all"),
    "members": DefaultCommands(members, named="list"),
    "serve": DefaultCommands(serve, alone="rest"),
    "token": DefaultCommands(tokens, alone="list"),
    "plans": DefaultCommands(plans, alone="sessions", named="list"),
    "queue": DefaultCommands(queues, alone="list", named="stats"),
    "durable": DefaultCommands(durable, alone="status"),
    "exports": DefaultCommands(exports, alone="list"),
    "memories": DefaultCommands(memories, alone="list", named="get", flagged="list"),
    "thread": DefaultCommands(threads, named="stats"),
    "conversation": DefaultCommands(conversations, alone="list", named="entries", flagged="list"),
    "graph": DefaultCommands(graph, alone="groups"),
    "notes": DefaultCommands(notes, alone="apps", named="get"),
    "task": DefaultCommands(tasks, alone="list", named="get", flagged="list"),
    "cache": DefaultCommands(cache, alone="stats"),
    "index": DefaultCommands(index, alone="list"),
}

FORMER_NAMES: Mapping[str, str] = {
    "rm": "delete",
    "hash del": "hash delete",
    "members remove": "members delete",
    "memories show": "memories get",
    "memories forget": "memories delete",
    "forget": "notes erase",
    "notes find": "notes search",
    "notes show": "notes get",
    "notes rm": "notes delete",
    "task show": "task get",
    "graph ask": "graph search",
    "cache invalidate": "cache delete",
}
"""Commands that have another name since 0.2. The former one works with a notice until 0.3, and is in no help."""

NUMBERS = {"ignore_unknown_options": True}
"""Lets a command take negative numbers as arguments."""
PASS_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Lets a command take whatever follows as arguments."""


def command(
    name: str, panel: str | None, *, example: str, group: typer.Typer = app, words: dict[str, bool] | None = None
) -> Callable[[Command], Command]:
    """Register a command; its docstring is its help, which ends with the example as a line to paste.

    Args:
        name: what people type.
        panel: its heading in the overview; None inside a group.
        example: a whole command line.
        group: where it belongs.
        words: `NUMBERS` or `PASS_THROUGH`, where words that begin with a dash are no options.
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
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace of plain keys, those without a colon.",
            autocompletion=completion.namespaces,
        ),
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Act with the rights of this actor; without it you may do everything.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, also on a terminal.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of the embedded server.")] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = Options(url=url, namespace=namespace, actor=actor, json=json, data_dir=data_dir)


# -- words put in order ---------------------------------------------------------------------------

_WITH_VALUE = frozenset({"--url", "--namespace", "-n", "--actor", "--data-dir"})
_FLAGS = frozenset({"--json"})
_HELP = frozenset({"--help", "-h"})
_PASSES_ON = "redis-cli"
_NEAR = 0.8


def load_commands(words: Sequence[str] = ()) -> typer.Typer:
    """Import the module of the command that some words begin with; every module, if they begin with none.

    One command needs a small part of the program; help, completion and advice on a wrong word need all commands.

    Args:
        words: a command line without its global options.

    Returns:
        The command line with only that command or group, since to build all takes as long as to run one; or all of it.
    """
    wanted = MODULE_OF.get(words[0]) if words else None
    for module in {wanted} if wanted else dict.fromkeys(MODULE_OF.values()):
        import_module(f"{__package__}.{module}")
    order = list(MODULE_OF)
    app.registered_commands.sort(key=lambda found: order.index(str(found.name)))
    if wanted is None:
        return app
    part = copy(app)
    part.registered_commands = [one for one in app.registered_commands if one.name == words[0]]
    part.registered_groups = [one for one in app.registered_groups if one.name == words[0]]
    return part


def _normalize_for_completion(arguments: Sequence[str]) -> list[str]:
    """The words with the global options first, as `run` has them; behind a group alone anything may come."""
    leading, words = _split_global_options(arguments)
    return [*leading, *(_insert_default_command(words) if len(words) > 1 else words)]


def _split_global_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    leading: list[str] = []
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--" or (words or [""])[0] == _PASSES_ON:
            words += [word, *rest]
            break
        if word in _WITH_VALUE:
            leading += [word, *rest[:1]]
            del rest[:1]
        elif word in _FLAGS or word.partition("=")[0] in _WITH_VALUE:
            leading.append(word)
        else:
            words.append(word)
    return leading, words


def _rename_former_command(words: list[str]) -> list[str]:
    """Return the words with the name that a command has now; a former name is noticed on standard error."""
    for count in (1, 2):
        former = " ".join(words[:count])
        if name := FORMER_NAMES.get(former):
            sys.stderr.write(f"sharedmem: `{former}` is now `{name}`; the former name works until version 0.3\n")
            return [*name.split(), *words[count:]]
    return words


def _insert_default_command(words: list[str]) -> list[str]:
    """The words with the usual command of a group, where none is named."""
    if not words or words[0] not in DEFAULT_COMMANDS:
        return words
    name, *rest = words
    usual = DEFAULT_COMMANDS[name]
    known = [str(command.name) for command in usual.group.registered_commands]
    if rest[:1] and (rest[0] in {*_HELP, *known} or _is_mistyped_command(rest)):
        return words
    meant = usual.of(rest)
    if rest and meant == usual.named and (near := get_close_matches(rest[0], known, n=1, cutoff=_NEAR)):
        sys.stderr.write(f"sharedmem: note: {rest[0]!r} is taken for a name; the command is `{name} {near[0]}`\n")
    return [name, meant, *rest] if meant else [name, *(rest or ["--help"])]


def _is_mistyped_command(rest: Sequence[str]) -> bool:
    """Return whether a word behind a group cannot be the name of a thing: help is asked for it, or a word follows."""
    if rest[0].startswith("-"):
        return False
    return not _HELP.isdisjoint(rest[1:]) or (len(rest) > 1 and not rest[1].startswith("-"))


# -- commands that run one operation --------------------------------------------------------------


Picture = TypeVar("Picture", bound="Callable[..., RenderableType]")


class Reads(NamedTuple):
    """In the annotation of an argument: makes a field of the request of what was given."""

    read: Callable[[Any], Any]


def operation_command(
    operation: str,
    name: str,
    panel: str | None = None,
    *,
    example: str,
    group: typer.Typer = app,
    words: dict[str, bool] | None = None,
    request: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
) -> Callable[[Picture], Picture]:
    """Register a command that runs an operation and prints its answer; the decorated function draws it for a person.

    The function's first parameter is the answer. The others are the arguments and options of the command, and under
    the same names (`id_` for `id`) the fields of the request. What the caller leaves out, the operation decides.

    Args:
        operation: its name in the table.
        request: makes the fields of the request of those of the command, where they differ.
        name, panel, example, group, words: as `command`.
    """

    def register(draw: Picture) -> Picture:
        _, *declared = inspect.signature(draw).parameters.values()

        def run(context: typer.Context, **given: Any) -> None:
            options = options_of(context)
            fields = request(_fields(hints, given))
            found = perform(options, operation, **fields)
            if found is None:
                _check_absence(operation, fields)
            print_answer(options, found, lambda: draw(found, **given))

        # The types of the answer and of the picture are not imported at run time.
        run.__annotations__ = {one.name: one.annotation for one in declared}
        hints = typing.get_type_hints(run, draw.__globals__, include_extras=True)
        run.__annotations__ = {"context": typer.Context, **hints}
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY)
        parameters = [context, *(one.replace(kind=one.KEYWORD_ONLY) for one in declared)]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # it is what typer reads
            [one.replace(annotation=run.__annotations__[one.name]) for one in parameters]
        )
        run.__doc__, run.__name__, run.__module__ = draw.__doc__, draw.__name__, draw.__module__
        command(name, panel, example=example, group=group, words=words)(run)
        return draw

    return register


def _check_absence(operation: str, fields: Mapping[str, Any]) -> None:
    """Check that nothing is an answer of an operation, and does not mean that what was asked for does not exist.

    Raises:
        NotFoundError: it means that.
    """
    route = find_operation(operation).http
    if route.absent:
        asked = route.path.rpartition("{")[2].partition("}")[0]
        raise NotFoundError(route.absent, str(fields[asked]))


def _fields(hints: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request, without fields that were not given."""
    return {name.rstrip("_"): _read(hints[name], value) for name, value in given.items() if value is not None}


def _read(hint: Any, value: Any) -> Any:
    """The value of a field; of a list, each word is read by itself."""
    reads = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Reads)), None)
    if reads is None:
        return value
    return [reads.read(word) for word in value] if isinstance(value, list) else reads.read(value)


# -- the process ----------------------------------------------------------------------------------


INTERRUPTED, BROKEN_PIPE, SYSTEM = 130, 1, 74


def main() -> None:
    """Run the command line of this process and leave it with the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: the command leaves the embedded server, which would else run on without users.
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    _prepare_output()
    rejoin_words_at_colons(os.environ)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code, which is that of the error table where there was an error."""
    try:
        leading, words = _split_global_options(arguments)
        words = _rename_former_command(words)
        part = load_commands(words or _split_global_options(completion.words_before(os.environ))[1])
        words = _insert_default_command(words)
        code = part(args=[*leading, *words] or ["--help"], prog_name="sharedmem", standalone_mode=False)
        sys.stdout.flush()
    except SharedMemoryError as error:
        return _print_error(error.message_for("flags"), error.codes.exit_code)
    except typer.TyperException as error:
        return _print_error(_usage_message(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left; what is still buffered must not fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _print_error(f"{error.strerror or error}: {error.filename or 'output'}", SYSTEM)
    finally:
        stop_log()
    return code if isinstance(code, int) else 0


def _prepare_output() -> None:
    """Let no locale and no missing stream come between an answer and its reader."""
    sys.stdout, sys.stderr = sys.stdout or _open_null(), sys.stderr or _open_null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # JSON is UTF-8 whatever the locale says; a terminal knows better what it can show.
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="backslashreplace")


def _open_null() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _usage_message(error: typer.TyperException) -> str:
    """What is wrong with the words, and where to read on."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "sharedmem")
    hint = "; put -- before a value that begins with a dash" if message.startswith("No such option") else ""
    return f"{message[:1].lower()}{message[1:]}{hint}; see {path} --help" if message else f"see {path} --help"


def _print_error(sentence: str, code: int) -> int:
    sys.stderr.write(f"sharedmem: {sentence}\n")
    return code
