"""Access rights of an actor: a `Scope` checks them once and is the only way to obtain a key.

`acl_rules` converts them to rules of a Redis ACL user, so that the server enforces them too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sharedmem.errors import AccessDeniedError, Advice, InvalidError, UnsupportedError
from sharedmem.models import Record
from sharedmem.redis.keys import (
    EXPIRING_PARTS,
    FAMILIES,
    GLOBAL_NAMESPACE,
    GROUP_PARTS,
    ITEM_PARTS,
    LASTING_PARTS,
    MAX_NAME_BYTES,
    SHARED_SCOPE,
    KeySpace,
    Target,
    absolute_key,
    check_key,
    check_name,
)

Need = Literal["read", "write"]
PolicyName = Literal["namespaced", "open"]
MemoryRights = Literal["shared", "owner"]
EVERYONE = "*"
"""Used instead of an author: any author."""
_CACHED_KEYS = 4096


class Grant(Record):
    """A further right of an actor.

    `pattern` is an absolute key in which, after the namespace, `*` matches any text and `?` one byte, as at the server.
    `writes`: whether the actor may also write there.
    """

    pattern: str
    writes: bool = True


@dataclass(frozen=True)
class Identity:
    """An actor and all its rights, as plain data."""

    namespace: str
    actor: str | None
    subscribe: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    policy: PolicyName = "namespaced"
    shares: bool = False
    """Whether plain keys are in the scope that all actors share."""
    memory_rights: MemoryRights = "shared"
    """Which actors may change and delete memories, notes and graphs of other actors."""

    @property
    def scope(self) -> str:
        """The scope of plain keys."""
        return SHARED_SCOPE if self.actor is None or self.shares else self.actor

    @property
    def name(self) -> str:
        """The name for access rules and the change feed."""
        return self.actor or SHARED_SCOPE

    def may(self, need: Need, key: str) -> bool:
        """Return whether the policy allows the access to an absolute key or channel; a pure function."""
        namespace, _, rest = key.partition(":")
        if self.policy == "open" or namespace == GLOBAL_NAMESPACE:
            return True
        if namespace == self.namespace and (need == "read" or self._owns(rest.partition(":")[0])):
            return True
        if need == "read" and namespace in self.subscribe:
            return True
        return any(reach(key) for reach in self._granted_patterns[need])

    def may_read_all(self, namespace: str) -> bool:
        """Return whether every key of the namespace may be read."""
        return self.policy == "open" or namespace in (self.namespace, GLOBAL_NAMESPACE, *self.subscribe)

    def may_change(self, author: str, part: str) -> bool:
        """Return whether it may change or delete data of an actor.

        Args:
            author: name of that actor, `shared` for the namespace itself; `EVERYONE` for data of all actors.
            part: `memory`, `notes` or `graph`; a grant for `<namespace>:<author>:<part>` gives the right.
        """
        if self.memory_rights == "shared" or self.policy == "open" or self.actor is None:
            return True
        if author == self.actor and author != SHARED_SCOPE:
            return True
        # Only a pattern for all actors matches a name that is longer than names can be.
        owner = "*" * (MAX_NAME_BYTES + 1) if author == EVERYONE else author
        return any(reach(f"{self.namespace}:{owner}:{part}") for reach in self._granted_patterns["write"])

    def allowed(self, need: Need) -> list[str]:
        """Return the patterns of all keys that it may read, or write, for display."""
        if self.policy == "open":
            return ["every key"]
        whole = need == "read" or self.actor is None
        scopes = ("",) if whole else (f"{self.actor}:", f"{SHARED_SCOPE}:")
        own = [f"{self.namespace}:{scope}*" for scope in dict.fromkeys(scopes)]
        further = [f"{namespace}:*" for namespace in self.subscribe] if need == "read" else []
        granted = [grant.pattern for grant in self.grants if need == "read" or grant.writes]
        return list(dict.fromkeys([*own, f"{GLOBAL_NAMESPACE}:*", *further, *granted]))

    def _owns(self, scope: str) -> bool:
        # A store without an actor has all scopes of its namespace; all actors have the shared scope.
        return self.actor is None or scope in (self.actor, SHARED_SCOPE)

    @cached_property
    def _granted_patterns(self) -> dict[Need, list[GrantPattern]]:
        return {
            "read": [GrantPattern(grant.pattern) for grant in self.grants],
            "write": [GrantPattern(grant.pattern) for grant in self.grants if grant.writes],
        }


class GrantPattern:
    """A grant's pattern; it matches exactly the same bytes as the server's ACL."""

    def __init__(self, pattern: str) -> None:
        body = re.escape(pattern.encode()).replace(rb"\*", b".*").replace(rb"\?", b".")
        self._matches = re.compile(body, re.DOTALL).fullmatch

    def __call__(self, key: str) -> bool:
        """Return whether it matches a key."""
        return self._matches(key.encode()) is not None


def covers(pattern: str, other: str) -> bool:
    """Return whether a pattern of a grant matches every key that another one matches.

    It never returns True wrongly; of patterns such as `a*b*` and `a*b` it may return False where True would do.
    """
    # A wild card of the other pattern is taken as a symbol: only `*` here matches all that `*` there matches.
    body = re.escape(pattern.encode()).replace(rb"\*", b".*").replace(rb"\?", b"[^*]")
    return re.fullmatch(body, other.encode(), re.DOTALL) is not None


class Matcher:
    """Matches absolute keys against a pattern with the wild cards `*` (any text) and `?` (one character)."""

    def __init__(self, pattern: str) -> None:
        body = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        self._matches = re.compile(body, re.DOTALL).fullmatch

    def __call__(self, key: str) -> bool:
        """Return whether the whole key matches."""
        return self._matches(key) is not None


def check_grants(grants: Iterable[str | Grant]) -> tuple[Grant, ...]:
    """Return grants in full form; a text grants reading and writing.

    Raises:
        InvalidError: a pattern has no literal namespace, so it could match another tenant.
    """
    return tuple(_check_grant(grant if isinstance(grant, Grant) else Grant(pattern=grant)) for grant in grants)


def _check_grant(grant: Grant) -> Grant:
    namespace, separator, rest = check_key(grant.pattern).partition(":")
    if not separator or not rest:
        raise InvalidError("grant", grant.pattern, "write it as <namespace>:<scope>:<identifier>, with '*' after ':'")
    check_name("namespace of the grant", namespace)
    if rest.startswith("$"):
        raise InvalidError("grant", grant.pattern, "scopes that begin with '$' are reserved for sharedmem")
    return grant


class Scope:
    """Returns keys for one actor, each checked once against its rights.

    Args:
        keyspace: builds the keys.
        identity: the actor and its rights.
    """

    def __init__(self, keyspace: KeySpace, identity: Identity) -> None:
        self.keyspace = keyspace
        self.identity = identity
        self.home = keyspace.space(identity.namespace)
        # The actor's name, recorded with its writes.
        self.signature = identity.name.encode()
        self._readable: dict[str, Target] = {}
        self._writable: dict[str, Target] = {}

    def acting_as(self, actor: str) -> Scope:
        """Return the scope of an actor of the same namespace, for a task of this actor that another process runs.

        Args:
            actor: name of the requester from the queue; `shared` for the namespace itself. It gets the rights that
                every actor of the namespace has, and none of the rights of the current scope.
        """
        identity = replace(self.identity, actor=actor, subscribe=(), grants=(), shares=False)
        return Scope(self.keyspace, identity)

    def to_read(self, key: str) -> Target:
        """Return the key, for reading.

        Raises:
            AccessDeniedError: the actor may not read it.
            InvalidError: the key is invalid.
        """
        try:
            return self._readable[key]
        except (KeyError, TypeError):
            return self._resolve(key, "read", self._readable)

    def to_write(self, key: str) -> Target:
        """Return the key, for writing.

        Raises:
            AccessDeniedError: the actor may not write it.
            InvalidError: the key is invalid.
        """
        try:
            return self._writable[key]
        except (KeyError, TypeError):
            return self._resolve(key, "write", self._writable)

    def common(self, name: str, need: Need) -> Target:
        """Return the target of a channel, lock or the like; a plain name is `<namespace>:shared:<name>`.

        Raises:
            AccessDeniedError: the actor may not write (`write`) or subscribe (`read`) there.
            InvalidError: the name is invalid.
        """
        return self._permitted(absolute_key(name, self.identity.namespace, SHARED_SCOPE), need)

    def matcher(self, pattern: str) -> tuple[str, Matcher]:
        """Return the namespace of a pattern, and a matcher of absolute keys.

        A pattern with `:` is absolute and begins with a literal namespace. One without is matched against the
        identifier in every scope of the store's namespace (`*`: everything in it).

        Raises:
            AccessDeniedError: the actor may not read that namespace.
            InvalidError: the pattern is invalid.
        """
        check_key(pattern)
        own = self.identity.namespace
        full = pattern if ":" in pattern else f"{own}:*" if pattern == "*" else f"{own}:*:{pattern}"
        namespace = check_name("namespace", full.partition(":")[0])
        if not self.identity.may_read_all(namespace):
            self._permitted(full, "read")
        return namespace, Matcher(full)

    def may_read_all(self, namespace: str) -> bool:
        """Return whether every key of the namespace may be read."""
        return self.identity.may_read_all(namespace)

    def check_writes_all(self) -> None:
        """Raise if the actor may not write every key of its namespace.

        Raises:
            AccessDeniedError: it may write only some of them.
        """
        identity = self.identity
        # Only a pattern for all scopes matches a name that is longer than names can be.
        if not identity.may("write", f"{identity.namespace}:{'*' * (MAX_NAME_BYTES + 1)}:"):
            everything = f"{identity.namespace}:*"
            words = f"--namespace {identity.namespace} --actor {shlex.quote(identity.name)} --grant '{everything}'"
            advice = Advice(
                f"open the store with grants=({everything!r},), or without an actor",
                flags="without --actor (and SHAREDMEM_ACTOR) a command may do everything",
                token=f"use a token with this right: sharedmem token create {words}",
            )
            raise AccessDeniedError(identity.name, everything, "write", advice, allowed=identity.allowed("write"))

    def check_author(self, author: str | None, part: str, name: str) -> None:
        """Raise if another actor owns the data and `memory_rights` is `owner`.

        Authors never change, so the check is valid for any write on the condition that the record is still the one that
        was read.

        Args:
            author: author of the record; None (of an earlier release) counts as the namespace itself.
            part: `memory`, `notes` or `graph`.
            name: name of the record, for the error.

        Raises:
            AccessDeniedError: this actor may not change it.
        """
        owner = author or SHARED_SCOPE
        if not self.identity.may_change(owner, part):
            key = f"{self.identity.namespace}:${part}:{name}"
            raise AccessDeniedError(self.identity.name, key, "write", self._advice_to_change(owner, part))

    def _advice_to_change(self, owner: str, part: str) -> Advice:
        identity = self.identity
        whose = {EVERYONE: "all actors have added to it", SHARED_SCOPE: "the namespace itself has added it"}
        reason = f"{whose.get(owner, f'{owner!r} has added it')}, and memory_rights is 'owner'"
        key = f"{identity.namespace}:{owner}:{part}"
        grant = f"{identity.namespace}:*" if owner == EVERYONE else key
        words = f"--namespace {identity.namespace} --actor {shlex.quote(identity.name)} --grant {shlex.quote(grant)}"
        return Advice(
            f"{reason}: open the store with grants=({grant!r},), or without an actor",
            flags=f"{reason}: without --actor (and SHAREDMEM_ACTOR) a command may do everything",
            token=f"{reason}: use a token with this right: sharedmem token create {words}",
        )

    def _resolve(self, key: str, need: Need, remembered: dict[str, Target]) -> Target:
        target = self._permitted(absolute_key(key, self.identity.namespace, self.identity.scope), need)
        if len(remembered) >= _CACHED_KEYS:
            remembered.clear()
        remembered[key] = target
        return target

    def _permitted(self, key: str, need: Need) -> Target:
        if not self.identity.may(need, key):
            identity = self.identity
            raise AccessDeniedError(identity.name, key, need, self._advice(need, key), allowed=identity.allowed(need))
        return self.keyspace.target(key)

    def _advice(self, need: Need, key: str) -> Advice:
        """Return how to get a right, for callers that open stores, give flags or use a token."""
        identity, namespace = self.identity, key.partition(":")[0]
        words = [f"--namespace {identity.namespace}"]
        words += ["--whole-namespace"] if identity.actor is None else [f"--actor {shlex.quote(identity.actor)}"]
        words += [f"--subscribe {namespace}"] if need == "read" else [f"--grant {shlex.quote(key)}"]
        right = f"subscribe=({namespace!r},)" if need == "read" else f"grants=({key!r},)"
        return Advice(
            f"open the store with {right} to add this",
            flags="without --actor (and SHAREDMEM_ACTOR) a command may do everything",
            token=f"use a token with this right: sharedmem token create {' '.join(words)}",
        )


# -- the same rights as rules of a Redis ACL user ------------------------------------------------


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
    groups = [keyspace.group_part(namespace, part, "*").decode() for part in ("dead", *GROUP_PARTS)]
    keeping = (keyspace.outbox(namespace), keyspace.dead_outbox(namespace), keyspace.kept(namespace))
    always = (space.clock, space.changes, keyspace.names(namespace))
    return [f"{ledgers}:*", *groups, *map(bytes.decode, always + keeping)]
