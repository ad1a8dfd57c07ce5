"""The command that shows a rate limit, and takes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.coordination.limits import Algorithm
from sharedmem.errors import LimitedError
from sharedmem.faces.cli.app import AGREEMENT, command
from sharedmem.faces.cli.output import answer, pairs, said
from sharedmem.faces.cli.session import options_of, perform
from sharedmem.faces.operations import limits as table_of
from sharedmem.models import LimitState, Permit

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_AT_ONCE = "now"


@command("limits", AGREEMENT, example="sharedmem limits openai --limit 60 --per 60 --take")
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
        state = perform(options, table_of.LIMIT_STATE, table_of.OnLimit.model_validate(asked))
        answer(options, state, lambda: _state_picture(state))
        return
    permit = perform(options, table_of.LIMIT_TAKE, table_of.LimitTake.model_validate(asked | {"cost": cost}))
    answer(options, permit, lambda: _permit_picture(permit))
    if not permit:
        raise typer.Exit(LimitedError.codes.exit_code)


def _state_picture(state: LimitState) -> Table:
    rows = [
        ("limit", f"{state.limit:,} in {state.per:g} s ({state.algorithm.replace('_', ' ')})"),
        ("at once", f"{state.burst:,}"),
        ("left", f"{state.remaining:,}"),
        ("next", _AT_ONCE if not state.retry_after else f"in {state.retry_after:.3g} s"),
    ]
    return pairs(rows, title=state.name)


def _permit_picture(permit: Permit) -> Text:
    if permit:
        return said(("taken", "green"), f", {permit.remaining:,} left")
    return said(("refused", "red"), f", {permit.remaining:,} left; try again in {permit.retry_after:.3g} s")
