"""How long things live: time-to-live arguments and memory kinds, decided without I/O."""

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
        ephemeral_ttl_s: default life of ephemeral keys.
        session_ttl_s: default life of session keys.
    """

    def __init__(self, rules: Mapping[str, Kind], *, ephemeral_ttl_s: float, session_ttl_s: float) -> None:
        self._rules = [(pattern.partition(":")[0], Matcher(pattern), kind) for pattern, kind in rules.items()]
        # Most namespaces have no rule, and their writes should not pay for those of others.
        self._anywhere = any("*" in namespace or "?" in namespace for namespace, _, _ in self._rules)
        self._namespaces = {namespace for namespace, _, _ in self._rules}
        # What lasts has no expiry; with a durable tier behind, its copy in Redis gets one once the tier has it.
        self._default_ms = {
            Kind.EPHEMERAL: round(ephemeral_ttl_s * 1000),
            Kind.SESSION: round(session_ttl_s * 1000),
            Kind.KNOWLEDGE: NO_EXPIRY,
        }

    def ttl_ms(self, key: str, ttl: float | None, kind: Kind | str | None = None) -> int:
        """Return milliseconds to live for an absolute key; 0 for ever.

        Args:
            key: the absolute key.
            ttl: seconds, over 0 and at most 100 years; None to go by kind.
            kind: memory kind; None to go by the rules.

        Raises:
            InvalidError: a ttl or kind that is invalid.
        """
        if ttl is not None:
            return check_ttl_ms(ttl)
        if kind is not None:
            return self._default_ms[_parse_kind(kind)]
        rule = self.rule(key)
        return NO_EXPIRY if rule is None else self._default_ms[rule]

    def mode(self, key: str, kind: Kind | str | None = None) -> str:
        """Return the letter that says how an absolute key is kept in the durable tier (see `wire.tier`).

        Raises:
            InvalidError: a kind that is invalid.
        """
        rule = self.rule(key)
        if kind is None:
            return durability.UNCHANGED_MODE if rule is None else durability.RULE_MODES.get(rule, durability.DROP_MODE)
        given = _parse_kind(kind)
        if given == Kind.EPHEMERAL:
            return durability.DROP_AGAINST_RULE_MODE if rule in durability.RULE_MODES else durability.DROP_MODE
        return (durability.RULE_MODES if given == rule else durability.ARGUMENT_MODES)[given]

    def rule(self, key: str) -> Kind | None:
        """Return the kind that the rules give an absolute key, if any does."""
        if not self._anywhere and key.partition(":")[0] not in self._namespaces:
            return None
        return next((kind for _, matches, kind in self._rules if matches(key)), None)


def check_ttl_ms(ttl: float) -> int:
    """Return a time-to-live in seconds as whole milliseconds.

    Raises:
        InvalidError: not a number, zero, negative, under a millisecond, or over 100 years.
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
