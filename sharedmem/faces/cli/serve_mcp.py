"""The command that serves the Model Context Protocol: over standard input and output, or over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.cli.app import command, serve
from sharedmem.faces.cli.output import fields_table, print_answer
from sharedmem.faces.cli.process_log import start_log
from sharedmem.faces.cli.serve import Host, TlsCert, TlsKey, TokenPlaces, TrustNetwork, stop_on_signals
from sharedmem.faces.cli.session import Options, options_of, without_metrics
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.token_registry import admission_of
from sharedmem.hub import Hub
from sharedmem.models import Record

if TYPE_CHECKING:
    from rich.table import Table

    from sharedmem.faces.mcp import McpOptions

_LOCAL = "127.0.0.1"
_PORT = 8421


class ServingMcp(Record):
    """Where the endpoint is, and who may call."""

    url: str
    tokens: str | None
    """Whose tokens are known; None if every caller is the actor of this command line."""
    memory: str
    namespace: str
    write: bool
    """Whether tools that change something are offered."""


@command("mcp", None, group=serve, example="sharedmem serve mcp --write")
def serve_mcp(  # noqa: PLR0913, PLR0917  # each is an option
    context: typer.Context,
    http: Annotated[bool, typer.Option("--http", help="Serve HTTP instead of standard input and output.")] = False,
    tools: Annotated[
        str, typer.Option(help="Profiles of tools, separated by commas: memory, coordination, graph, notes.")
    ] = "memory,coordination,graph,notes",
    write: Annotated[bool, typer.Option("--write", help="Offer tools that change something too.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer; the rest is on the next page.")] = 6000,
    host: Host = _LOCAL,
    port: Annotated[int, typer.Option(help="With --http; 0 takes a free one.")] = _PORT,
    tokens: TokenPlaces = None,
    sessions: Annotated[
        bool, typer.Option(help="Keep sessions of clients older than 2026-07-28 in this process.")
    ] = True,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further value of the Host header; may be repeated.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin of pages that browsers may let in; may be repeated.")
    ] = None,
    public_url: Annotated[str, typer.Option(help="Address of the endpoint as clients see it.")] = "",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    trust_network: TrustNetwork = False,
) -> None:
    """Serve the memory to MCP clients, such as coding agents, until they leave or Ctrl-C; read-only without --write."""
    from sharedmem.faces.mcp import McpOptions  # noqa: PLC0415  # an extra; it says itself how to get it
    from sharedmem.faces.mcp.options import check_profiles  # noqa: PLC0415  # likewise

    chosen = McpOptions(
        tools=check_profiles(tools.split(",")),
        write=write,
        max_tokens=max_tokens,
        sessions=sessions,
        hosts=tuple(allow_host or ()),
        origins=tuple(cors or ()),
        public_url=public_url,
    )
    options = options_of(context)
    if not http:
        if tokens:
            raise InvalidError("tokens", ", ".join(tokens), "tokens come over HTTP: add --http, or leave them out")
        asyncio.run(_run_stdio(options, chosen))
        return
    address = ListenAddress(
        host=host, port=port, tls_cert_file=tls_cert, tls_key_file=tls_key, trust_network=trust_network
    )
    from sharedmem.faces.rest import quick_loop  # noqa: PLC0415  # likewise

    with asyncio.Runner(loop_factory=quick_loop()) as runner:
        runner.run(_run_http(options, chosen, address, tokens or []))


async def _run_stdio(options: Options, chosen: McpOptions) -> None:
    from sharedmem.faces.mcp import McpService  # noqa: PLC0415  # as above

    settings = without_metrics(options.settings())
    start_log(settings, is_service=True)
    async with Hub.open(settings=settings) as hub:
        caller = Bearer.of(settings.namespace, actor=settings.actor)
        await McpService(hub, bearer=caller, options=chosen).run_stdio()


async def _run_http(options: Options, chosen: McpOptions, address: ListenAddress, tokens: list[str]) -> None:
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
        async with RestServer(app, address, has_tokens=bool(tokens)) as server:
            serving = ServingMcp(
                url=f"{server.url}/mcp",
                tokens=" and ".join(tokens) or None,
                memory=hub.url,
                namespace=settings.namespace,
                write=chosen.write,
            )
            with stop_on_signals() as told:
                print_answer(options, serving, lambda: _picture(serving))
                await told.wait()


def _picture(serving: ServingMcp) -> Table:
    who = f"the tokens of {serving.tokens}" if serving.tokens else "everybody on this machine"
    rows: list[tuple[str, object]] = [
        ("listens at", serving.url),
        ("lets in", who),
        ("memory", serving.memory if serving.tokens else f"{serving.memory}, namespace {serving.namespace}"),
        ("changes", "allowed" if serving.write else "refused: start it with --write"),
        ("stop", "Ctrl-C: calls under way may end"),
    ]
    return fields_table(rows, title="MCP is served")
