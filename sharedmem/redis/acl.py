"""The rights of an actor as rules of a Redis ACL user, so that the server enforces them too."""

from __future__ import annotations

import re

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.redis.keys import (
    EXPIRING_PARTS,
    FAMILIES,
    GLOBAL_NAMESPACE,
    ITEM_PARTS,
    LASTING_PARTS,
    SHARED_SCOPE,
    KeySpace,
)
from sharedmem.redis.scope import Identity

# Commands on keys, by category: commands of modules are in no category.
_COMMAND_CATEGORIES = "string list hash set sortedset stream bitmap hyperloglog geo transaction"
_GENERIC_KEY_COMMANDS = (
    "del unlink exists type touch ttl pttl expire pexpire expireat pexpireat persist rename renamenx copy"
    " object|encoding memory|usage"
)
# SCAN, KEYS, RANDOMKEY and DBSIZE ignore key rules, PUBSUB ignores channel rules, and CLIENT TRACKING ignores both:
# they would show other tenants, so they are not here. A script can do no more than its user.
_KEYLESS_COMMANDS = (
    "auth hello ping echo quit reset select time client|id client|getname client|setname command asking cluster|slots"
    " evalsha eval script|load script|exists"
)
# The server treats the name of an index as a key, and checks no document that a search finds: a user who may search the
# shared index finds documents of every tenant. A user who may create an index could index another tenant's records, and
# one who may create aliases could give another index a name of its own. So other users create indexes, and this one
# only searches.
_SEARCH_COMMANDS = "ft.search ft.aggregate ft.info"
_DOCUMENT_COMMANDS = "json.get json.set"
_SUBSCRIBE_COMMANDS = "subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe"
_ANY_ITEM = "{*}"
_NOT_IN_RULES = re.compile(r"[\s\"'()]")


def acl_rules(
    identity: Identity, keyspace: KeySpace, *, password: str, searches: bool = False, documents: bool = False
) -> list[str]:
    """Return the arguments of `ACL SETUSER <user>` that give a raw client exactly the rights of an actor.

    Args:
        identity: the actor.
        keyspace: builds the keys.
        password: password of the new user.
        searches: whether the server has a query engine; other servers do not have its commands.
        documents: whether the server has JSON documents; other servers do not have their commands.

    Returns:
        The rules, argument by argument. The user may write the service keys of the namespaces it may write in, since
        its own scripts do. It cannot list keys, so it cannot use `keys`, `usage` and `clear`. Of channel patterns it
        may use the ones that are granted literally. It can search indexes that belong to a single namespace
        (`sharedmem index promote` creates one).

    Raises:
        UnsupportedError: the policy is `open`, which has no limits to express.
        InvalidError: the password is empty, or a name or grant has characters that a rule cannot contain.
    """
    if identity.policy == "open":
        raise UnsupportedError("an ACL for the policy 'open'", "open the hub with access='namespaced'")
    if not password:
        raise InvalidError("password", "", "give the new user a password")
    writable, readable = _writable(identity), _readable(identity)
    for pattern in readable + writable:
        _check_rule_text(pattern)
    common = [f"%R~{keyspace.layout.decode()}", f"%R~{keyspace.tier.decode()}"]
    common += [f"~{keyspace.outboxes.decode()}", f"~{keyspace.spending.decode()}"]
    keys = [*common, *(f"%R~{_physical(keyspace, pattern)}" for pattern in readable)]
    keys += [f"~{_physical(keyspace, pattern)}" for pattern in writable]
    keys += [f"~{name}" for namespace in _namespaces(writable) for name in _service_keys(keyspace, namespace)]
    keys += [f"~{name}" for pattern in writable for name in _part_keys(keyspace, pattern)]
    keys += [
        f"%R~{name}"
        for namespace in _readable_memory_namespaces(identity, readable)
        for name in _record_globs(keyspace, namespace)
    ]
    keys += [
        f"~{name}"
        for namespace in _writable_memory_namespaces(identity, writable)
        for name in _record_keys(keyspace, namespace)
    ]
    channels = [f"&{_physical(keyspace, pattern)}" for pattern in writable]
    channels += [f"&{keyspace.service(namespace, 'wake:*').decode()}" for namespace in _namespaces(writable)]
    selectors = _subscribe_selector(keyspace, readable)
    if searches:
        selectors += _search_selector(keyspace, _readable_memory_namespaces(identity, readable))
    return ["reset", "on", f">{password}", *_commands(documents=documents), *dict.fromkeys(keys), *channels, *selectors]


def _writable(identity: Identity) -> list[str]:
    own = identity.namespace
    scopes = ("*",) if identity.actor is None else _scope_patterns(identity.actor) + _scope_patterns(SHARED_SCOPE)
    granted = [grant.pattern for grant in identity.grants if grant.writes]
    return list(dict.fromkeys([*(f"{own}:{scope}" for scope in scopes), f"{GLOBAL_NAMESPACE}:*", *granted]))


def _readable(identity: Identity) -> list[str]:
    granted = [grant.pattern for grant in identity.grants if not grant.writes]
    return list(dict.fromkeys([*(f"{name}:*" for name in (identity.namespace, *identity.subscribe)), *granted]))


def _scope_patterns(scope: str) -> tuple[str, ...]:
    return scope, f"{scope}:*"


def _check_rule_text(pattern: str) -> None:
    if _NOT_IN_RULES.search(pattern):
        advice = "a Redis ACL rule cannot contain blanks, quotes or parentheses; rename it, or grant more with '*'"
        raise InvalidError("grant", pattern, advice)


def _commands(*, documents: bool) -> list[str]:
    kinds = [f"+@{kind}" for kind in _COMMAND_CATEGORIES.split()]
    # SORT is in several categories, and dangerous: with BY and GET it reads keys that it does not name.
    return [
        "-@all",
        *kinds,
        "-@dangerous",
        *(f"+{name}" for name in f"{_GENERIC_KEY_COMMANDS} {_KEYLESS_COMMANDS}".split()),
        *(f"+{name}" for name in (_DOCUMENT_COMMANDS.split() if documents else ())),
        *_pubsub_commands(),
    ]


def _pubsub_commands() -> list[str]:
    return ["+publish", "+spublish", *(f"+{name}" for name in _SUBSCRIBE_COMMANDS.split())]


def _subscribe_selector(keyspace: KeySpace, readable: list[str]) -> list[str]:
    """Return a separate selector: with read access only, the actor may subscribe but not publish."""
    commands = [f"+{name}" for name in _SUBSCRIBE_COMMANDS.split()]
    channels = [f"&{_physical(keyspace, pattern)}" for pattern in readable]
    return ["(-@all", *commands, *channels[:-1], f"{channels[-1]})"]


def _physical(keyspace: KeySpace, pattern: str) -> str:
    return keyspace.target_glob(pattern).physical.decode()


def _part_keys(keyspace: KeySpace, pattern: str) -> list[str]:
    """Return the keys of locks, queues and the like under the keys of a pattern."""
    target = keyspace.target_glob(pattern)
    head = keyspace.service(target.space.namespace, "").decode()
    rest = target.physical.decode().partition("}:")[2]
    # Parts of records are named by threads and ids, which no key pattern covers.
    parts = [(part, rest) for part in EXPIRING_PARTS + LASTING_PARTS if part.partition(".")[0] not in FAMILIES]
    # The durability state of a session is stored with its plans, that of a conversation with its head.
    parts += [(part, f"${log}:{rest}") for part in ("kept.state", "kept.staged") for log in ("plan", "conversation")]
    return [f"{head}{part}:{beside}{_ANY_ITEM if part in ITEM_PARTS else ''}" for part, beside in parts]


def _writable_memory_namespaces(identity: Identity, writable: list[str]) -> list[str]:
    """Return the namespaces whose memories, and whose semantic cache, the actor may change."""
    return [name for name in _namespaces(writable) if identity.may("write", f"{name}:{SHARED_SCOPE}:{FAMILIES[0]}")]


def _readable_memory_namespaces(identity: Identity, readable: list[str]) -> list[str]:
    """Return the namespaces whose memories and semantic cache the actor may read."""
    return [name for name in _namespaces(readable) if identity.may("read", f"{name}:{SHARED_SCOPE}:{FAMILIES[0]}")]


def _record_keys(keyspace: KeySpace, namespace: str) -> list[str]:
    """Return the keys of searchable records, of their parts, and of their durability state."""
    names = _record_globs(keyspace, namespace)
    for family in FAMILIES:
        states = [f"{part}:${family}:*" for part in ("kept.state", "kept.staged")]
        names += [keyspace.service(namespace, name).decode() for name in (f"{family}.*", *states)]
    return names


def _record_globs(keyspace: KeySpace, namespace: str) -> list[str]:
    return [keyspace.records_glob(family, namespace).decode() for family in FAMILIES]


def _search_selector(keyspace: KeySpace, namespaces: list[str]) -> list[str]:
    """Return a separate selector: the right to search gives no other right on keys named like an index.

    For a search, the server requires the right to read and write the name of the index, as if it were a key.
    """
    commands = [f"+{name}" for name in _SEARCH_COMMANDS.split()]
    indexes = [f"~{keyspace.own_index(family, name)}*" for name in namespaces for family in FAMILIES]
    indexes += [f"~{keyspace.object_index(name)}*" for name in namespaces]
    return [" ".join(["(-@all", *commands, *indexes]) + ")"] if indexes else []


def _namespaces(patterns: list[str]) -> list[str]:
    return list(dict.fromkeys(pattern.partition(":")[0] for pattern in patterns))


def _service_keys(keyspace: KeySpace, namespace: str) -> list[str]:
    space = keyspace.space(namespace)
    ledgers = space.operations.decode().rpartition(":")[0]
    dead_letters = keyspace.service(namespace, "dead:*").decode()
    keeping = (keyspace.outbox(namespace), keyspace.dead_outbox(namespace), keyspace.kept(namespace))
    return [space.clock.decode(), space.changes.decode(), f"{ledgers}:*", dead_letters, *map(bytes.decode, keeping)]
