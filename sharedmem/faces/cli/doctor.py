"""The command `doctor`: runs the checks and shows what they found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.errors import SharedMemoryError
from sharedmem.faces.cli import checks
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.checks import Check, Verdict
from sharedmem.faces.cli.output import console, counted, is_for_people, said, write_line
from sharedmem.faces.cli.session import Options, options_of
from sharedmem.faces.cli.values import json_text

if TYPE_CHECKING:
    from rich.text import Text

_MARKS = {Verdict.GOOD: ("✓", "green"), Verdict.NOTICE: ("!", "yellow"), Verdict.BAD: ("✗", "bold red")}
_NAME_WIDTH = 16


@command("doctor", SERVER, example="sharedmem doctor")
def doctor(
    context: typer.Context,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Remove blobs that no key of this server refers to any more.")
    ] = False,
) -> None:
    """Look for what is wrong or will be, and say what to do about it; exit code 1 if something is bad."""
    options = options_of(context)
    found = asyncio.run(_examined(options, sweep=sweep))
    if is_for_people(options):
        console().print(_summary(found))
    else:
        write_line(json_text(found))
    raise typer.Exit(int(any(check.verdict is Verdict.BAD for check in found)))


async def _examined(options: Options, *, sweep: bool) -> list[Check]:
    terminal = console() if is_for_people(options) else None
    found = []
    async for check in _all(options, sweep=sweep):
        found.append(check)
        if terminal is not None:
            terminal.print(_picture(check))
    return found


async def _all(options: Options, *, sweep: bool) -> AsyncIterator[Check]:
    for check in checks.of_the_machine(os.environ):
        yield check
    for check in await asyncio.to_thread(lambda: list(checks.of_the_programs())):
        yield check
    try:
        settings = await asyncio.to_thread(options.settings)
    except SharedMemoryError as error:
        yield checks.bad("settings", str(error))
        return
    yield checks.good("settings", "each has a sound value")
    for check in await asyncio.to_thread(lambda: list(checks.of_the_folder(settings))):
        yield check
    async for check in checks.of_the_server(settings, sweep=sweep):
        yield check


def _summary(found: list[Check]) -> Text:
    count = {verdict: sum(check.verdict is verdict for check in found) for verdict in Verdict}
    if count[Verdict.BAD]:
        return said(f"\n{count[Verdict.BAD]} bad: repair that first")
    notices = count[Verdict.NOTICE]
    return said("\nall is well", (f", {counted(notices, 'thing')} to know of" if notices else "", "dim"))


def _picture(check: Check) -> Text:
    mark, style = _MARKS[check.verdict]
    remedy = (f"\n{'':{_NAME_WIDTH + 2}}{check.remedy}", "italic") if check.remedy else ""
    return said((f"{mark} ", style), f"{check.about:<{_NAME_WIDTH}}", check.found, remedy)
