"""Commands on the tasks of synthesis: task show, list, retry, work."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from sharedmem.faces.cli import notes_pictures as pictures
from sharedmem.faces.cli.app import command, tasks
from sharedmem.faces.cli.output import answer, note, said
from sharedmem.faces.cli.session import opened, options_of, perform
from sharedmem.faces.operations import synthesis as table_of
from sharedmem.models import SynthesisTask

TaskId = Annotated[str, typer.Argument(metavar="ID", help="What adding answered.")]


@command("show", None, group=tasks, example="sharedmem task show 01J9 --wait 30")
def task_show(
    context: typer.Context,
    task_id: TaskId,
    wait: Annotated[float, typer.Option(help="Seconds to wait until it is done or has failed.")] = 0.0,
) -> None:
    """How far a task is, and what came out of it."""
    options = options_of(context)

    async def work() -> SynthesisTask:
        async with opened(settings) as (_, store):
            return await store.synthesis.wait(task_id, timeout=wait)

    settings = options.settings()
    found = asyncio.run(work())
    answer(options, found, lambda: pictures.task_picture(found))


@command("list", None, group=tasks, example="sharedmem task list")
def task_list(
    context: typer.Context, limit: Annotated[int, typer.Option(help="How many of each state.")] = 100
) -> None:
    """The tasks under way, those that wait, and those that have failed."""
    options = options_of(context)
    found = perform(options, table_of.SYNTHESIS_LIST_TASKS, table_of.ListTasks(limit=limit))
    answer(options, found, lambda: pictures.tasks_picture(found))


@command("retry", None, group=tasks, example="sharedmem task retry 01J9")
def task_retry(context: typer.Context, task_id: TaskId) -> None:
    """Try a task that has failed again."""
    options = options_of(context)
    done = perform(options, table_of.SYNTHESIS_RETRY_TASK, table_of.OnSynthesisTask(task_id=task_id))
    answer(options, done, lambda: said(("waits again", "green")) if done else said(("no such failed task", "yellow")))


@command("work", None, group=tasks, example="sharedmem task work")
def task_work(context: typer.Context) -> None:
    """Work on the tasks of the namespace until Ctrl-C; tasks under way may end."""
    settings = options_of(context).settings()

    async def work() -> None:
        async with opened(settings) as (_, store):
            loop, told = asyncio.get_running_loop(), asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, told.set)
            store.synthesis.start()
            note(f"working on {settings.namespace}, {settings.synthesis_concurrency} tasks at a time; Ctrl-C ends it")
            await told.wait()
            await store.synthesis.drain()

    asyncio.run(work())
