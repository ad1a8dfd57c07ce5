"""Commands that serve: REST, gRPC, metrics, in one process or in several; and the console on this machine."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

import typer

from sharedmem.config import Settings
from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.cli.app import SERVER, command, serve
from sharedmem.faces.cli.output import fields_table, print_answer
from sharedmem.faces.cli.session import Options, options_of, start_log, without_metrics
from sharedmem.faces.listen_address import ListenAddress, check_access
from sharedmem.faces.token_registry import admission_of
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.redis.scope import Grant
from sharedmem.runtime import get_logger

if TYPE_CHECKING:
    from rich.table import Table

    from sharedmem.faces.grpc import GrpcAddress
    from sharedmem.faces.mcp import McpOptions
    from sharedmem.faces.rest import RestOptions


Host = Annotated[str, typer.Option(help="Address to listen at; others than loopback need tokens and TLS.")]
Port = Annotated[int, typer.Option(help="0 takes a free one.")]
TokenPlaces = Annotated[
    list[str] | None,
    typer.Option(
        help="Who may call: `registry`, or a YAML or JSON file of tokens or of an issuer of JWTs; may be repeated."
    ),
]
TlsCert = Annotated[Path | None, typer.Option(help="PEM file of the certificate, with its chain.")]
TlsKey = Annotated[Path | None, typer.Option(help="PEM file of its key.")]
AllowHost = Annotated[list[str] | None, typer.Option(help="Further value of the Host header; may be repeated.")]
Cors = Annotated[list[str] | None, typer.Option(help="Origin of pages that browsers may let in; may be repeated.")]
PublicUrl = Annotated[str, typer.Option(help="Address of the endpoint of MCP as clients see it.")]
Workers = Annotated[int, typer.Option(help="Processes that answer, one for each core.")]
ListeningAt = Annotated[int | None, typer.Option("--fd", hidden=True)]
TrustNetwork = Annotated[bool, typer.Option("--trust-network", help="Let other machines in without tokens or TLS.")]
_LOCAL = "127.0.0.1"
_END_WITHIN_S = 20.0
_PAUSE_S = 1.0
_COMMAND_LINE = "from sharedmem.faces.cli import main; main()"
_log = get_logger("serve")


class WorkerProcesses:
    """The command line of this process several times, each with the same socket to listen at.

    Args:
        shared: a socket that listens.
        size: how many processes.
    """

    def __init__(self, shared: socket.socket, *, size: int) -> None:
        self._shared = shared
        self._size = size
        self._members: set[asyncio.subprocess.Process] = set()
        self._keepers: list[asyncio.Task[None]] = []

    async def _start_worker(self) -> asyncio.subprocess.Process:
        number = self._shared.fileno()
        # Options that are said again count as said last.
        again = [*sys.argv[1:], "--workers", "1", "--fd", str(number)]
        # In a session of their own Ctrl-C reaches them through this process alone. They hold one end of a pipe, and end
        # when the other is gone, however this process ends.
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _COMMAND_LINE,
            *again,
            pass_fds=(number,),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _supervise_worker(self) -> None:
        while True:
            member = await self._start_worker()
            self._members.add(member)
            code = await member.wait()
            self._members.discard(member)
            _log.warning(
                "process %s of the service has ended with code %s; another one takes its place", member.pid, code
            )
            await asyncio.sleep(_PAUSE_S)

    async def __aenter__(self) -> Self:
        self._keepers = [asyncio.create_task(self._supervise_worker()) for _ in range(self._size)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for member in self._members:
            with suppress(ProcessLookupError):
                member.terminate()
        try:
            async with asyncio.timeout(_END_WITHIN_S):
                await asyncio.gather(*(member.wait() for member in self._members))
        except TimeoutError:
            for member in self._members:
                with suppress(ProcessLookupError):
                    member.kill()


_GRPC_PORT = 50_051
_MESSAGE_BYTES = 4_194_304


class ServingGrpc(Record):
    """Where a face is, and who may come."""

    target: str
    tls: bool
    tokens: str | None
    """Whose tokens are known; None when everybody who reaches it is taken for the actor of this command line."""
    memory: str
    namespace: str
    metrics: str | None
    """Where Prometheus reads the metrics of this process; None if they are not served."""


@command("grpc", None, group=serve, example="sharedmem serve grpc --tokens tokens.yaml")
def serve_grpc(  # noqa: PLR0913, PLR0917  each is an option
    context: typer.Context,
    host: Host = _LOCAL,
    port: Port = _GRPC_PORT,
    tokens: TokenPlaces = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of authorities; clients must show a certificate of theirs.")
    ] = None,
    max_message_bytes: Annotated[int, typer.Option(help="Longer requests are refused.")] = _MESSAGE_BYTES,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve /metrics for Prometheus on this port of the loopback address (setting metrics_host); 0 takes a "
            "free one. Without it the setting metrics_port.",
            min=0,
            max=65_535,
        ),
    ] = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Serve decisions, episodes, messages and changes over gRPC until Ctrl-C."""
    # The core of grpc writes to standard error by itself; our own messages say what matters of that.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from sharedmem.faces.grpc import GrpcAddress  # noqa: PLC0415  an extra; it says itself how to get it

    endpoint = GrpcAddress(
        host=host,
        port=port,
        tls_cert_file=tls_cert,
        tls_key_file=tls_key,
        tls_client_ca_file=tls_client_ca,
        max_message_bytes=max_message_bytes,
        trust_network=trust_network,
    )
    asyncio.run(_run_grpc(options_of(context), endpoint, tokens or [], metrics_port))


async def _run_grpc(options: Options, endpoint: GrpcAddress, tokens: list[str], metrics_port: int | None) -> None:
    from sharedmem.faces.grpc import MemoryServer  # noqa: PLC0415  as above

    settings = options.settings()
    if metrics_port is not None:
        settings = settings.replace(metrics_port=metrics_port)
    start_log(settings, is_service=True)
    everyone = Bearer.of(settings.namespace, actor=settings.actor)
    hub = Hub.open(settings=settings)
    # An unreadable file is reported before a server is started or joined.
    admission = admission_of(hub, tokens)
    async with hub, MemoryServer(hub, endpoint, tokens=admission, everyone=everyone) as server:
        serving = ServingGrpc(
            target=server.target,
            tls=endpoint.is_tls(),
            tokens=" and ".join(tokens) or None,
            memory=hub.url,
            namespace=settings.namespace,
            metrics=hub.metrics_url,
        )
        with stop_on_signals() as told:
            print_answer(options, serving, lambda: _grpc_picture(serving))
            await told.wait()


@contextmanager
def stop_on_signals(*, holds_on: bool = False) -> Iterator[asyncio.Event]:
    """Handle signals to end while a block runs: the first sets the event; after the block they do not wait any more.

    Args:
        holds_on: set it too when the writer of standard input is gone.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, told.set)
    if holds_on:
        loop.add_reader(sys.stdin.fileno(), told.set)
    try:
        yield told
    finally:
        if holds_on:
            loop.remove_reader(sys.stdin.fileno())
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _callers_rows(serving: ServingGrpc | ServingRest) -> list[tuple[str, object]]:
    if serving.tokens is None:
        return [
            ("lets in", "every user of this machine"),
            ("memory", f"{serving.memory}, namespace {serving.namespace}"),
        ]
    return [("lets in", f"the tokens of {serving.tokens}"), ("memory", serving.memory)]


def _grpc_picture(serving: ServingGrpc) -> Table:
    client = f'async with MemoryClient("{serving.target}"{", token=..." if serving.tokens else ""}) as memory: ...'
    rows: list[tuple[str, object]] = [
        ("listens at", f"{serving.target}, {'with' if serving.tls else 'without'} TLS"),
        *_callers_rows(serving),
        ("Python", f"from sharedmem.faces.grpc import MemoryClient; {client}"),
        ("others", f"{'' if serving.tls else 'grpcurl -plaintext '}{serving.target} list"),
        ("metrics", serving.metrics or "not served: --metrics-port"),
        ("stop", "Ctrl-C: calls under way may end, watchers are asked to reconnect"),
    ]
    return fields_table(rows, title="gRPC is served")


_REST_PORT = 8420
_MIB = 1024 * 1024
_MOST_WORKERS = 256


class ServingRest(Record):
    """Where the service is, and who may come."""

    url: str
    tls: bool
    tokens: str | None
    """Whose tokens are known; None when everybody who reaches it is taken for the actor of this command line."""
    memory: str
    namespace: str
    workers: int
    mcp: str | None
    """Where MCP is served; None if it is not."""
    console: str | None
    """Where the console is; None if it is not served."""


@command("rest", None, group=serve, example="sharedmem serve rest --tokens registry")
def serve_rest(  # noqa: PLR0913, PLR0917  each is an option
    context: typer.Context,
    host: Host = _LOCAL,
    port: Port = _REST_PORT,
    tokens: TokenPlaces = None,
    workers: Workers = 1,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    max_body_mib: Annotated[int, typer.Option(help="Longer bodies are refused.")] = 4,
    cors: Cors = None,
    mcp: Annotated[bool, typer.Option("--mcp", help="Serve MCP at /mcp too, on the same port.")] = False,
    mcp_write: Annotated[
        bool, typer.Option("--mcp-write", help="Offer tools of MCP that change something too.")
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Serve the page for people at /console too; it asks for a token.")
    ] = False,
    allow_host: AllowHost = None,
    public_url: PublicUrl = "",
    trust_network: TrustNetwork = False,
    listening_at: ListeningAt = None,
) -> None:
    """Serve everything over HTTP until Ctrl-C: REST with server-sent events, described by /openapi.json."""
    from sharedmem.faces.rest import RestOptions, quick_loop  # noqa: PLC0415  an extra; it says itself how to get it

    check_workers(workers)
    address = ListenAddress(
        host=host, port=port, tls_cert_file=tls_cert, tls_key_file=tls_key, trust_network=trust_network
    )
    terms = RestOptions(max_body_bytes=max_body_mib * _MIB, cors_origins=tuple(cors or ()))
    chosen: McpOptions | None = None
    if mcp:
        from sharedmem.faces.mcp import McpOptions  # noqa: PLC0415  as above

        chosen = McpOptions(
            write=mcp_write,
            # One of several processes does not know the sessions of another one.
            sessions=workers == 1 and listening_at is None,
            max_body_bytes=terms.max_body_bytes,
            hosts=tuple(allow_host or ()),
            origins=terms.cors_origins,
            public_url=public_url,
        )
    elif mcp_write:
        raise InvalidError("mcp_write", mcp_write, "it is about MCP: add --mcp, or leave it out")
    options = options_of(context)
    offer = RestOffer(terms, mcp=chosen, console=console)
    announce = _rest_announcement(options, tokens or [], offer, workers=workers)
    if workers > 1:
        asyncio.run(run_workers(options, address, tokens or [], announce, workers=workers))
        return
    with asyncio.Runner(loop_factory=quick_loop()) as runner:
        runner.run(_run_rest(options, address, tokens or [], offer, announce, socket_of(listening_at)))


Announce: TypeAlias = Callable[[ListenAddress, str], None]
"""Prints where a service is: its address, and the one of the memory behind it."""


@dataclass(frozen=True)
class RestOffer:
    """What a REST service offers, and on which terms.

    Args:
        terms: of the service.
        mcp: of the MCP endpoint beside it; None for none.
        console: whether the page for people is served too.
    """

    terms: RestOptions
    mcp: McpOptions | None = None
    console: bool = False


async def _run_rest(
    options: Options,
    address: ListenAddress,
    tokens: list[str],
    offer: RestOffer,
    announce: Announce,
    listening: socket.socket | None,
) -> None:
    from sharedmem.faces.rest import Console, RestServer, create_app  # noqa: PLC0415  as above

    console = Console() if offer.console else None
    # This service has /metrics of its own.
    settings = without_metrics(options.settings())
    start_log(settings, is_service=True)
    hub = Hub.open(settings=settings)
    # An unreadable file is reported before a server is started or joined.
    admission = admission_of(hub, tokens)
    async with hub:
        app = create_app(hub, admission=admission or "open_to_all", terms=offer.terms, console=console)
        if offer.mcp is not None:
            from sharedmem.faces.mcp import McpEndpoint, McpService, mount_mcp  # noqa: PLC0415  as above

            closing = app.state.service.closing
            service = McpService(hub, options=offer.mcp)
            mount_mcp(app, McpEndpoint(service, admission, host=address.host, closing=closing))
        async with RestServer(app, address, has_tokens=bool(tokens), listening=listening) as server:
            await resume_tasks(hub, settings.namespace)
            with stop_on_signals(holds_on=listening is not None) as told:
                if listening is None:
                    announce(server.address, hub.url)
                await told.wait()


async def run_workers(
    options: Options, address: ListenAddress, tokens: list[str], announce: Announce, *, workers: int
) -> None:
    """Run a command again in several processes on one port until a signal ends it; the system shares callers out.

    Args:
        options: of the command line.
        address: where to listen.
        tokens: places of tokens.
        announce: called when they are started.
        workers: how many processes.

    Raises:
        ConfigError: as each of the processes would raise it.
    """
    from sharedmem.faces.rest.server import open_socket  # noqa: PLC0415  as above

    address.check(has_tokens=bool(tokens))
    settings = without_metrics(options.settings())
    start_log(settings, is_service=True)
    hub = Hub.open(settings=settings)
    # What each process would refuse is reported once, before any is started.
    admission_of(hub, tokens)
    check_access(settings, has_tokens=bool(tokens))
    await asyncio.to_thread(address.check_files)
    # The embedded server is started once, and stays while this process has it.
    async with hub:
        with open_socket(address) as shared:
            real = replace(address, port=shared.getsockname()[1])
            async with WorkerProcesses(shared, size=workers):
                with stop_on_signals() as told:
                    announce(real, hub.url)
                    await told.wait()


def check_workers(workers: int) -> None:
    """Refuse a number of processes that makes no sense.

    Raises:
        InvalidError: it is out of bounds.
    """
    if not 1 <= workers <= _MOST_WORKERS:
        raise InvalidError("workers", workers, f"give 1 to {_MOST_WORKERS}")


def socket_of(listening_at: int | None) -> socket.socket | None:
    """Return the socket that the process above shares with this one; None if this one listens for itself."""
    return None if listening_at is None else socket.socket(fileno=listening_at)


async def resume_tasks(hub: Hub, namespace: str) -> None:
    """Go on with tasks of synthesis that an earlier process has left.

    Args:
        hub: open.
        namespace: looked into even if it has no keys yet.
    """
    try:
        found = {namespace, *await hub.namespaces()}
        for name in sorted(found):
            synthesis = hub.store(name).synthesis
            if await synthesis.tasks(limit=1):
                synthesis.start()
    except SharedMemoryError as error:
        # The service answers all the same; the next call that adds a memory begins with what has waited.
        _log.warning("tasks of synthesis that wait were not begun: %s", error)


def _rest_announcement(options: Options, tokens: list[str], offer: RestOffer, *, workers: int) -> Announce:
    def announce(real: ListenAddress, memory: str) -> None:
        url = f"{'https' if real.is_tls() else 'http'}://{real.address}"
        serving = ServingRest(
            url=url,
            tls=real.is_tls(),
            tokens=" and ".join(tokens) or None,
            memory=memory,
            namespace=options.settings().namespace,
            workers=workers,
            mcp=None if offer.mcp is None else f"{url}/mcp",
            console=f"{url}/console/" if offer.console else None,
        )
        print_answer(options, serving, lambda: _rest_picture(serving))

    return announce


def _rest_picture(serving: ServingRest) -> Table:
    token = ' -H "Authorization: Bearer $TOKEN"' if serving.tokens else ""
    rows: list[tuple[str, object]] = [
        ("listens at", f"{serving.url}, {'with' if serving.tls else 'without'} TLS, {serving.workers} process(es)"),
        *_callers_rows(serving),
        ("try", f"curl{token} {serving.url}/health"),
        ("described", f"{serving.url}/openapi.json"),
        ("MCP", serving.mcp or "not served: --mcp"),
        ("console", serving.console or "not served: --console"),
        ("stop", "Ctrl-C: calls under way may end, streams are asked to reconnect"),
    ]
    return fields_table(rows)


@command("metrics", SERVER, example="sharedmem metrics --once")
def metrics(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(help="Port on which Prometheus asks; 0 takes a free one.", min=0, max=65535)
    ] = 9001,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    every: Annotated[float, typer.Option(help="Seconds between two looks at the server.", min=0.1)] = 15.0,
    once: Annotated[bool, typer.Option("--once", help="Print them once instead of serving them.")] = False,
) -> None:
    """Serve metrics of all namespaces for Prometheus until Ctrl-C.

    They need prometheus-client: pip install 'sharedmem-hub[metrics]'.
    """
    asyncio.run(_run_metrics(options_of(context).settings(), host=host, port=port, every_s=every, once=once))


async def _run_metrics(settings: Settings, *, host: str, port: int, every_s: float, once: bool) -> None:
    from sharedmem.faces.metrics import Exporter  # noqa: PLC0415  an extra; it says how to get it

    start_log(settings, is_service=not once)
    # Counting needs no vectors, and has to see every namespace.
    async with Hub.open(settings=without_metrics(settings).replace(access="open")) as hub:
        exporter = Exporter(hub, host=host, port=port)
        if once:
            await exporter.refresh()
            typer.echo(exporter.text(), nl=False)
            return
        await exporter.open()
        typer.echo(f"metrics at {exporter.address}", err=True)
        try:
            await _until_stopped(exporter.run(every_s=every_s))
        finally:
            exporter.close()


async def _until_stopped(work: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # not every system has signals on its loop
            loop.add_signal_handler(sign, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


# -- the console ----------------------------------------------------------------------------------


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
