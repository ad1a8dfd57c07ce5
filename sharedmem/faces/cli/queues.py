"""Commands on task queues: put, claim, say what became of a task, look after the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.errors import NotFoundError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import command, queues
from sharedmem.faces.cli.data import Value
from sharedmem.faces.cli.operations import operation_command
from sharedmem.faces.cli.output import (
    body,
    dim,
    fields_table,
    format_age,
    format_count,
    format_duration,
    list_table,
    print_answer,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.faces.cli.values import read_value
from sharedmem.models import PutResult, QueuedTask, QueueStats, Task, TaskOutcome, TaskPage
from sharedmem.models.coordination import QueueLine, SearchedState

if TYPE_CHECKING:
    from rich.console import RenderableType

Name = Annotated[
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
_LOCAL = {"deadline"}
"""What only means something inside of a process."""


@operation_command(
    "queue.put",
    "put",
    group=queues,
    example="""sharedmem queue put jobs '{"url": "https://example.org"}' --priority 5""",
)
def queue_put(
    put: PutResult,
    queue: Name,
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
    name: Name,
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
    name: Name,
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
    queue: Name,
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
def queue_fail(context: typer.Context, name: Name, task_id: TaskId, token: Token, reason: Reason = "") -> None:
    """Lay a task with the dead letters, however many attempts are left."""
    options = options_of(context)
    perform(options, "queue.fail", queue=name, id=task_id, token=token, error=reason)
    print_answer(options, True, lambda: styled_text((task_id, "cyan"), (" is a dead letter", "red")))


@operation_command(
    "queue.result", "result", group=queues, example="sharedmem queue result jobs 1795245066123456 --wait 30"
)
def queue_result(outcome: TaskOutcome, queue: Name, id_: TaskId, wait: Wait = 0.0) -> RenderableType:
    """Show the outcome of a task; exit code 3 if it is unknown."""
    if outcome.is_done:
        return body(outcome.value)
    return styled_text((outcome.state, "red" if outcome.state == "dead" else "yellow"), f"  {outcome.error or ''}")


@operation_command("queue.list", "list", group=queues, example="sharedmem queue list")
def queue_list(names: list[str]) -> RenderableType:
    """Show the queues of the namespace; `queue` alone does the same."""
    return list_table(names, first=1)


@operation_command("queue.stats", "stats", group=queues, example="sharedmem queue stats jobs")
def queue_stats(stats: QueueStats, queue: Name) -> RenderableType:
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
    queue: Name,
    state: Annotated[QueueLine, typer.Option(help="Where they wait.")] = "ready",
    n: Most = 10,
) -> RenderableType:
    """Show the next tasks without touching them."""
    return _tasks_picture(tasks)


@operation_command("queue.search", "search", group=queues, example="sharedmem queue search jobs timeout --state dead")
def queue_search(
    page: TaskPage,
    queue: Name,
    words: Annotated[str, typer.Argument(help="All of them, in payload, error or names; or the id of a task.")] = "",
    state: Annotated[SearchedState | None, typer.Option(help="Where they are; all, if not given.")] = None,
    limit: Most = 50,
    cursor: Annotated[str | None, typer.Option(help="Of the page before.")] = None,
) -> RenderableType:
    """Find tasks by words of their payload, error, producer or worker."""
    picture = _tasks_picture(page.tasks)
    return picture if page.cursor is None else stack(picture, dim(f"more: --cursor {page.cursor}"))


@operation_command("queue.bury", "bury", group=queues, example="sharedmem queue bury jobs 1795245066123456")
def queue_bury(news: bool, queue: Name, id_: TaskId, error: Reason = "") -> RenderableType:
    """Move a task to the dead letters; shows whether it was elsewhere before."""
    return styled_text(id_, (" is a dead letter" if news else " is no task that waits or runs", "yellow"))


@command("dead", None, group=queues, example="sharedmem queue dead jobs --redrive-all")
def queue_dead(
    context: typer.Context,
    name: Name,
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
def queue_pause(news: bool, queue: Name) -> RenderableType:
    """Pause a queue: workers get no more tasks; shows whether it was running."""
    return styled_text(queue, (" is paused" if news else " was paused already", "yellow"))


@operation_command("queue.resume", "resume", group=queues, example="sharedmem queue resume jobs")
def queue_resume(news: bool, queue: Name) -> RenderableType:
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
    return {name: getattr(task, name) for name in Task.model_fields if name not in _LOCAL}


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
