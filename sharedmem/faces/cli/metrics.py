"""A command for Prometheus: metrics."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated

import typer

from sharedmem.config import Settings
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.session import options_of
from sharedmem.hub import Hub


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
    asyncio.run(_serve(options_of(context).settings(), host=host, port=port, every_s=every, once=once))


async def _serve(settings: Settings, *, host: str, port: int, every_s: float, once: bool) -> None:
    from sharedmem.faces.metrics import Exporter  # noqa: PLC0415  an extra; it says how to get it

    # Counting needs no vectors, and has to see every namespace.
    async with Hub.open(settings=settings.replace(access="open")) as hub:
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
