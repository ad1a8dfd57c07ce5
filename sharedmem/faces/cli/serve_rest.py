"""The command that lets every language in: serve rest."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.faces.cli.app import command, serve
from sharedmem.faces.cli.crew import Crew
from sharedmem.faces.cli.output import answer, pairs
from sharedmem.faces.cli.serve import told_to_end
from sharedmem.faces.cli.session import Options, options_of
from sharedmem.faces.endpoint import Address
from sharedmem.faces.tokens import admission_of
from sharedmem.hub import Hub
from sharedmem.models import Record
from sharedmem.telemetry import get_logger

if TYPE_CHECKING:
    from rich.table import Table

    from sharedmem.faces.rest import Terms

_PORT = 8420
_MIB = 1024 * 1024
_MOST_WORKERS = 256
_log = get_logger("serve")


class ServingRest(Record):
    """Where the service is, and who may come."""

    url: str
    tls: bool
    tokens: str | None
    """Whose tokens are known; None when everybody who reaches it is taken for the actor of this command line."""
    memory: str
    namespace: str
    workers: int


@command("rest", None, group=serve, example="sharedmem serve rest --tokens registry")
def serve_rest(  # noqa: PLR0913, PLR0917  each is an option
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at; others than loopback need tokens and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = _PORT,
    tokens: Annotated[
        list[str] | None,
        typer.Option(help="Who may call: `registry`, or a YAML or JSON file of tokens; may be repeated."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that answer, one for each core.")] = 1,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the certificate, with its chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    max_body_mib: Annotated[int, typer.Option(help="Longer bodies are refused.")] = 4,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin of pages that browsers may let in; may be repeated.")
    ] = None,
    trust_network: Annotated[
        bool, typer.Option("--trust-network", help="Let other machines in without tokens or TLS.")
    ] = False,
    listening_at: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
) -> None:
    """Serve everything over HTTP until Ctrl-C: REST with server-sent events, described by /openapi.json."""
    from sharedmem.faces.rest import Terms, quick_loop  # noqa: PLC0415  an extra; it says itself how to get it

    if not 1 <= workers <= _MOST_WORKERS:
        raise InvalidError("workers", workers, f"give 1 to {_MOST_WORKERS}")
    address = Address(host=host, port=port, tls_cert_file=tls_cert, tls_key_file=tls_key, trust_network=trust_network)
    terms = Terms(max_body_bytes=max_body_mib * _MIB, cors_origins=tuple(cors or ()))
    options = options_of(context)
    if workers > 1:
        address.check(has_tokens=bool(tokens))
        asyncio.run(_serve_together(options, address, tokens or [], workers))
        return
    with asyncio.Runner(loop_factory=quick_loop()) as runner:
        runner.run(_serve(options, address, tokens or [], terms, listening_at))


async def _serve(options: Options, address: Address, tokens: list[str], terms: Terms, listening_at: int | None) -> None:
    from sharedmem.faces.rest import RestServer, create_app  # noqa: PLC0415  as above

    settings = options.settings()
    hub = Hub.open(settings=settings)
    # A file that cannot be read is told before a server is started or joined.
    admission = admission_of(hub, tokens)
    given = None if listening_at is None else socket.socket(fileno=listening_at)
    async with hub:
        app = create_app(hub, admission=admission or "open_to_all", terms=terms)
        async with RestServer(app, address, has_tokens=bool(tokens), listening=given) as server:
            await _resume(hub, settings.namespace)
            with told_to_end(holds_on=listening_at is not None) as told:
                if listening_at is None:
                    serving = _serving(options, server.address, tokens, memory=hub.url, workers=1)
                    answer(options, serving, lambda: _picture(serving))
                await told.wait()


async def _serve_together(options: Options, address: Address, tokens: list[str], workers: int) -> None:
    """Several processes on one port: the system shares callers out among them."""
    from sharedmem.faces.rest.server import check_access, listening  # noqa: PLC0415  as above

    settings = options.settings()
    hub = Hub.open(settings=settings)
    # What each process would refuse is told once, before any is started.
    admission_of(hub, tokens)
    check_access(settings, has_tokens=bool(tokens))
    await asyncio.to_thread(address.check_files)
    # The embedded server is started once, and stays while this process has it.
    async with hub:
        with listening(address) as shared:
            real = replace(address, port=shared.getsockname()[1])
            async with Crew(shared, size=workers):
                serving = _serving(options, real, tokens, memory=hub.url, workers=workers)
                with told_to_end() as told:
                    answer(options, serving, lambda: _picture(serving))
                    await told.wait()


async def _resume(hub: Hub, namespace: str) -> None:
    """Go on with tasks of synthesis that an earlier process has left."""
    try:
        found = {namespace, *await hub.namespaces()}
        for name in sorted(found):
            synthesis = hub.store(name).synthesis
            if await synthesis.tasks(limit=1):
                synthesis.start()
    except SharedMemoryError as error:
        # The service answers all the same; the next call that adds a memory begins with what has waited.
        _log.warning("tasks of synthesis that wait were not begun: %s", error)


def _serving(options: Options, address: Address, tokens: list[str], *, memory: str, workers: int) -> ServingRest:
    return ServingRest(
        url=f"{'https' if address.is_tls() else 'http'}://{address.address}",
        tls=address.is_tls(),
        tokens=" and ".join(tokens) or None,
        memory=memory,
        namespace=options.settings().namespace,
        workers=workers,
    )


def _picture(serving: ServingRest) -> Table:
    who = "everybody on this machine" if serving.tokens is None else f"the tokens of {serving.tokens}"
    token = ' -H "Authorization: Bearer $TOKEN"' if serving.tokens else ""
    rows: list[tuple[str, object]] = [
        ("listens at", f"{serving.url}, {'with' if serving.tls else 'without'} TLS, {serving.workers} process(es)"),
        ("lets in", who),
        ("memory", f"{serving.memory}, namespace {serving.namespace}" if serving.tokens is None else serving.memory),
        ("try", f"curl{token} {serving.url}/health"),
        ("described", f"{serving.url}/openapi.json"),
        ("stop", "Ctrl-C: calls under way may end, streams are told to come back"),
    ]
    return pairs(rows)
