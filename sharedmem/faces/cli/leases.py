"""The commands `lock` and `leader`: run a program while holding something, or show who holds it."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.config import TOKEN_VARIABLE
from sharedmem.coordination.leases import LeaseKind
from sharedmem.errors import InvalidError, LockLostError, SharedMemoryError
from sharedmem.faces.cli.app import AGREEMENT, command
from sharedmem.faces.cli.output import answer, counted, duration, nothing, said, table
from sharedmem.faces.cli.session import Options, opened, options_of, perform
from sharedmem.faces.operations import leases as table_of
from sharedmem.models import LeaseState

if TYPE_CHECKING:
    from rich.console import RenderableType

_SIGNALLED = 128
_PATIENCE_S = 10.0

Name = Annotated[str, typer.Argument(help="Plain (<namespace>:shared:<name>) or absolute.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]", help="What to run meanwhile; it finds the token in SHAREDMEM_FENCING_TOKEN."
    ),
]


@command("lock", AGREEMENT, example="sharedmem lock index --wait 60 -- echo rebuilt")
def lock(
    context: typer.Context,
    name: Name,
    words: Words = None,
    wait: Annotated[
        float | None, typer.Option(help="Give up after that many seconds; 0 tries once. Waits for ever without it.")
    ] = None,
    lease: Annotated[float, typer.Option(help="Seconds until it comes free if this process dies.")] = 30.0,
) -> None:
    """Run a command while holding a lock, with its exit code; without a command show who holds the lock.

    Exit code 4 when the lock was not to be had in time, or was lost: then the command is told to end (SIGTERM).
    """
    options = options_of(context)
    if not words:
        _show(options, name, "lock")
        return
    raise typer.Exit(asyncio.run(_run_locked(options, words, name=name, wait=wait, lease=lease)))


@command("leader", AGREEMENT, example="sharedmem leader scheduler -- echo elected")
def leader(
    context: typer.Context,
    name: Name,
    words: Words = None,
    lease: Annotated[float, typer.Option(help="Seconds until another takes over when this process dies.")] = 15.0,
) -> None:
    """Wait until elected and run a command while leading, with its exit code; without a command show who leads.

    Exit code 4 when leadership was lost: then the command is told to end (SIGTERM).
    """
    options = options_of(context)
    if not words:
        _show(options, name, "leader")
        return
    raise typer.Exit(asyncio.run(_run_leading(options, words, name=name, lease=lease)))


async def _run_locked(options: Options, words: list[str], *, name: str, wait: float | None, lease: float) -> int:
    async with opened(options.settings()) as (_, store), store.lock(name, lease=lease, wait=wait) as held:
        return await _run(words, held.token)


async def _run_leading(options: Options, words: list[str], *, name: str, lease: float) -> int:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def lead(token: int) -> None:
        error: SharedMemoryError = LockLostError("leader", name, token)
        try:
            ended.set_result(await _run(words, token))
        except InvalidError as refused:
            error = refused
        finally:
            if not ended.done():
                ended.set_exception(error)

    async with opened(options.settings()) as (_, store), store.leader(name, lease=lease, on_gain=lead):
        return await ended


async def _run(words: list[str], token: int) -> int:
    """The exit code of a program, which does not outlive this call."""
    environment = os.environ | {TOKEN_VARIABLE: str(token)}
    try:
        process = await asyncio.create_subprocess_exec(*words, env=environment)
    except OSError as error:
        raise InvalidError("command", words[0], f"it cannot be started: {error.strerror}") from error
    try:
        code = await process.wait()
    finally:
        await _end(process)
    return code if code >= 0 else _SIGNALLED - code


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _show(options: Options, name: str, kind: LeaseKind) -> None:
    state = perform(options, table_of.LEASE_STATE, table_of.OnLease(name=name, kind=kind))
    answer(options, state, lambda: _picture(state))


def _picture(state: LeaseState) -> RenderableType:
    if not state.holders:
        return said(f"{counted(state.waiting, 'waiter')}, nobody holds it") if state.waiting else nothing()
    picture = table("held by", "token", "ends in", "waiting", right=("waiting",))
    for holder in state.holders:
        ends_in = said((duration(holder.remaining_ms / 1000), "dim"))
        picture.add_row(said((holder.actor, "cyan")), str(holder.token), ends_in, str(state.waiting))
    return picture
