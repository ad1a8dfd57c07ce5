"""Filters as values, independent of any query language, and the encoding of tags, which writers and filters share.

An index on a server drops the blanks around a tag's value, ends it at a NUL and splits it at the separator. Values with
such characters are percent-encoded (`%` and the encoded value), so that each value matches itself alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class Tagged:
    """The tag field contains one of these values, exactly."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The number is in a closed interval; None for an open end."""

    field: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """All conditions match; `Every()` matches every record."""

    conditions: tuple[Condition, ...] = ()

    def also(self, *conditions: Condition) -> Every:
        """Return the filter with further conditions."""
        return Every((*self.conditions, *conditions))

    def of_tags(self) -> Every:
        """Return the conditions on tags alone, which match at least the same records."""
        kept = (one.of_tags() if isinstance(one, Every) else one for one in self.conditions)
        return Every(tuple(one for one in kept if not isinstance(one, Between)))


Condition: TypeAlias = "Tagged | Between | Every"
ALL = Every()


SEPARATOR = "\x1f"
"""Stands between the values of a tag field."""
NO_VALUE = SEPARATOR
"""Stands for a value that no record has."""
_ENCODED_PREFIX = "%"
# Inside a value, blanks and signs mean nothing; at its ends blanks are dropped, and so is a backslash before one.
_PLAIN = re.compile(r"(?![%\s])[^\x00-\x1f\x7f\\]*(?<!\s)")


def encode_tag(value: str) -> str:
    """Encode a value for the hash and for filters."""
    if value and _PLAIN.fullmatch(value):
        return value
    return _ENCODED_PREFIX + quote(value, safe="", errors="surrogatepass")


def join_tags(values: Iterable[str]) -> str:
    """Encode the values of a tag field; write no field when there are none."""
    return SEPARATOR.join(map(encode_tag, values))


def split_tags(field: str) -> list[str]:
    """Decode the values of a tag field."""
    return [_decode_tag(value) for value in field.split(SEPARATOR)] if field else []


def _decode_tag(value: str) -> str:
    if value.startswith(_ENCODED_PREFIX):
        return unquote(value[len(_ENCODED_PREFIX) :], errors="surrogatepass")
    return value
