"""The command that shows who is here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.faces.cli.app import AGREEMENT, command
from sharedmem.faces.cli.output import ago, answer, cell, duration, nothing, said, table
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.faces.operations import presence as table_of
from sharedmem.models import Present

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


@command("presence", AGREEMENT, example="sharedmem presence --role planner")
def presence(
    context: typer.Context,
    role: Annotated[str | None, typer.Option(help="Only those in this role.")] = None,
) -> None:
    """Show who is here, in the order in which they came."""
    options = options_of(context)
    found = perform(options, table_of.PRESENCE_WHO, table_of.PresenceWho(role=role))
    answer(options, found, lambda: _picture(found))


def _picture(found: list[Present]) -> Table | Text:
    if not found:
        return nothing()
    picture = table("actor", "role", "here for", "last seen", "info")
    for one in found:
        here_for = duration((one.last_seen - one.since).total_seconds())
        info = cell(one.info) if one.info is not None else said("")
        picture.add_row(
            said((one.actor, "cyan")), cell(one.role), said(here_for), said((ago(one.last_seen), "dim")), info
        )
    return picture
