"""Commands for the Model Context Protocol: serve it, and enter the server in the configuration of a client.

A server talks over standard input and output, or over HTTP. A configuration file loses nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sharedmem.config import masked
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.cli.app import command, mcp, serve
from sharedmem.faces.cli.output import confirm, fields_table, print_answer
from sharedmem.faces.cli.serve import (
    AllowHost,
    Announce,
    Cors,
    Host,
    ListeningAt,
    PublicUrl,
    TlsCert,
    TlsKey,
    TokenPlaces,
    TrustNetwork,
    Workers,
    check_workers,
    run_workers,
    socket_of,
    stop_on_signals,
)
from sharedmem.faces.cli.session import Options, options_of, start_log, without_metrics
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.token_registry import admission_of
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.redis.keys import check_name

if TYPE_CHECKING:
    from rich.table import Table

    from sharedmem.faces.mcp import McpOptions, Profile


_LOCAL = "127.0.0.1"
_PORT = 8421
_USUAL_TOOLS = "memory,coordination,graph,notes"
_REFERENCE = "reference-memory"


class ServingMcp(Record):
    """Where the endpoint is, and who may call."""

    url: str
    tokens: str | None
    """Whose tokens are known; None if every caller is the actor of this command line."""
    memory: str
    namespace: str
    write: bool
    """Whether tools that change something are offered."""
    workers: int
    """Processes that answer."""


@command("mcp", None, group=serve, example="sharedmem serve mcp --write")
def serve_mcp(  # noqa: PLR0913, PLR0917  # each is an option
    context: typer.Context,
    http: Annotated[bool, typer.Option("--http", help="Serve HTTP instead of standard input and output.")] = False,
    tools: Annotated[
        str, typer.Option(help="Profiles of tools, separated by commas: memory, coordination, graph, notes, context.")
    ] = _USUAL_TOOLS,
    drop_in: Annotated[
        str | None,
        typer.Option("--as", help="Offer the tools of another server instead: reference-memory, over a graph of ours."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Offer tools that change something too.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer; the rest is on the next page.")] = 6000,
    host: Host = _LOCAL,
    port: Annotated[int, typer.Option(help="With --http; 0 takes a free one.")] = _PORT,
    tokens: TokenPlaces = None,
    workers: Workers = 1,
    sessions: Annotated[
        bool,
        typer.Option(help="Keep sessions of clients older than 2026-07-28 in the process; several workers never do."),
    ] = True,
    allow_host: AllowHost = None,
    cors: Cors = None,
    public_url: PublicUrl = "",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    trust_network: TrustNetwork = False,
    listening_at: ListeningAt = None,
) -> None:
    """Serve the memory to MCP clients, such as coding agents, until they leave or Ctrl-C; read-only without --write."""
    from sharedmem.faces.mcp import McpOptions  # noqa: PLC0415  # an extra; it says itself how to get it

    check_workers(workers)
    chosen = McpOptions(
        tools=_profiles(tools, drop_in),
        write=write,
        max_tokens=max_tokens,
        # One of several processes does not know the sessions of another one.
        sessions=sessions and workers == 1 and listening_at is None,
        hosts=tuple(allow_host or ()),
        origins=tuple(cors or ()),
        public_url=public_url,
    )
    options = options_of(context)
    if not http:
        if tokens:
            raise InvalidError("tokens", ", ".join(tokens), "tokens come over HTTP: add --http, or leave them out")
        if workers > 1:
            raise InvalidError("workers", workers, "several processes answer over HTTP: add --http, or leave it out")
        asyncio.run(_run_stdio(options, chosen))
        return
    address = ListenAddress(
        host=host, port=port, tls_cert_file=tls_cert, tls_key_file=tls_key, trust_network=trust_network
    )
    from sharedmem.faces.rest import quick_loop  # noqa: PLC0415  # likewise

    announce = _announcement(options, tokens or [], write=write, workers=workers)
    if workers > 1:
        asyncio.run(run_workers(options, address, tokens or [], announce, workers=workers))
        return
    with asyncio.Runner(loop_factory=quick_loop()) as runner:
        runner.run(_run_http(options, chosen, address, tokens or [], announce, socket_of(listening_at)))


def _profiles(tools: str, drop_in: str | None) -> tuple[Profile, ...]:
    from sharedmem.faces.mcp.options import check_profiles  # noqa: PLC0415  # as above

    if drop_in is not None and (drop_in != _REFERENCE or tools != _USUAL_TOOLS):
        raise InvalidError("as", drop_in, f"give {_REFERENCE} alone, without --tools")
    return check_profiles((drop_in or tools).split(","))


async def _run_stdio(options: Options, chosen: McpOptions) -> None:
    from sharedmem.faces.mcp import McpService  # noqa: PLC0415  # as above

    settings = without_metrics(options.settings())
    start_log(settings, is_service=True)
    async with Hub.open(settings=settings) as hub:
        caller = Bearer.of(settings.namespace, actor=settings.actor)
        await McpService(hub, bearer=caller, options=chosen).run_stdio()


async def _run_http(
    options: Options,
    chosen: McpOptions,
    address: ListenAddress,
    tokens: list[str],
    announce: Announce,
    listening: socket.socket | None,
) -> None:
    from sharedmem.faces.mcp import McpApplication, McpService  # noqa: PLC0415  # as above
    from sharedmem.faces.rest import RestServer  # noqa: PLC0415  # as above

    settings = without_metrics(options.settings())
    start_log(settings, is_service=True)
    hub = Hub.open(settings=settings)
    # An unreadable file is reported before a server is started or joined.
    admission = admission_of(hub, tokens)
    async with hub:
        caller = Bearer.of(settings.namespace, actor=settings.actor)
        app = McpApplication(McpService(hub, bearer=caller, options=chosen), admission, host=address.host)
        async with RestServer(app, address, has_tokens=bool(tokens), listening=listening) as server:
            with stop_on_signals(holds_on=listening is not None) as told:
                if listening is None:
                    announce(server.address, hub.url)
                await told.wait()


def _announcement(options: Options, tokens: list[str], *, write: bool, workers: int) -> Announce:
    def announce(real: ListenAddress, memory: str) -> None:
        serving = ServingMcp(
            url=f"{'https' if real.is_tls() else 'http'}://{real.address}/mcp",
            tokens=" and ".join(tokens) or None,
            memory=memory,
            namespace=options.settings().namespace,
            write=write,
            workers=workers,
        )
        print_answer(options, serving, lambda: _serving_picture(serving))

    return announce


def _serving_picture(serving: ServingMcp) -> Table:
    who = f"the tokens of {serving.tokens}" if serving.tokens else "every user of this machine"
    rows: list[tuple[str, object]] = [
        ("listens at", f"{serving.url}, {serving.workers} process(es)"),
        ("lets in", who),
        ("memory", serving.memory if serving.tokens else f"{serving.memory}, namespace {serving.namespace}"),
        ("changes", "allowed" if serving.write else "refused: start it with --write"),
        ("stop", "Ctrl-C: calls under way may end"),
    ]
    return fields_table(rows, title="MCP is served")


# -- entering the server in a client --------------------------------------------------------------


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
    print_answer(options, answer, lambda: _installed_picture(answer))


def _entry_of(options: Options, name: str, *, write: bool, tools: str) -> ServerEntry:
    settings = options.settings()
    if tools:
        from sharedmem.faces.mcp.options import check_profiles  # noqa: PLC0415  # as above

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


def _installed_picture(answer: InstalledClient) -> Table:
    rows: list[tuple[str, object]] = [("file", answer.file), ("server", answer.server)]
    if answer.backup:
        rows.append(("before", answer.backup))
    return fields_table([*rows, ("next", answer.next)], title=f"Entered for {answer.client}")


# -- configuration files of clients ---------------------------------------------------------------


_BACKUP = ".before-sharedmem"


class ServerEntry(NamedTuple):
    """How a client starts the server."""

    name: str
    command: str
    args: Sequence[str]
    env: Mapping[str, str]

    def fields(self) -> dict[str, Any]:
        """Return the entry as clients write it."""
        return {"command": self.command, "args": list(self.args), **({"env": dict(self.env)} if self.env else {})}


class McpClient(NamedTuple):
    """One kind of client."""

    title: str
    file: Callable[[], Path]
    section: str
    """The name of the object, or table, that holds servers by name."""
    extra: Mapping[str, str] = {}
    """Further fields of an entry."""
    restart: str = "restart it"
    """What makes the client read the file."""

    @property
    def is_toml(self) -> bool:
        """Whether the file is TOML; otherwise it is JSON."""
        return self.section == "mcp_servers"


def _application_data() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
    return Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))


CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient(
        "Claude Code", lambda: Path.cwd() / ".mcp.json", "mcpServers", restart="start it in this folder"
    ),
    "claude-desktop": McpClient(
        "Claude Desktop", lambda: _application_data() / "Claude" / "claude_desktop_config.json", "mcpServers"
    ),
    "cursor": McpClient("Cursor", lambda: Path.home() / ".cursor" / "mcp.json", "mcpServers"),
    "vscode": McpClient(
        "VS Code",
        lambda: Path.cwd() / ".vscode" / "mcp.json",
        "servers",
        {"type": "stdio"},
        restart="open this folder and start the server there",
    ),
    "codex": McpClient(
        "Codex", lambda: Path(os.environ.get("CODEX_HOME", Path.home() / ".codex")) / "config.toml", "mcp_servers"
    ),
}


def client_named(name: str) -> McpClient:
    """Return a kind of client.

    Raises:
        InvalidError: it is not known.
    """
    if name not in CLIENTS:
        raise InvalidError("client", name, f"choose one of {', '.join(CLIENTS)}; others take what --print shows")
    return CLIENTS[name]


def rendered(client: McpClient, entry: ServerEntry) -> str:
    """Return a whole file that holds nothing but the entry."""
    if client.is_toml:
        return _toml_table(entry)
    return _json_text({client.section: {entry.name: {**client.extra, **entry.fields()}}})


def merged(client: McpClient, entry: ServerEntry, file: Path) -> str:
    """Return what a file becomes with the entry; all else in it stays as it is.

    Raises:
        ConfigError: the file cannot be read, or not be changed without risk to what else it holds.
    """
    try:
        before = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return rendered(client, entry)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, str(error)) from error
    return _merged_toml(before, entry, file) if client.is_toml else _merged_json(before, client, entry, file)


def replace_file(file: Path, text: str) -> Path | None:
    """Write a file as a whole, and keep what was there beside it; return where, None if nothing was there.

    Raises:
        ConfigError: it cannot be written.
    """
    backup = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        target = file.resolve()  # a link stays a link
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(text)
            if target.exists():
                backup = target.with_name(target.name + _BACKUP)
                backup.write_bytes(target.read_bytes())
                mode = stat.S_IMODE(target.stat().st_mode)
                backup.chmod(mode)
                Path(temporary).chmod(mode)
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError("client file", str(file), f"it cannot be written ({error.strerror or error})") from error
    return backup


def _merged_json(before: str, client: McpClient, entry: ServerEntry, file: Path) -> str:
    try:
        held = json.loads(before) if before.strip() else {}
    except ValueError as error:
        # Some clients allow comments, which a rewrite would lose.
        raise _unreadable(file, f"not plain JSON: {error}") from error
    servers = held.setdefault(client.section, {}) if isinstance(held, dict) else None
    if not isinstance(servers, dict):
        raise _unreadable(file, f"its {client.section!r} is no object")
    servers[entry.name] = {**client.extra, **entry.fields()}
    return _json_text(held)


def _merged_toml(before: str, entry: ServerEntry, file: Path) -> str:
    try:
        held = tomllib.loads(before)
        servers = held.setdefault("mcp_servers", {})
        servers.pop(entry.name, None)
        kept = _without_table(before, f"mcp_servers.{_toml_key(entry.name)}")
        after = f"{kept.rstrip()}\n\n" * bool(kept.strip()) + _toml_table(entry)
        found = tomllib.loads(after)
        found["mcp_servers"].pop(entry.name)
    except (ValueError, AttributeError, KeyError) as error:
        raise _unreadable(file, f"not as expected: {error}") from error
    if found != held:
        raise _unreadable(file, f"the entry {entry.name!r} is there in a form that is not understood")
    return after


def _without_table(text: str, name: str) -> str:
    """Return TOML without a table and the tables within it."""
    kept: list[str] = []
    waiting: list[str] = []  # comments behind the table may be those of the next one
    is_inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            header = line.strip().strip("[]").strip()
            is_inside = header == name or header.startswith(f"{name}.")
        if is_inside and line.strip() and not line.lstrip().startswith("#"):
            waiting = []
        elif is_inside:
            waiting.append(line)
        else:
            kept += [*waiting, line]
            waiting = []
    return "".join([*kept, *waiting])


def _toml_table(entry: ServerEntry) -> str:
    # A text of JSON is one of TOML.
    name = f"mcp_servers.{_toml_key(entry.name)}"
    lines = [f"[{name}]", f"command = {_quoted(entry.command)}", f"args = [{', '.join(map(_quoted, entry.args))}]"]
    if entry.env:
        lines += ["", f"[{name}.env]", *(f"{key} = {_quoted(value)}" for key, value in entry.env.items())]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if all(each.isalnum() or each in "-_" for each in name) and name.isascii() else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _unreadable(file: Path, problem: str) -> ConfigError:
    return ConfigError("client file", str(file), f"{problem}; nothing was changed: enter what --print shows by hand")
