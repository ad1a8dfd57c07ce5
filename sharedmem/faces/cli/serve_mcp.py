"""The command that serves the Model Context Protocol: over standard input and output, or over HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.cli.app import command, serve
from sharedmem.faces.cli.output import fields_table, print_answer
from sharedmem.faces.cli.process_log import start_log
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
from sharedmem.faces.cli.session import Options, options_of, without_metrics
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.token_sources import admission_of
from sharedmem.hub import Hub
from sharedmem.models import Record

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
        print_answer(options, serving, lambda: _picture(serving))

    return announce


def _picture(serving: ServingMcp) -> Table:
    who = f"the tokens of {serving.tokens}" if serving.tokens else "every user of this machine"
    rows: list[tuple[str, object]] = [
        ("listens at", f"{serving.url}, {serving.workers} process(es)"),
        ("lets in", who),
        ("memory", serving.memory if serving.tokens else f"{serving.memory}, namespace {serving.namespace}"),
        ("changes", "allowed" if serving.write else "refused: start it with --write"),
        ("stop", "Ctrl-C: calls under way may end"),
    ]
    return fields_table(rows, title="MCP is served")
