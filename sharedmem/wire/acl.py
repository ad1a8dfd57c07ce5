"""The rights of an actor as rules of a Redis ACL user, so that the server itself refuses what the library would."""

from __future__ import annotations

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.wire.access import Identity
from sharedmem.wire.keys import GLOBAL_NAMESPACE, SHARED_SCOPE, KeySpace

# SCAN, KEYS, RANDOMKEY and DBSIZE look past key rules, PUBSUB past channel rules: they would show other tenants.
_COMMANDS = (
    "-@all",
    "+@read",
    "+@write",
    "+@stream",
    "+@transaction",
    "+@connection",
    "+@pubsub",
    "+time",
    "+evalsha",
    "+eval",
    "+script|load",
    "+script|exists",
    "-@dangerous",
    "-@admin",
    "-scan",
    "-randomkey",
    "-dbsize",
    "-pubsub",
)


def acl_rules(identity: Identity, keyspace: KeySpace, *, password: str) -> list[str]:
    """What comes after `ACL SETUSER <user>` to give a raw client the rights of an actor, and no more.

    Args:
        identity: the actor.
        keyspace: how keys are spelled.
        password: of the new user.

    Returns:
        The rules, one a word. The user may write the service keys of the namespaces it may write in, since
        its own scripts do. It cannot list keys, so `keys`, `usage` and `clear` are not for it.

    Raises:
        UnsupportedError: the policy is `open`, which has no limits to express.
        InvalidError: the password is empty.
    """
    if identity.policy == "open":
        raise UnsupportedError("an ACL for the policy 'open'", "open the hub with access='namespaced'")
    if not password:
        raise InvalidError("password", "", "give the new user a password")
    own = identity.namespace
    scopes = ("*",) if identity.actor is None else _own(identity.actor) + _own(SHARED_SCOPE)
    writable = [f"{own}:{scope}" for scope in scopes] + [f"{GLOBAL_NAMESPACE}:*"]
    writable += [grant.pattern for grant in identity.grants if grant.writes]
    readable = [f"{name}:*" for name in (own, *identity.subscribe)]
    readable += [grant.pattern for grant in identity.grants if not grant.writes]
    keys = [f"%R~{_physical(keyspace, pattern)}" for pattern in readable]
    keys += [f"~{_physical(keyspace, pattern)}" for pattern in writable]
    keys += [f"~{name}" for namespace in _namespaces([f"{own}:", *writable]) for name in _service(keyspace, namespace)]
    channels = [f"&{_physical(keyspace, pattern)}" for pattern in readable + writable]
    return ["reset", "on", f">{password}", *_COMMANDS, *dict.fromkeys(keys), *dict.fromkeys(channels)]


def _own(scope: str) -> tuple[str, ...]:
    return scope, f"{scope}:*"


def _physical(keyspace: KeySpace, pattern: str) -> str:
    return keyspace.target(pattern).physical.decode()


def _namespaces(patterns: list[str]) -> list[str]:
    return list(dict.fromkeys(pattern.partition(":")[0] for pattern in patterns))


def _service(keyspace: KeySpace, namespace: str) -> list[str]:
    space = keyspace.space(namespace)
    ledgers = space.operations.decode().rpartition(":")[0]
    dead_letters = keyspace.service(namespace, "dead:*").decode()
    return [space.clock.decode(), space.changes.decode(), f"{ledgers}:*", dead_letters]
