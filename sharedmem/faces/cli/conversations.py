"""Commands on conversations: append to their logs, read, cut and fork them, and patch their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.cli.app import conversations, operation_command
from sharedmem.faces.cli.data import Values
from sharedmem.faces.cli.output import (
    cell,
    dim,
    fields_table,
    format_age,
    format_duration,
    format_size,
    read_value,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.models import (
    Conversation,
    ConversationChange,
    ConversationEntry,
    ConversationErasure,
    ConversationList,
    ConversationPage,
    ConversationState,
    ConversationStats,
    PoppedEntries,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


def _read_fields(words: list[str]) -> dict[str, Any]:
    """Return the fields of a state by their names: each word is NAME=VALUE, and NAME= alone removes the field.

    Raises:
        InvalidError: a word has no `=`, or no name before it.
    """
    fields: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InvalidError("state", word, "give NAME=VALUE, such as topic=lamp; topic= removes the field")
        fields[name] = read_value(value) if value else None
    return fields


def _append_request(given: dict[str, Any]) -> dict[str, Any]:
    tags = {name: given.pop(name) for name in ("user", "agent", "app") if name in given}
    fields = {name: value for name, value in given.items() if name != "state"}
    if "state" in given:
        fields["state"] = _read_fields(given["state"])
    return {**fields, "tags": tags} if tags else fields


Id = Annotated[str, typer.Argument(help="Plain (<namespace>:<actor>:<id>) or absolute.", metavar="ID")]
Revision = Annotated[int | None, typer.Option(help="Only if the log still has this revision; 0: only if it is new.")]
Ttl = Annotated[float | None, typer.Option(help="Seconds until it expires; without it the lifetime stays.")]
Renew = Annotated[bool, typer.Option("--renew", help="With --ttl: each append and read begins the lifetime anew.")]
EntryIds = Annotated[
    list[str] | None, typer.Option("--entry-id", help="One for each entry: what the log has is not added again.")
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="NAME=VALUE", help="Set a field of the state in the same step; NAME= removes it."),
]
OfUser = Annotated[str | None, typer.Option(help="Only conversations of this user.")]
OfAgent = Annotated[str | None, typer.Option(help="Only conversations of this agent.")]
OfScope = Annotated[str | None, typer.Option(help="Only conversations of this actor, or `shared`.")]
OfApp = Annotated[str | None, typer.Option(help="Only conversations of this application.")]


@operation_command(
    "conversation.list", "list", group=conversations, example="sharedmem conversation list --user u1 --limit 20"
)
def conversation_list(
    found: ConversationList,
    user: OfUser = None,
    agent: OfAgent = None,
    app: OfApp = None,
    scope: OfScope = None,
    order: Annotated[Literal["newest", "oldest"], typer.Option(help="By their last change.")] = "newest",
    cursor: Annotated[str | None, typer.Option(help="Cursor of the page before.")] = None,
    limit: Annotated[int, typer.Option(help="Show at most that many.")] = 50,
) -> RenderableType:
    """Show conversations by their last change."""
    rows = [
        (one.key, one.length, one.user, one.agent, one.app, format_age(one.updated), one.parent)
        for one in found.conversations
    ]
    picture = rows_table(
        rows, "conversation", "entries", "user", "agent", "app", "changed", "fork of", right=["entries"]
    )
    return picture if found.cursor is None else stack(picture, dim(f"more with --cursor {found.cursor}"))


@operation_command("conversation.get", "get", group=conversations, example="sharedmem conversation get ticket-7")
def conversation_get(found: Conversation, id_: Id) -> RenderableType:
    """Show what is known of a conversation; exit code 3 if it does not exist."""
    lifetime = "never" if found.ttl is None else f"in {format_duration(found.ttl)}"
    renewed = ", counted anew by each use" if found.renews else ""
    return fields_table(
        [
            ("conversation", found.key),
            ("entries", found.length),
            ("revision", found.revision),
            ("version of the state", found.state_version),
            ("created", f"{format_age(found.created)} by {found.actor}"),
            ("changed", format_age(found.updated)),
            *((name, tag) for name, tag in (("user", found.user), ("agent", found.agent), ("app", found.app)) if tag),
            *([("fork of", f"{found.parent}, {_count(found.shared)}")] if found.parent else []),
            ("expires", f"{lifetime}{renewed}"),
        ]
    )


@operation_command(
    "conversation.read", "entries", group=conversations, example="sharedmem conversation entries ticket-7 --last 20"
)
def conversation_entries(
    page: ConversationPage,
    id_: Id,
    last: Annotated[int | None, typer.Option(help="The newest so many entries.")] = None,
    after: Annotated[str | None, typer.Option(help="The entries behind this cursor or id.")] = None,
    around: Annotated[str | None, typer.Option(help="The entries beside this cursor or id.")] = None,
    limit: Annotated[int, typer.Option(help="Most entries, where --last is not given.")] = 100,
) -> RenderableType:
    """Show entries of a conversation, oldest first."""
    told = f"{_count(page.length)} in all, revision {page.revision}"
    return stack(_entries_picture(page.entries), dim(told))


@operation_command(
    "conversation.append",
    "append",
    group=conversations,
    example="sharedmem conversation append ticket-7 hello --entry-id m1",
    request=_append_request,
)
def conversation_append(  # noqa: PLR0913, PLR0917  # each is an option
    change: ConversationChange,
    id_: Id,
    entries: Values,
    entry_ids: EntryIds = None,
    if_revision: Revision = None,
    state: Fields = None,
    user: Annotated[str | None, typer.Option(help="Tag it with this user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Tag it with this agent.")] = None,
    app: Annotated[str | None, typer.Option(help="Tag it with this application.")] = None,
    ttl: Ttl = None,
    renew: Renew = False,
) -> RenderableType:
    """Append entries, all or none; the first call creates the conversation. Exit code 4 on another revision."""
    return _change_picture(id_, change)


@operation_command("conversation.pop", "pop", group=conversations, example="sharedmem conversation pop ticket-7")
def conversation_pop(
    popped: PoppedEntries,
    id_: Id,
    count: Annotated[int, typer.Argument(help="How many, at most 100.")] = 1,
    if_revision: Revision = None,
) -> RenderableType:
    """Remove the newest entries and show them."""
    return _entries_picture(popped.entries)


@operation_command(
    "conversation.replace",
    "replace",
    group=conversations,
    example="sharedmem conversation replace ticket-7 'The lamp is broken.'",
    request=lambda given: _append_request({"after": None, **given}),
)
def conversation_replace(
    change: ConversationChange,
    id_: Id,
    entries: Values,
    after: Annotated[str | None, typer.Option(help="The last entry that stays; without it none stays.")] = None,
    entry_ids: EntryIds = None,
    if_revision: Revision = None,
    state: Fields = None,
) -> RenderableType:
    """Replace all entries behind one of them, for example by their summary."""
    return _change_picture(id_, change)


@operation_command(
    "conversation.fork",
    "fork",
    group=conversations,
    example="sharedmem conversation fork ticket-7 ticket-7-retry",
)
def conversation_fork(
    change: ConversationChange,
    id_: Id,
    new_id: Annotated[str, typer.Argument(help="Id of the new conversation.", metavar="NEW-ID")],
    at: Annotated[str | None, typer.Option(help="The last entry of the new one; without it all entries.")] = None,
    ttl: Ttl = None,
    renew: Renew = False,
) -> RenderableType:
    """Create a conversation that begins with the entries of another; they are shared, not copied."""
    return _change_picture(new_id, change)


@operation_command("conversation.state", "state", group=conversations, example="sharedmem conversation state ticket-7")
def conversation_state(state: ConversationState, id_: Id) -> RenderableType:
    """Show the state beside the log, and its version."""
    return stack(rows_table(list(state.fields.items()), "field", "value"), dim(f"version {state.version}"))


@operation_command(
    "conversation.patch",
    "patch",
    group=conversations,
    example="sharedmem conversation patch ticket-7 topic=lamp step=2 draft=",
    request=lambda given: {**given, "patch": _read_fields(given["patch"])},
)
def conversation_patch(
    change: ConversationChange,
    id_: Id,
    patch: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", help="NAME= alone removes the field."),
    ],
    if_state: Annotated[int | None, typer.Option(help="Only if the state still has this version.")] = None,
) -> RenderableType:
    """Set and remove fields of the state; exit code 4 on another version."""
    return styled_text((id_, "cyan"), (f" has a state of version {change.state_version}", "dim"))


@operation_command(
    "conversation.expire", "expire", group=conversations, example="sharedmem conversation expire ticket-7 --ttl 3600"
)
def conversation_expire(
    exists: bool,
    id_: Id,
    ttl: Annotated[float | None, typer.Option(help="Seconds, counted from now; without it, it never expires.")] = None,
    renew: Renew = False,
) -> RenderableType:
    """Set when a conversation expires."""
    what = "does not exist" if not exists else "never expires" if ttl is None else f"expires in {format_duration(ttl)}"
    return styled_text((id_, "cyan"), (f" {what}", "dim"))


@operation_command("conversation.stats", "stats", group=conversations, example="sharedmem conversation stats ticket-7")
def conversation_stats(stats: ConversationStats, id_: Id) -> RenderableType:
    """Show how large a conversation is at the server; exit code 3 if it does not exist."""
    return fields_table(
        [
            ("entries", stats.length),
            ("memory", format_size(stats.bytes)),
            ("memory shared with forks", format_size(stats.shared_bytes)),
            ("lists of entries", stats.segments),
        ]
    )


@operation_command("conversation.clear", "clear", group=conversations, example="sharedmem conversation clear ticket-7")
def conversation_clear(change: ConversationChange, id_: Id, if_revision: Revision = None) -> RenderableType:
    """Remove all entries; the state and the tags stay."""
    return _change_picture(id_, change)


@operation_command(
    "conversation.delete", "delete", group=conversations, example="sharedmem conversation delete ticket-7"
)
def conversation_delete(deleted: bool, id_: Id, if_revision: Revision = None) -> RenderableType:
    """Delete a conversation with its state; forks keep what they share with it."""
    return styled_text((id_, "cyan"), (" is deleted" if deleted else " did not exist", "dim"))


@operation_command(
    "conversation.erase", "erase", group=conversations, example="sharedmem conversation erase --user u1 --dry-run"
)
def conversation_erase(
    erased: ConversationErasure,
    user: OfUser = None,
    agent: OfAgent = None,
    app: OfApp = None,
    scope: OfScope = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
) -> RenderableType:
    """Delete all conversations of a user, agent, application or scope, also in the durable tier."""
    what = "conversation" if erased.conversations == 1 else "conversations"
    would = "would be" if dry_run else "are"
    return styled_text(
        (f"{erased.conversations:,} {what}", "cyan"), (f" with {_count(erased.entries)} {would} deleted", "dim")
    )


def _count(entries: int) -> str:
    return f"{entries:,} {'entry' if entries == 1 else 'entries'}"


def _entries_picture(entries: list[ConversationEntry]) -> RenderableType:
    rows = [(one.id, one.actor, format_age(one.at), cell(one.value)) for one in entries]
    return rows_table(rows, "entry", "actor", "appended", "value")


def _change_picture(id_: str, change: ConversationChange) -> Text:
    added = f", {change.added} of them new" if change.added else ""
    told = f" has now {_count(change.length)}{added}, revision {change.revision}"
    return styled_text((id_, "cyan"), (told, "dim"))
