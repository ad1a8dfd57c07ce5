"""Commands that let others in: serve grpc."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.faces.auth import Bearer
from sharedmem.faces.cli.app import command, serve
from sharedmem.faces.cli.output import answer, pairs
from sharedmem.faces.cli.session import Options, options_of
from sharedmem.faces.tokens import admission_of
from sharedmem.hub import Hub
from sharedmem.models import Record

if TYPE_CHECKING:
    from rich.table import Table

    from sharedmem.faces.grpc import Endpoint

_PORT = 50_051
_MESSAGE_BYTES = 4_194_304


class Serving(Record):
    """Where a face is, and who may come."""

    target: str
    tls: bool
    tokens: str | None
    """Whose tokens are known; None when everybody who reaches it is taken for the actor of this command line."""
    memory: str
    namespace: str


@command("grpc", None, group=serve, example="sharedmem serve grpc --tokens tokens.yaml")
def serve_grpc(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at; others than loopback need tokens and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = _PORT,
    tokens: Annotated[
        list[str] | None,
        typer.Option(help="Who may call: `registry`, or a YAML or JSON file of tokens; may be repeated."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the certificate, with its chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of authorities; clients must show a certificate of theirs.")
    ] = None,
    max_message_bytes: Annotated[int, typer.Option(help="Longer requests are refused.")] = _MESSAGE_BYTES,
    trust_network: Annotated[
        bool, typer.Option("--trust-network", help="Let other machines in without tokens or TLS.")
    ] = False,
) -> None:
    """Serve decisions, episodes, messages and changes over gRPC until Ctrl-C."""
    # The core of grpc writes to standard error by itself; what matters of that stands in our sentences.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from sharedmem.faces.grpc import Endpoint  # noqa: PLC0415  an extra; it says itself how to get it

    endpoint = Endpoint(
        host=host,
        port=port,
        tls_cert_file=tls_cert,
        tls_key_file=tls_key,
        tls_client_ca_file=tls_client_ca,
        max_message_bytes=max_message_bytes,
        trust_network=trust_network,
    )
    asyncio.run(_serve(options_of(context), endpoint, tokens or []))


async def _serve(options: Options, endpoint: Endpoint, tokens: list[str]) -> None:
    from sharedmem.faces.grpc import MemoryServer  # noqa: PLC0415  as above

    settings = options.settings()
    everyone = Bearer.of(settings.namespace, actor=settings.actor)
    hub = Hub.open(settings=settings)
    # A file that cannot be read is told before a server is started or joined.
    admission = admission_of(hub, tokens)
    async with hub, MemoryServer(hub, endpoint, tokens=admission, everyone=everyone) as server:
        serving = Serving(
            target=server.target,
            tls=endpoint.is_tls(),
            tokens=" and ".join(tokens) or None,
            memory=hub.url,
            namespace=settings.namespace,
        )
        with told_to_end() as told:
            answer(options, serving, lambda: _picture(serving))
            await told.wait()


@contextmanager
def told_to_end(*, holds_on: bool = False) -> Iterator[asyncio.Event]:
    """Hear signals to end while a block runs: the first sets the event; behind the block they do not wait any more.

    Args:
        holds_on: set it too when whoever writes to standard input is gone.
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


def _picture(serving: Serving) -> Table:
    who = "everybody on this machine" if serving.tokens is None else f"the tokens of {serving.tokens}"
    client = f'async with MemoryClient("{serving.target}"{", token=..." if serving.tokens else ""}) as memory: ...'
    rows: list[tuple[str, object]] = [
        ("listens at", f"{serving.target}, {'with' if serving.tls else 'without'} TLS"),
        ("lets in", who),
        ("memory", f"{serving.memory}, namespace {serving.namespace}" if serving.tokens is None else serving.memory),
        ("Python", f"from sharedmem.faces.grpc import MemoryClient; {client}"),
        ("others", f"{'' if serving.tls else 'grpcurl -plaintext '}{serving.target} list"),
        ("stop", "Ctrl-C: calls under way may end, watchers are told to come back"),
    ]
    return pairs(rows, title="gRPC is served")
