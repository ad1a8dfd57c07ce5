"""The rights of an actor as rules of a Redis ACL user, so that the server itself refuses what the library would."""

from __future__ import annotations

import re

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.wire.access import Identity
from sharedmem.wire.keys import (
    EXPIRING_PARTS,
    FAMILIES,
    GLOBAL_NAMESPACE,
    ITEM_PARTS,
    LASTING_PARTS,
    SHARED_SCOPE,
    KeySpace,
)

# What works on keys, by kinds: commands of modules belong to none of these.
_KINDS = "string list hash set sortedset stream bitmap hyperloglog geo transaction"
_ON_ANY_KEY = (
    "del unlink exists type touch ttl pttl expire pexpire expireat pexpireat persist rename renamenx copy"
    " object|encoding memory|usage"
)
# SCAN, KEYS, RANDOMKEY and DBSIZE look past key rules, PUBSUB past channel rules, CLIENT TRACKING past both: they
# would show other tenants, so they are not here. A script can do no more than its user.
_WITHOUT_KEYS = (
    "auth hello ping echo quit reset select time client|id client|getname client|setname command asking cluster|slots"
    " evalsha eval script|load script|exists"
)
# The server takes the name of an index for a key, and looks at no document that is found: who may search the index
# that namespaces share finds those of every tenant. Who may make an index may make one of another's records, and who
# may name one anew can give it a name of its own. So the indexes are made by somebody else, and only searched here.
_SEARCHING = "ft.search ft.aggregate ft.info"
_HEARING = "subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe"
_ANY_ITEM = "{*}"
_UNSPEAKABLE = re.compile(r"[\s\"'()]")


def acl_rules(identity: Identity, keyspace: KeySpace, *, password: str, searches: bool = False) -> list[str]:
    """What comes after `ACL SETUSER <user>` to give a raw client the rights of an actor, and no more.

    Args:
        identity: the actor.
        keyspace: how keys are spelled.
        password: of the new user.
        searches: whether the server has a query engine; to others its commands mean nothing.

    Returns:
        The rules, word by word. The user may write the service keys of the
        namespaces it may write in, since its own scripts do. It cannot list keys, so `keys`, `usage` and
        `clear` are not for it, and of channel patterns it may use those that are granted as they stand. Of search
        indexes it reaches those that are a namespace's own (`sharedmem index promote` gives it one).

    Raises:
        UnsupportedError: the policy is `open`, which has no limits to express.
        InvalidError: the password is empty, or a name or grant holds what a rule cannot.
    """
    if identity.policy == "open":
        raise UnsupportedError("an ACL for the policy 'open'", "open the hub with access='namespaced'")
    if not password:
        raise InvalidError("password", "", "give the new user a password")
    writable, readable = _writable(identity), _readable(identity)
    for pattern in readable + writable:
        _check_speakable(pattern)
    common = [f"%R~{keyspace.layout.decode()}", f"%R~{keyspace.tier.decode()}", f"~{keyspace.outboxes.decode()}"]
    keys = [*common, *(f"%R~{_physical(keyspace, pattern)}" for pattern in readable)]
    keys += [f"~{_physical(keyspace, pattern)}" for pattern in writable]
    keys += [f"~{name}" for namespace in _namespaces(writable) for name in _service(keyspace, namespace)]
    keys += [f"~{name}" for pattern in writable for name in _parts(keyspace, pattern)]
    keys += [f"%R~{name}" for namespace in _recalling(identity, readable) for name in _recorded(keyspace, namespace)]
    keys += [f"~{name}" for namespace in _remembering(identity, writable) for name in _records(keyspace, namespace)]
    channels = [f"&{_physical(keyspace, pattern)}" for pattern in writable]
    channels += [f"&{keyspace.service(namespace, 'wake:*').decode()}" for namespace in _namespaces(writable)]
    selectors = _hearing(keyspace, readable)
    if searches:
        selectors += _looking(keyspace, _recalling(identity, readable))
    return ["reset", "on", f">{password}", *_commands(), *dict.fromkeys(keys), *channels, *selectors]


def _writable(identity: Identity) -> list[str]:
    own = identity.namespace
    scopes = ("*",) if identity.actor is None else _own(identity.actor) + _own(SHARED_SCOPE)
    granted = [grant.pattern for grant in identity.grants if grant.writes]
    return list(dict.fromkeys([*(f"{own}:{scope}" for scope in scopes), f"{GLOBAL_NAMESPACE}:*", *granted]))


def _readable(identity: Identity) -> list[str]:
    granted = [grant.pattern for grant in identity.grants if not grant.writes]
    return list(dict.fromkeys([*(f"{name}:*" for name in (identity.namespace, *identity.subscribe)), *granted]))


def _own(scope: str) -> tuple[str, ...]:
    return scope, f"{scope}:*"


def _check_speakable(pattern: str) -> None:
    if _UNSPEAKABLE.search(pattern):
        advice = "a Redis ACL rule cannot hold blanks, quotes or parentheses; rename it, or grant more with '*'"
        raise InvalidError("grant", pattern, advice)


def _commands() -> list[str]:
    kinds = [f"+@{kind}" for kind in _KINDS.split()]
    # SORT is a kind of all, and dangerous: with BY and GET it reads keys that it does not name.
    return [
        "-@all",
        *kinds,
        "-@dangerous",
        *(f"+{name}" for name in f"{_ON_ANY_KEY} {_WITHOUT_KEYS}".split()),
        *_said(),
    ]


def _said() -> list[str]:
    return ["+publish", "+spublish", *(f"+{name}" for name in _HEARING.split())]


def _hearing(keyspace: KeySpace, readable: list[str]) -> list[str]:
    """A selector of its own: where the actor may only read, it may subscribe and not publish."""
    commands = [f"+{name}" for name in _HEARING.split()]
    channels = [f"&{_physical(keyspace, pattern)}" for pattern in readable]
    return ["(-@all", *commands, *channels[:-1], f"{channels[-1]})"]


def _physical(keyspace: KeySpace, pattern: str) -> str:
    return keyspace.target_glob(pattern).physical.decode()


def _parts(keyspace: KeySpace, pattern: str) -> list[str]:
    """What agents agree by under the keys of a pattern."""
    target = keyspace.target_glob(pattern)
    head = keyspace.service(target.space.namespace, "").decode()
    rest = target.physical.decode().partition("}:")[2]
    # What lies beside records is named by threads and ids, which no key pattern speaks of.
    parts = [(part, rest) for part in EXPIRING_PARTS + LASTING_PARTS if part.partition(".")[0] not in FAMILIES]
    # How a session stands between Redis and the durable tier is said beside its plans.
    parts += [(part, f"$plan:{rest}") for part in ("kept.state", "kept.staged")]
    return [f"{head}{part}:{beside}{_ANY_ITEM if part in ITEM_PARTS else ''}" for part, beside in parts]


def _remembering(identity: Identity, writable: list[str]) -> list[str]:
    """The namespaces whose memories, and whose semantic cache, the actor may change."""
    return [name for name in _namespaces(writable) if identity.may("write", f"{name}:{SHARED_SCOPE}:{FAMILIES[0]}")]


def _recalling(identity: Identity, readable: list[str]) -> list[str]:
    """Those whose it may read."""
    return [name for name in _namespaces(readable) if identity.may("read", f"{name}:{SHARED_SCOPE}:{FAMILIES[0]}")]


def _records(keyspace: KeySpace, namespace: str) -> list[str]:
    """Records that are searched for, what lies beside them, and how they stand with the durable tier."""
    names = _recorded(keyspace, namespace)
    for family in FAMILIES:
        states = [f"{part}:${family}:*" for part in ("kept.state", "kept.staged")]
        names += [keyspace.service(namespace, name).decode() for name in (f"{family}.*", *states)]
    return names


def _recorded(keyspace: KeySpace, namespace: str) -> list[str]:
    return [keyspace.records_glob(family, namespace).decode() for family in FAMILIES]


def _looking(keyspace: KeySpace, namespaces: list[str]) -> list[str]:
    """A selector of its own: who may search may not do anything else with what is named like an index.

    To search, the server asks for the right to read and write the name of the index, as if it were a key.
    """
    commands = [f"+{name}" for name in _SEARCHING.split()]
    indexes = [f"~{keyspace.own_index(family, name)}*" for name in namespaces for family in FAMILIES]
    return [" ".join(["(-@all", *commands, *indexes]) + ")"] if indexes else []


def _namespaces(patterns: list[str]) -> list[str]:
    return list(dict.fromkeys(pattern.partition(":")[0] for pattern in patterns))


def _service(keyspace: KeySpace, namespace: str) -> list[str]:
    space = keyspace.space(namespace)
    ledgers = space.operations.decode().rpartition(":")[0]
    dead_letters = keyspace.service(namespace, "dead:*").decode()
    keeping = (keyspace.outbox(namespace), keyspace.dead_outbox(namespace), keyspace.kept(namespace))
    return [space.clock.decode(), space.changes.decode(), f"{ledgers}:*", dead_letters, *map(bytes.decode, keeping)]
