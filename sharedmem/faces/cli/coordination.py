"""Commands on coordination: lock, leader, presence, limits."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.config import TOKEN_VARIABLE
from sharedmem.coordination.locks import LeaseKind
from sharedmem.coordination.rate_limits import Algorithm
from sharedmem.errors import InvalidError, LimitedError, LockLostError, SharedMemoryError
from sharedmem.faces.cli.app import COORDINATION, command
from sharedmem.faces.cli.operations import operation_command
from sharedmem.faces.cli.output import (
    dim,
    fields_table,
    format_age,
    format_count,
    format_duration,
    print_answer,
    rows_table,
    styled_text,
)
from sharedmem.faces.cli.session import Options, open_store, options_of, perform
from sharedmem.models import CoordinationEntry, CoordinationPage, LeaseState, LimitState, Permit, Present
from sharedmem.models.coordination import CoordinationKind

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


_SIGNALLED = 128
_PATIENCE_S = 10.0

Name = Annotated[str, typer.Argument(help="Plain (<namespace>:shared:<name>) or absolute.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND", help="What to run meanwhile; it finds the token in SHAREDMEM_FENCING_TOKEN."),
]


@command("lock", COORDINATION, example="sharedmem lock index --wait 60 -- echo rebuilt")
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

    Exit code 4 when the lock was not to be had in time, or was lost: then the command receives SIGTERM.
    """
    options = options_of(context)
    if not words:
        _show_lease(options, name, "lock")
        return
    raise typer.Exit(asyncio.run(_run_locked(options, words, name=name, wait=wait, lease=lease)))


@command("leader", COORDINATION, example="sharedmem leader scheduler -- echo elected")
def leader(
    context: typer.Context,
    name: Name,
    words: Words = None,
    lease: Annotated[float, typer.Option(help="Seconds until another takes over when this process dies.")] = 15.0,
) -> None:
    """Wait until elected and run a command while leading, with its exit code; without a command show who leads.

    Exit code 4 when leadership was lost: then the command receives SIGTERM.
    """
    options = options_of(context)
    if not words:
        _show_lease(options, name, "leader")
        return
    raise typer.Exit(asyncio.run(_run_leading(options, words, name=name, lease=lease)))


async def _run_locked(options: Options, words: list[str], *, name: str, wait: float | None, lease: float) -> int:
    async with open_store(options.settings()) as (_, store), store.lock(name, lease=lease, wait=wait) as held:
        return await _run_program(words, held.token)


async def _run_leading(options: Options, words: list[str], *, name: str, lease: float) -> int:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def lead(token: int) -> None:
        error: SharedMemoryError = LockLostError("leader", name, token)
        try:
            ended.set_result(await _run_program(words, token))
        except InvalidError as refused:
            error = refused
        finally:
            if not ended.done():
                ended.set_exception(error)

    async with open_store(options.settings()) as (_, store), store.leader(name, lease=lease, on_gain=lead):
        return await ended


async def _run_program(words: list[str], token: int) -> int:
    """The exit code of a program, which does not outlive this call."""
    environment = os.environ | {TOKEN_VARIABLE: str(token)}
    try:
        process = await asyncio.create_subprocess_exec(*words, env=environment)
    except OSError as error:
        raise InvalidError("command", words[0], f"it cannot be started: {error.strerror}") from error
    try:
        code = await process.wait()
    finally:
        await _stop_program(process)
    return code if code >= 0 else _SIGNALLED - code


async def _stop_program(process: Process) -> None:
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


def _show_lease(options: Options, name: str, kind: LeaseKind) -> None:
    state = perform(options, "lease.state", name=name, kind=kind)
    print_answer(options, state, lambda: _lease_picture(state))


def _lease_picture(state: LeaseState) -> RenderableType:
    if not state.holders and state.waiting:
        return styled_text(f"{format_count(state.waiting, 'waiter')}, no holder")
    rows = [
        (
            styled_text((holder.actor, "cyan")),
            str(holder.token),
            dim(format_duration(holder.remaining_ms / 1000)),
            str(state.waiting),
        )
        for holder in state.holders
    ]
    return rows_table(rows, "held by", "token", "ends in", "waiting", right=("waiting",))


@operation_command("coordination.list", "locks", COORDINATION, example="sharedmem locks --kind semaphore")
def locks(
    found: CoordinationPage,
    kind: Annotated[CoordinationKind | None, typer.Option(help="Only these.")] = None,
    limit: Annotated[int, typer.Option(help="Most names to look at.")] = 200,
    cursor: Annotated[str | None, typer.Option(help="Where the page before has ended.")] = None,
) -> RenderableType:
    """Show the locks, leaders, semaphores, read/write locks, barriers and rate limits that are in use."""
    rows = [
        (entry.kind, entry.name, *held, str(entry.waiting or ""))
        for entry in found.entries
        for held in (
            [
                (styled_text((one.actor, "cyan")), str(one.token), dim(format_duration(one.remaining_ms / 1000)))
                for one in entry.holders
            ]
            or [
                (
                    styled_text(_usage_of(entry)),
                    "",
                    dim("" if entry.remaining is None else format_duration(entry.remaining)),
                )
            ]
        )
    ]
    return rows_table(rows, "kind", "name", "held by", "token", "ends in", "waiting", right=("waiting",))


def _usage_of(entry: CoordinationEntry) -> str:
    if entry.kind == "limit":
        return f"{entry.used:,} used"
    return "" if entry.parties is None else f"{entry.waiting} of {entry.parties} have arrived"


@operation_command("lease.revoke", "revoke", COORDINATION, example="sharedmem revoke index 1795270308964186")
def revoke(
    was_held: bool,
    name: Name,
    token: Annotated[int, typer.Argument(help="Fencing token of the holder, as `sharedmem locks` shows it.")],
    kind: Annotated[LeaseKind, typer.Option(help="What the name is of.")] = "lock",
) -> RenderableType:
    """End the lease of a holder that hangs; only the one with this fencing token, none that came after it."""
    if not was_held:
        return styled_text(("gone: ", "yellow"), f"no holder of {kind} {name} has token {token}")
    return styled_text(("revoked ", "green"), f"{kind} {name}, token {token}; its holder notices at its next renewal")


@operation_command("presence.list", "presence", COORDINATION, example="sharedmem presence --role planner")
def presence(
    found: list[Present], role: Annotated[str | None, typer.Option(help="Only those in this role.")] = None
) -> RenderableType:
    """Show who is here, in the order in which they came."""
    rows = [
        (
            styled_text((one.actor, "cyan")),
            one.role,
            format_duration((one.last_seen - one.since).total_seconds()),
            dim(format_age(one.last_seen)),
            "" if one.info is None else one.info,
        )
        for one in found
    ]
    return rows_table(rows, "actor", "role", "here for", "last seen", "info")


_AT_ONCE = "now"


@command("limits", COORDINATION, example="sharedmem limits openai --limit 60 --per 60 --take")
def limits(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Plain (<namespace>:shared:<name>) or absolute.")],
    limit: Annotated[int, typer.Option(help="How much is admitted.")],
    per: Annotated[float, typer.Option(help="In how many seconds.")],
    algorithm: Annotated[Algorithm, typer.Option(help="As its other users have it.")] = "sliding_window",
    burst: Annotated[int | None, typer.Option(help="Size of the token bucket; without it the limit.")] = None,
    take: Annotated[bool, typer.Option("--take", help="Take of it; exit code 6 when that is refused.")] = False,
    cost: Annotated[int, typer.Option(help="How much to take.")] = 1,
) -> None:
    """Show what is left of a rate limit, or take of it."""
    options = options_of(context)
    asked = {"name": name, "limit": limit, "per": per, "algorithm": algorithm, "burst": burst}
    if not take:
        state = perform(options, "limit.state", **asked)
        print_answer(options, state, lambda: _state_picture(state))
        return
    permit = perform(options, "limit.take", **(asked | {"cost": cost}))
    print_answer(options, permit, lambda: _permit_picture(permit))
    if not permit:
        raise typer.Exit(LimitedError.codes.exit_code)


def _state_picture(state: LimitState) -> Table:
    rows = [
        ("limit", f"{state.limit:,} in {state.per:g} s ({state.algorithm.replace('_', ' ')})"),
        ("at once", f"{state.burst:,}"),
        ("left", f"{state.remaining:,}"),
        ("next", _AT_ONCE if not state.retry_after else f"in {state.retry_after:.3g} s"),
    ]
    return fields_table(rows, title=state.name)


def _permit_picture(permit: Permit) -> Text:
    if permit:
        return styled_text(("taken", "green"), f", {permit.remaining:,} left")
    return styled_text(("refused", "red"), f", {permit.remaining:,} left; try again in {permit.retry_after:.3g} s")
