"""Commands on task queues: put, claim, say what became of a task, look after the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.errors import NotFoundError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import command, queues
from sharedmem.faces.cli.data import Value
from sharedmem.faces.cli.output import (
    body,
    cell,
    empty_text,
    fields_table,
    format_age,
    format_count,
    format_duration,
    list_table,
    print_answer,
    show_operation,
    styled_text,
    table,
)
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.faces.cli.values import read_value
from sharedmem.models import QueuedTask, QueueStats, Task, TaskOutcome
from sharedmem.models.coordination import QueueLine

if TYPE_CHECKING:
    from rich.console import RenderableType

Name = Annotated[
    str,
    typer.Argument(
        help="Plain (<namespace>:shared:<name>) or absolute.", metavar="NAME", autocompletion=completion.queues
    ),
]
TaskId = Annotated[str, typer.Argument(help="The task's id, as put and claim tell it.", metavar="ID")]
Token = Annotated[int, typer.Argument(help="The receipt, as claim tells it.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for it.")]
Reason = Annotated[str, typer.Option("--error", help="What went wrong.")]
Most = Annotated[int, typer.Option("--limit", help="Show at most that many.")]
_LOCAL = {"deadline"}
"""What only means something inside of a process."""


@command(
    "put", None, group=queues, example="""sharedmem queue put jobs '{"url": "https://example.org"}' --priority 5"""
)
def queue_put(
    context: typer.Context,
    name: Name,
    value: Value,
    priority: Annotated[int, typer.Option(help="The higher, the sooner.")] = 0,
    delay: Annotated[float, typer.Option(help="Seconds until somebody may have it.")] = 0.0,
    dedup_id: Annotated[
        str | None, typer.Option("--id", help="While a task of this id is not done, no second one is put.")
    ] = None,
    unique_for: Annotated[float, typer.Option(help="Seconds for which that holds also when it is done.")] = 0.0,
) -> None:
    """Put a task, and tell its id."""
    options = options_of(context)
    put = perform(
        options,
        "queue.put",
        queue=name,
        payload=read_value(value),
        priority=priority,
        delay=delay,
        id=dedup_id,
        unique_for=unique_for,
    )
    print_answer(
        options, put, lambda: styled_text((put.id, "cyan"), (" is put" if put.is_new else " was there already", "dim"))
    )


@command("claim", None, group=queues, example="sharedmem queue claim jobs --wait 10")
def queue_claim(
    context: typer.Context,
    name: Name,
    wait: Wait = 0.0,
    ack: Annotated[bool, typer.Option("--ack", help="Say at once that it is done.")] = False,
    visibility: Annotated[float, typer.Option(help="Seconds until somebody else may have it.")] = 30.0,
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
    """Say that a task is done; exit code 4 when somebody else has it by now."""
    options = options_of(context)
    outcome = None if result is None else read_value(result)
    perform(options, "queue.ack", queue=name, id=task_id, token=token, result=outcome)
    print_answer(options, True, lambda: styled_text((task_id, "cyan"), (" is done", "dim")))


@command("retry", None, group=queues, example="sharedmem queue retry jobs 1795245066123456 1795245066123999 --delay 60")
def queue_retry(
    context: typer.Context,
    name: Name,
    task_id: TaskId,
    token: Token,
    reason: Reason = "",
    delay: Annotated[float | None, typer.Option(help="Seconds to pause; without it, it backs off.")] = None,
    attempt: Annotated[int, typer.Option(help="Which attempt failed, as claim tells it, for the back-off.")] = 1,
) -> None:
    """Say that a task failed and may be tried again; tells whether it will be."""
    options = options_of(context)
    again = perform(
        options, "queue.retry", queue=name, id=task_id, token=token, error=reason, delay=delay, attempt=attempt
    )
    told = (" is tried again", "dim") if again else (" is a dead letter: that was the last attempt", "red")
    print_answer(options, again, lambda: styled_text((task_id, "cyan"), told))


@command("fail", None, group=queues, example="sharedmem queue fail jobs 1795245066123456 1795245066123999 --error bad")
def queue_fail(context: typer.Context, name: Name, task_id: TaskId, token: Token, reason: Reason = "") -> None:
    """Lay a task with the dead letters, however many attempts are left."""
    options = options_of(context)
    perform(options, "queue.fail", queue=name, id=task_id, token=token, error=reason)
    print_answer(options, True, lambda: styled_text((task_id, "cyan"), (" is a dead letter", "red")))


@command("result", None, group=queues, example="sharedmem queue result jobs 1795245066123456 --wait 30")
def queue_result(context: typer.Context, name: Name, task_id: TaskId, wait: Wait = 0.0) -> None:
    """Show what became of a task; exit code 3 when nobody knows it."""
    show_operation(context, "queue.result", _outcome_picture, queue=name, id=task_id, wait=wait)


@command("list", None, group=queues, example="sharedmem queue list")
def queue_list(context: typer.Context) -> None:
    """Show the queues of the namespace; `queue` alone does the same."""
    show_operation(context, "queue.list", lambda names: list_table(names, first=1))


@command("stats", None, group=queues, example="sharedmem queue stats jobs")
def queue_stats(context: typer.Context, name: Name) -> None:
    """Show what is in a queue, and what has happened in it."""
    show_operation(context, "queue.stats", _stats_picture, queue=name)


@command("peek", None, group=queues, example="sharedmem queue peek jobs --state claimed")
def queue_peek(
    context: typer.Context,
    name: Name,
    state: Annotated[QueueLine, typer.Option(help="Where they wait.")] = "ready",
    limit: Most = 10,
) -> None:
    """Show the next tasks without touching them."""
    show_operation(context, "queue.peek", _tasks_picture, queue=name, n=limit, state=state)


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
    """Show the dead letters with their errors, or do something about them and tell for how many."""
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


@command("pause", None, group=queues, example="sharedmem queue pause jobs")
def queue_pause(context: typer.Context, name: Name) -> None:
    """Hand out no more tasks; tells whether that is news."""
    options = options_of(context)
    news = perform(options, "queue.pause", queue=name)
    print_answer(options, news, lambda: styled_text(name, (" is paused" if news else " was paused already", "yellow")))


@command("resume", None, group=queues, example="sharedmem queue resume jobs")
def queue_resume(context: typer.Context, name: Name) -> None:
    """Hand out tasks again; tells whether that is news."""
    options = options_of(context)
    news = perform(options, "queue.resume", queue=name)
    print_answer(options, news, lambda: styled_text(name, (" goes on" if news else " was not paused", "green")))


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
    from rich.console import Group  # noqa: PLC0415  a pipe does not wait for it

    facts = fields_table(
        [
            ("task", task.id),
            ("attempt", f"{task.attempt} of {task.max_attempts}"),
            ("put", f"by {task.put_by} {format_age(task.put_at)}"),
            *([("error before", task.error)] if task.error else []),
        ]
    )
    ending = "is done" if is_done else f"sharedmem queue ack {name} {task.id} {task.token}"
    return Group(facts, body(task.payload), styled_text((ending, "dim")))


def _outcome_picture(outcome: TaskOutcome) -> RenderableType:
    if outcome.is_done:
        return body(outcome.value)
    return styled_text((outcome.state, "red" if outcome.state == "dead" else "yellow"), f"  {outcome.error or ''}")


def _tasks_picture(tasks: list[QueuedTask]) -> RenderableType:
    if not tasks:
        return empty_text()
    picture = table("task", "priority", "attempts", "worker", "put", "error", "payload", right=["priority", "attempts"])
    for task in tasks:
        picture.add_row(
            cell(task.id),
            cell(task.priority),
            styled_text(f"{task.attempts} of {task.max_attempts}"),
            cell(task.worker or ""),
            styled_text((format_age(task.put_at), "dim")),
            cell(task.error or ""),
            cell(task.payload),
        )
    return picture


def _stats_picture(stats: QueueStats) -> RenderableType:
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
