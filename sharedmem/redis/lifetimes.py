"""Lifetimes of keys: ttl arguments and kinds, computed without I/O."""

from __future__ import annotations

from collections.abc import Mapping

from sharedmem.config import Kind
from sharedmem.errors import InvalidError
from sharedmem.redis import durability
from sharedmem.redis.scope import Matcher

NO_EXPIRY = 0
KEEP_EXPIRY = -1
LONGEST_TTL_S = 100 * 365 * 86_400


class Lifetimes:
    """Turns a `ttl`, else a `kind`, else the rule for the key, into milliseconds.

    Args:
        rules: kind of the keys that a pattern matches; the first match decides.
        ephemeral_ttl_s: default lifetime of ephemeral keys.
        session_ttl_s: default lifetime of session keys.
    """

    def __init__(self, rules: Mapping[str, Kind], *, ephemeral_ttl_s: float, session_ttl_s: float) -> None:
        self._rules = [(pattern.partition(":")[0], Matcher(pattern), kind) for pattern, kind in rules.items()]
        # Most namespaces have no rule, and their writes should not pay for the rules of others.
        self._anywhere = any("*" in namespace or "?" in namespace for namespace, _, _ in self._rules)
        self._namespaces = {namespace for namespace, _, _ in self._rules}
        # Knowledge has no expiry; with a durable tier, its copy in Redis gets one after the tier has it.
        self._default_ms = {
            Kind.EPHEMERAL: round(ephemeral_ttl_s * 1000),
            Kind.SESSION: round(session_ttl_s * 1000),
            Kind.KNOWLEDGE: NO_EXPIRY,
        }

    def ttl_ms(self, key: str, ttl: float | None, kind: Kind | str | None = None) -> int:
        """Return the milliseconds to live of an absolute key; 0: for ever.

        Args:
            key: the absolute key.
            ttl: seconds, over 0 and at most 100 years; None: use the kind.
            kind: kind of the key; None: use the rules.

        Raises:
            InvalidError: the ttl or kind is invalid.
        """
        if ttl is not None:
            return check_ttl_ms(ttl)
        if kind is not None:
            return self._default_ms[_parse_kind(kind)]
        rule = self.rule(key)
        return NO_EXPIRY if rule is None else self._default_ms[rule]

    def mode(self, key: str, kind: Kind | str | None = None) -> str:
        """Return the durability mode of an absolute key (see `sharedmem.redis.durability`).

        Raises:
            InvalidError: the kind is invalid.
        """
        rule = self.rule(key)
        if kind is None:
            return durability.UNCHANGED_MODE if rule is None else durability.RULE_MODES.get(rule, durability.DROP_MODE)
        given = _parse_kind(kind)
        if given == Kind.EPHEMERAL:
            return durability.DROP_AGAINST_RULE_MODE if rule in durability.RULE_MODES else durability.DROP_MODE
        return (durability.RULE_MODES if given == rule else durability.ARGUMENT_MODES)[given]

    def rule(self, key: str) -> Kind | None:
        """Return the kind of an absolute key by the rules; None if no rule matches."""
        if not self._anywhere and key.partition(":")[0] not in self._namespaces:
            return None
        return next((kind for _, matches, kind in self._rules if matches(key)), None)


def check_ttl_ms(ttl: float) -> int:
    """Return a time-to-live in seconds as whole milliseconds.

    Raises:
        InvalidError: the ttl is not a number, not positive, under a millisecond, or over 100 years.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise InvalidError("ttl", ttl, "give a number of seconds")
    if not 0.001 <= ttl <= LONGEST_TTL_S:
        raise InvalidError("ttl", ttl, f"give seconds from 0.001 to {LONGEST_TTL_S} (100 years); leave it out for ever")
    return round(ttl * 1000)


def _parse_kind(kind: Kind | str) -> Kind:
    try:
        return Kind(kind)
    except ValueError as error:
        raise InvalidError("kind", kind, f"choose one of {', '.join(Kind)}") from error
