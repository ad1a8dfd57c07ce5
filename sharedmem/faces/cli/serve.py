"""Commands that let others in: serve grpc, token."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.auth import Bearer, Entry, Tokens, add_entry, new_token
from sharedmem.faces.cli.app import SERVER, command, serve
from sharedmem.faces.cli.output import answer, pairs
from sharedmem.faces.cli.session import Options, options_of
from sharedmem.faces.cli.values import json_text
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
    tokens: int | None
    """How many are known; None when everybody who reaches it is taken for the actor of this command line."""
    memory: str
    namespace: str


class NewToken(Record):
    """A token, shown this once, and what to keep of it."""

    token: str
    entry: dict[str, object]
    added_to: Path | None


@command("grpc", None, group=serve, example="sharedmem serve grpc --tokens tokens.yaml")
def serve_grpc(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at; others than loopback need tokens and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = _PORT,
    tokens: Annotated[Path | None, typer.Option(help="YAML or JSON file of those who may call.")] = None,
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
    asyncio.run(_serve(options_of(context), endpoint, None if tokens is None else Tokens.read(tokens)))


async def _serve(options: Options, endpoint: Endpoint, tokens: Tokens | None) -> None:
    from sharedmem.faces.grpc import MemoryServer  # noqa: PLC0415  as above

    settings = options.settings()
    everyone = Bearer.of(settings.namespace, actor=settings.actor)
    async with (
        Hub.open(settings=settings) as hub,
        MemoryServer(hub, endpoint, tokens=tokens, everyone=everyone) as server,
    ):
        serving = Serving(
            target=server.target,
            tls=endpoint.is_tls(),
            tokens=None if tokens is None else len(tokens),
            memory=hub.url,
            namespace=settings.namespace,
        )
        answer(options, serving, lambda: _picture(serving))
        await _told_to_end()


async def _told_to_end() -> None:
    """Return at the first signal to end; the second one does not wait any more."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, told.set)
    await told.wait()
    for number, handler in before.items():
        loop.remove_signal_handler(number)
        signal.signal(number, handler)


@command("token", SERVER, example="sharedmem token --actor planner --grant 'chat:team-alpha*'")
def token(
    context: typer.Context,
    grant: Annotated[
        list[str] | None, typer.Option(help="A further right, as an absolute pattern: 'chat:team*'; may be repeated.")
    ] = None,
    subscribe: Annotated[
        list[str] | None, typer.Option(help="A further namespace it may read; may be repeated.")
    ] = None,
    add: Annotated[Path | None, typer.Option(help="Tokens file to put the entry into; made if there is none.")] = None,
) -> None:
    """Make a token for --actor in --namespace, shown this once, and the entry by which servers know it."""
    options = options_of(context)
    settings = options.settings()
    if settings.actor is None:
        raise InvalidError("actor", None, "say with --actor whom the token stands for")
    bearer = Bearer.of(settings.namespace, actor=settings.actor, subscribe=subscribe or (), grants=grant or ())
    secret, entry = new_token(bearer)
    if add is not None:
        add_entry(add, entry)
    made = NewToken(token=secret, entry=entry.written(), added_to=add)
    answer(options, made, lambda: _token_picture(made, entry))


def _picture(serving: Serving) -> Table:
    who = "everybody on this machine" if serving.tokens is None else f"{serving.tokens} tokens"
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


def _token_picture(made: NewToken, entry: Entry) -> Table:
    rows: list[tuple[str, object]] = [
        ("token", made.token),
        ("stands for", f"{entry.actor} in namespace {entry.namespace}"),
        ("keep it", "it is shown this once; servers know its digest only"),
    ]
    if made.added_to is None:
        rows.append(("entry", f"- {json_text(made.entry)}"))
    else:
        rows.append(("added to", str(made.added_to)))
    return pairs(rows, title="A new token")
