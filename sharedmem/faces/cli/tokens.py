"""Commands for the tokens by which servers know their callers: make one, list them, take one back.

They are kept in the registry, which all servers on the same Redis look into, or with `--file` in a file that a server
reads when it starts.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sharedmem.clock import SystemClock
from sharedmem.errors import InvalidError
from sharedmem.faces.auth import Bearer, Rate, TokenEntry, add_entry, new_token, read_entries, remove_entry
from sharedmem.faces.cli.app import command
from sharedmem.faces.cli.app import tokens as group
from sharedmem.faces.cli.output import dim, fields_table, format_age, print_answer, rows_table, styled_text
from sharedmem.faces.cli.session import options_of, use_hub
from sharedmem.faces.token_registry import CACHED_S, REGISTRY, TokenRegistry
from sharedmem.models import Record

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")
_SPAN = re.compile(r"([0-9]{1,6})(s|min|h|d)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}

_File = Annotated[
    Path | None, typer.Option(help="Tokens file to use instead of the registry; servers read it when they start.")
]


class NewToken(Record):
    """A token, shown this once, and what is kept of it."""

    token: str
    id: str
    entry: dict[str, object]
    kept_in: str


class ListedToken(Record):
    """A token, as operators see it."""

    id: str
    label: str
    namespace: str
    actor: str | None
    subscribe: tuple[str, ...]
    grants: list[object]
    read_only: bool
    operator: bool
    administrator: bool
    rate: str | None
    created: datetime | None
    expires: datetime | None
    expired: bool
    used: datetime | None


class RevokedToken(Record):
    """A token that is not accepted any more."""

    id: str
    namespace: str
    actor: str | None
    within: float | None
    """Seconds after which every server refuses it; None when servers have to be started again."""


@command("create", None, group=group, example="sharedmem token create --actor planner --rate 100/s --expires-in 30d")
def create(  # noqa: PLR0913, PLR0917  # each is an option
    context: typer.Context,
    grant: Annotated[
        list[str] | None, typer.Option(help="A further right, as an absolute pattern: 'chat:team*'; may be repeated.")
    ] = None,
    subscribe: Annotated[
        list[str] | None, typer.Option(help="A further namespace it may read; may be repeated.")
    ] = None,
    label: Annotated[str, typer.Option(help="Whose it is or what it is for, to know it again.")] = "",
    rate: Annotated[str | None, typer.Option(help="How often it may call: 100/s, 600/min, 5000/h.")] = None,
    burst: Annotated[
        int | None, typer.Option(help="Calls at once after a pause; without it as many as --rate.")
    ] = None,
    expires_in: Annotated[str | None, typer.Option(help="How long it is good for: 90s, 15min, 12h, 30d.")] = None,
    whole_namespace: Annotated[
        bool, typer.Option("--whole-namespace", help="For the whole namespace, not for one --actor.")
    ] = False,
    operator: Annotated[
        bool, typer.Option("--operator", help="Let it see health and metrics of the whole service, for monitoring.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Let it look, and change nothing.")] = False,
    administrator: Annotated[
        bool, typer.Option("--administrator", help="Let it make and revoke tokens that may do no more than itself.")
    ] = False,
    file: _File = None,
) -> None:
    """Make a token for --actor in --namespace, shown this once; only its digest is kept."""
    options = options_of(context)
    settings = options.settings()
    if (settings.actor is None) != whole_namespace:
        raise InvalidError(
            "actor", settings.actor, "name the actor of the token with --actor, or say --whole-namespace"
        )
    bearer = Bearer.of(
        settings.namespace,
        actor=settings.actor,
        subscribe=subscribe or (),
        grants=grant or (),
        operator=operator,
        read_only=read_only,
        administrator=administrator,
    )
    allowed, expires = _parse_rate(rate, burst), _parse_expiry(expires_in)
    if file is not None:
        secret, entry = new_token(bearer, label=label, rate=allowed, created=SystemClock().now(), expires=expires)
        add_entry(file, entry)
    else:
        secret, entry = use_hub(
            options,
            lambda hub, _: TokenRegistry(hub).create(bearer, label=label, rate=allowed, expires=expires),
        )
    made = NewToken(token=secret, id=entry.id, entry=entry.written(), kept_in=str(file or REGISTRY))
    print_answer(options, made, lambda: _made_picture(made, entry))


@command("list", None, group=group, example="sharedmem token list")
def list_(context: typer.Context, file: _File = None) -> None:
    """Show the tokens of all namespaces, or of --namespace, with when each was last used; never the tokens."""
    options = options_of(context)
    if file is not None:
        known: list[tuple[TokenEntry, datetime | None]] = [(entry, None) for entry in read_entries(file)]
    else:
        known = [(one.entry, one.used) for one in use_hub(options, lambda hub, _: TokenRegistry(hub).listed())]
    now = SystemClock().now()
    shown = [_list_entry(*one, now) for one in known if options.namespace in {None, one[0].namespace}]
    print_answer(options, shown, lambda: _list_picture(shown))


@command("revoke", None, group=group, example="sharedmem token revoke 3f9a1c55e0d2")
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Its id, or the token itself.", metavar="ID")],
    file: _File = None,
) -> None:
    """Revoke a token: servers reject it within seconds; servers that read it from a file, when they are restarted."""
    options = options_of(context)
    if file is not None:
        gone, within = remove_entry(file, name), None
    else:
        gone, within = use_hub(options, lambda hub, _: TokenRegistry(hub).revoke(name)), CACHED_S
    done = RevokedToken(id=gone.id, namespace=gone.namespace, actor=gone.actor, within=within)
    print_answer(options, done, lambda: _revoked_picture(done))


def _parse_rate(text: str | None, burst: int | None) -> Rate | None:
    if text is None and burst is not None:
        raise InvalidError("burst", burst, "it goes with --rate, such as 100/s")
    return None if text is None else Rate.of(text, burst=burst)


def _parse_expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    found = _SPAN.fullmatch(text)
    if found is None:
        raise InvalidError("expires-in", text, "give a number with its unit: 90s, 15min, 12h, 30d")
    return SystemClock().now() + timedelta(**{_UNITS[found[2]]: int(found[1])})


def _list_entry(entry: TokenEntry, used: datetime | None, now: datetime) -> ListedToken:
    return ListedToken(
        id=entry.id,
        label=entry.label,
        namespace=entry.namespace,
        actor=entry.actor,
        subscribe=entry.subscribe,
        grants=entry.model_dump(include={"grants"})["grants"],
        read_only=entry.read_only,
        operator=entry.operator,
        administrator=entry.administrator,
        rate=None if entry.rate is None else str(entry.rate),
        created=entry.created,
        expires=entry.expires,
        expired=entry.has_expired(now),
        used=used,
    )


# -- pictures -------------------------------------------------------------------------------------


def _made_picture(made: NewToken, entry: TokenEntry) -> Table:
    rows: list[tuple[str, object]] = [
        ("token", made.token),
        ("actor", f"{entry.actor or 'all'} in namespace {entry.namespace}"),
        ("keep it", "it is shown this once; servers know its digest only"),
        ("id", made.id),
        ("kept in", f"the {made.kept_in}" if made.kept_in == REGISTRY else made.kept_in),
    ]
    if entry.expires is not None:
        rows.append(("good until", entry.expires.isoformat(" ", "seconds")))
    return fields_table(rows, title="A new token")


def _list_picture(shown: list[ListedToken]) -> RenderableType:
    rows = [
        (
            styled_text((one.id, "cyan")),
            one.label,
            one.namespace,
            one.actor or "(all)",
            one.rate or "-",
            _expiry(one),
            dim(format_age(one.used) if one.used else "never"),
        )
        for one in shown
    ]
    return rows_table(rows, "id", "label", "namespace", "actor", "rate", "expires", "used")


def _expiry(one: ListedToken) -> str | Text:
    if one.expired:
        return styled_text(("expired", "red"))
    return "never" if one.expires is None else one.expires.isoformat(" ", "minutes")


def _revoked_picture(done: RevokedToken) -> Table:
    when = "when they are started again" if done.within is None else f"within {done.within:g} s"
    who = f"{done.actor or 'all'} in namespace {done.namespace}"
    return fields_table([("id", done.id), ("stood for", who), ("servers refuse it", when)], title="Taken back")
