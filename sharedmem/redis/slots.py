"""Cluster slots: the slot of a command, the owner of a slot, redirections. Pure functions, no connection."""

from __future__ import annotations

from collections.abc import Sequence

from redis.crc import key_slot

from sharedmem.redis.pooled import Place
from sharedmem.redis.replies import Command, Reply, ServerError

SLOTS = 16_384
SlotOwners = dict[int, Place]

_KEYLESS = frozenset(
    {
        "ACL",
        "CLIENT",
        "CLUSTER",
        "COMMAND",
        "CONFIG",
        "DBSIZE",
        "ECHO",
        "FLUSHALL",
        "FLUSHDB",
        "HELLO",
        "INFO",
        "KEYS",
        "LATENCY",
        "MODULE",
        "PING",
        "PUBLISH",
        "RANDOMKEY",
        "SCAN",
        "SCRIPT",
        "TIME",
        "WAIT",
    }
)
_COUNTED = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_AFTER_WORD = frozenset({"XREAD", "XREADGROUP"})
_AFTER_SUBCOMMAND = frozenset({"XGROUP", "XINFO", "MEMORY", "OBJECT"})
_ON_EVERY_MASTER = frozenset({("SCRIPT", "LOAD"), ("SCRIPT", "EXISTS"), ("SCRIPT", "FLUSH")})
_ON_EVERY_SERVER = frozenset({("ACL", "SETUSER"), ("ACL", "DELUSER")})


def slot_of(args: Command) -> int | None:
    """The slot of the first key of a command; None when it has no key."""
    key = _first_key(args)
    return None if key is None else key_slot(key)


def is_for_masters(args: Command) -> bool:
    """Whether the command changes something that each master keeps for itself."""
    return _command_and_subcommand(args) in _ON_EVERY_MASTER


def is_for_all(args: Command) -> bool:
    """Whether the command changes something that each server keeps for itself, replicas too."""
    return _command_and_subcommand(args) in _ON_EVERY_SERVER


def merge_replies(replies: Sequence[Reply]) -> Reply:
    """One reply for those of all masters to the same command: a refusal if there is one, and of flags the least."""
    for reply in replies:
        if isinstance(reply, ServerError):
            return reply
    rows = [reply for reply in replies if isinstance(reply, list)]
    if not rows:
        return replies[0]
    return [min(flags) for flags in zip(*rows, strict=True)]


def parse_slots(reply: Reply, asked: Place) -> tuple[SlotOwners, list[Place]]:
    """The masters by slot, and the replicas, that `CLUSTER SLOTS` told.

    Args:
        reply: what came back.
        asked: who was asked: a server that does not know its own name leaves it out.
    """
    owners: SlotOwners = {}
    replicas: list[Place] = []
    for row in reply if isinstance(reply, list) else []:
        if isinstance(row, list) and isinstance(row[0], int) and isinstance(row[1], int):
            master, *others = (_place(server, asked) for server in row[2:])
            owners |= dict.fromkeys(range(row[0], row[1] + 1), master)
            replicas += others
    return owners, replicas


def parse_redirection(error: ServerError, asked: Place) -> tuple[int, Place]:
    """The slot and the server that `MOVED <slot> <host>:<port>` or `ASK ...` names."""
    _, slot, place = error.text.split(" ", 2)
    host, _, port = place.rpartition(":")
    return int(slot), (host or asked[0], int(port))


def _first_key(args: Command) -> bytes | None:
    name = _upper_text(args[0])
    if name in _KEYLESS or len(args) < 2:
        return None
    at = 1
    if name in _COUNTED:
        at = 3 if int(args[2]) else len(args)
    elif name in _AFTER_WORD:
        at = [_upper_text(arg) if isinstance(arg, str) else "" for arg in args].index("STREAMS") + 1
    elif name in _AFTER_SUBCOMMAND:
        at = 2
    return _bytes(args[at]) if at < len(args) else None


def _command_and_subcommand(args: Command) -> tuple[str, str]:
    return _upper_text(args[0]), _upper_text(args[1]) if len(args) > 1 else ""


def _upper_text(argument: bytes | str | int) -> str:
    return _bytes(argument)[:16].decode("latin-1").upper()


def _bytes(argument: bytes | str | int) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def _place(server: Reply, asked: Place) -> Place:
    assert isinstance(server, list)
    host, port = server[:2]
    assert isinstance(port, int)
    named = host.decode() if isinstance(host, bytes) else ""
    return (asked[0] if named in {"", "?"} else named), port
