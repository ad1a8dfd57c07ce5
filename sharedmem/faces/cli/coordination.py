"""Commands on coordination: locks, leaders, presence, rate limits, and queues of tasks."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.config import TOKEN_VARIABLE
from sharedmem.coordination.locks import LeaseKind
from sharedmem.coordination.rate_limits import Algorithm
from sharedmem.errors import InvalidError, LimitedError, LockLostError, NotFoundError, SharedMemoryError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import COORDINATION, command, operation_command, queues
from sharedmem.faces.cli.data import Value
from sharedmem.faces.cli.output import (
    body,
    dim,
    fields_table,
    format_age,
    format_count,
    format_duration,
    list_table,
    print_answer,
    read_value,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.faces.cli.session import Options, open_store, options_of, perform
from sharedmem.models import (
    CoordinationEntry,
    CoordinationPage,
    LeaseState,
    LimitState,
    Permit,
    Present,
    PutResult,
    QueuedTask,
    QueueStats,
    Task,
    TaskOutcome,
    TaskPage,
)
from sharedmem.models.coordination import CoordinationKind, QueueLine, SearchedState

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


# -- queues ---------------------------------------------------------------------------------------


QueueName = Annotated[
    str,
    typer.Argument(
        help="Plain (<namespace>:shared:<name>) or absolute.", metavar="NAME", autocompletion=completion.queues
    ),
]
TaskId = Annotated[str, typer.Argument(help="The task's id, as put and claim print it.", metavar="ID")]
Token = Annotated[int, typer.Argument(help="The receipt, as claim prints it.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for it.")]
Reason = Annotated[str, typer.Option("--error", help="What went wrong.")]
Most = Annotated[int, typer.Option("--limit", help="Show at most that many.")]
_QUEUE_LOCAL = {"deadline"}
"""What only means something inside of a process."""


@operation_command(
    "queue.put",
    "put",
    group=queues,
    example="""sharedmem queue put jobs '{"url": "https://example.org"}' --priority 5""",
)
def queue_put(
    put: PutResult,
    queue: QueueName,
    payload: Value,
    priority: Annotated[int, typer.Option(help="The higher, the sooner.")] = 0,
    delay: Annotated[float, typer.Option(help="Seconds until a worker may claim it.")] = 0.0,
    id_: Annotated[
        str | None, typer.Option("--id", help="While a task of this id is not done, no second one is put.")
    ] = None,
    unique_for: Annotated[float, typer.Option(help="Seconds for which that holds also when it is done.")] = 0.0,
) -> RenderableType:
    """Put a task, and show its id."""
    return styled_text((put.id, "cyan"), (" is put" if put.is_new else " was there already", "dim"))


@command("claim", None, group=queues, example="sharedmem queue claim jobs --wait 10")
def queue_claim(
    context: typer.Context,
    name: QueueName,
    wait: Wait = 0.0,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge the task at once.")] = False,
    visibility: Annotated[float, typer.Option(help="Seconds until another worker may claim it.")] = 30.0,
) -> None:
    """Take the next task; exit code 3 if the queue has none to take.

    Without --ack, say within the visibility what became of it: queue ack, queue retry, or queue fail.
    """
    options = options_of(context)
    task = perform(options, "queue.claim", queue=name, wait=wait, visibility=visibility)
    if task is None:
        raise NotFoundError("a ready task of queue", name, "put one, or wait for one with --wait")
    if ack:
        perform(options, "queue.ack", queue=name, id=task.id, token=task.token)
    print_answer(options, _task_fields(task), lambda: _task_picture(name, task, is_done=ack))


@command("ack", None, group=queues, example="sharedmem queue ack jobs 1795245066123456 1795245066123999")
def queue_ack(
    context: typer.Context,
    name: QueueName,
    task_id: TaskId,
    token: Token,
    result: Annotated[
        str | None, typer.Option(help="What came out of it: JSON, @file, or -; what is no JSON is a text.")
    ] = None,
) -> None:
    """Acknowledge a task as done; exit code 4 if another worker has it by now."""
    options = options_of(context)
    outcome = None if result is None else read_value(result)
    perform(options, "queue.ack", queue=name, id=task_id, token=token, result=outcome)
    print_answer(options, True, lambda: styled_text((task_id, "cyan"), (" is done", "dim")))


@operation_command(
    "queue.retry",
    "retry",
    group=queues,
    example="sharedmem queue retry jobs 1795245066123456 1795245066123999 --delay 60",
)
def queue_retry(
    again: bool,
    queue: QueueName,
    id_: TaskId,
    token: Token,
    error: Reason = "",
    delay: Annotated[float | None, typer.Option(help="Seconds to pause; without it, it backs off.")] = None,
    attempt: Annotated[int, typer.Option(help="Which attempt failed, as claim prints it, for the backoff.")] = 1,
) -> RenderableType:
    """Report that a task failed and may be retried; shows whether it will be."""
    told = (" is tried again", "dim") if again else (" is a dead letter: that was the last attempt", "red")
    return styled_text((id_, "cyan"), told)


@command("fail", None, group=queues, example="sharedmem queue fail jobs 1795245066123456 1795245066123999 --error bad")
def queue_fail(context: typer.Context, name: QueueName, task_id: TaskId, token: Token, reason: Reason = "") -> None:
    """Lay a task with the dead letters, however many attempts are left."""
    options = options_of(context)
    perform(options, "queue.fail", queue=name, id=task_id, token=token, error=reason)
    print_answer(options, True, lambda: styled_text((task_id, "cyan"), (" is a dead letter", "red")))


@operation_command(
    "queue.result", "result", group=queues, example="sharedmem queue result jobs 1795245066123456 --wait 30"
)
def queue_result(outcome: TaskOutcome, queue: QueueName, id_: TaskId, wait: Wait = 0.0) -> RenderableType:
    """Show the outcome of a task; exit code 3 if it is unknown."""
    if outcome.is_done:
        return body(outcome.value)
    return styled_text((outcome.state, "red" if outcome.state == "dead" else "yellow"), f"  {outcome.error or ''}")


@operation_command("queue.list", "list", group=queues, example="sharedmem queue list")
def queue_list(names: list[str]) -> RenderableType:
    """Show the queues of the namespace; `queue` alone does the same."""
    return list_table(names, first=1)


@operation_command("queue.stats", "stats", group=queues, example="sharedmem queue stats jobs")
def queue_stats(stats: QueueStats, queue: QueueName) -> RenderableType:
    """Show what is in a queue, and what has happened in it."""
    state = ("paused", "yellow") if stats.paused else ("open", "green")
    age = "" if stats.oldest_age is None else f"the oldest for {format_duration(stats.oldest_age)}"
    happened = stats.counters
    return fields_table(
        [
            ("state", styled_text(state)),
            ("ready", styled_text((str(stats.ready), "cyan"), f"  {age}")),
            ("delayed", stats.delayed),
            ("claimed", stats.claimed),
            ("dead", styled_text((str(stats.dead), "red" if stats.dead else "cyan"))),
            ("workers waiting", stats.workers_waiting),
            ("so far", f"{happened.put} put, {happened.done} done, {happened.retried} retried"),
            ("", f"{happened.recovered} recovered, {happened.dead} dead, {happened.discarded} discarded"),
        ]
    )


@operation_command("queue.peek", "peek", group=queues, example="sharedmem queue peek jobs --state claimed")
def queue_peek(
    tasks: list[QueuedTask],
    queue: QueueName,
    state: Annotated[QueueLine, typer.Option(help="Where they wait.")] = "ready",
    n: Most = 10,
) -> RenderableType:
    """Show the next tasks without touching them."""
    return _tasks_picture(tasks)


@operation_command("queue.search", "search", group=queues, example="sharedmem queue search jobs timeout --state dead")
def queue_search(
    page: TaskPage,
    queue: QueueName,
    words: Annotated[str, typer.Argument(help="All of them, in payload, error or names; or the id of a task.")] = "",
    state: Annotated[SearchedState | None, typer.Option(help="Where they are; all, if not given.")] = None,
    limit: Most = 50,
    cursor: Annotated[str | None, typer.Option(help="Of the page before.")] = None,
) -> RenderableType:
    """Find tasks by words of their payload, error, producer or worker."""
    picture = _tasks_picture(page.tasks)
    return picture if page.cursor is None else stack(picture, dim(f"more: --cursor {page.cursor}"))


@operation_command("queue.bury", "bury", group=queues, example="sharedmem queue bury jobs 1795245066123456")
def queue_bury(news: bool, queue: QueueName, id_: TaskId, error: Reason = "") -> RenderableType:
    """Move a task to the dead letters; shows whether it was elsewhere before."""
    return styled_text(id_, (" is a dead letter" if news else " is no task that waits or runs", "yellow"))


@command("dead", None, group=queues, example="sharedmem queue dead jobs --redrive-all")
def queue_dead(
    context: typer.Context,
    name: QueueName,
    redrive: Annotated[str | None, typer.Option(metavar="ID", help="Try this one again.")] = None,
    redrive_all: Annotated[bool, typer.Option("--redrive-all", help="Try all of them again.")] = False,
    delete: Annotated[str | None, typer.Option(metavar="ID", help="Delete this one.")] = None,
    discard: Annotated[str | None, typer.Option(hidden=True, help="Former name of --delete, until 0.3.")] = None,
    limit: Most = 10,
) -> None:
    """Show the dead letters with their errors, or redrive or discard them and show how many."""
    options = options_of(context)
    if redrive_all:
        _print_count(context, perform(options, "queue.redrive_all", queue=name), "tried again")
    elif redrive is not None:
        _print_count(context, _change_dead_letter(context, "queue.redrive", name, redrive), "tried again")
    elif (gone := delete or discard) is not None:
        _print_count(context, _change_dead_letter(context, "queue.delete", name, gone), "deleted")
    else:
        letters = perform(options, "queue.dead", queue=name, n=limit)
        print_answer(options, letters, lambda: _tasks_picture(letters))


@operation_command("queue.pause", "pause", group=queues, example="sharedmem queue pause jobs")
def queue_pause(news: bool, queue: QueueName) -> RenderableType:
    """Pause a queue: workers get no more tasks; shows whether it was running."""
    return styled_text(queue, (" is paused" if news else " was paused already", "yellow"))


@operation_command("queue.resume", "resume", group=queues, example="sharedmem queue resume jobs")
def queue_resume(news: bool, queue: QueueName) -> RenderableType:
    """Resume a queue; shows whether it was paused."""
    return styled_text(queue, (" goes on" if news else " was not paused", "green"))


# -- what they share ------------------------------------------------------------------------------


def _change_dead_letter(context: typer.Context, operation: str, name: str, task_id: str) -> int:
    if not perform(options_of(context), operation, queue=name, id=task_id):
        raise NotFoundError("dead letter", task_id, "`queue dead` shows those there are")
    return 1


def _print_count(context: typer.Context, count: int, done: str) -> None:
    print_answer(options_of(context), count, lambda: styled_text((format_count(count, "task"), "cyan"), f" {done}"))


def _task_fields(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in Task.model_fields if name not in _QUEUE_LOCAL}


# -- pictures -------------------------------------------------------------------------------------


def _task_picture(name: str, task: Task, *, is_done: bool) -> RenderableType:
    facts = fields_table(
        [
            ("task", task.id),
            ("attempt", f"{task.attempt} of {task.max_attempts}"),
            ("put", f"by {task.put_by} {format_age(task.put_at)}"),
            *([("error before", task.error)] if task.error else []),
        ]
    )
    ending = "is done" if is_done else f"sharedmem queue ack {name} {task.id} {task.token}"
    return stack(facts, body(task.payload), dim(ending))


def _tasks_picture(tasks: list[QueuedTask]) -> RenderableType:
    headings = ("task", "priority", "attempts", "worker", "put", "error", "payload")
    rows = [
        (
            task.id,
            task.priority,
            f"{task.attempts} of {task.max_attempts}",
            task.worker or "",
            dim(format_age(task.put_at)),
            task.error or "",
            task.payload,
        )
        for task in tasks
    ]
    return rows_table(rows, *headings, right=["priority", "attempts"])
