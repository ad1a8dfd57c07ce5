"""Access rights of an actor: a `Scope` checks them once and is the only way to obtain a key."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sharedmem.errors import AccessDeniedError, Advice, InvalidError
from sharedmem.models import Record
from sharedmem.redis.keys import (
    GLOBAL_NAMESPACE,
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
