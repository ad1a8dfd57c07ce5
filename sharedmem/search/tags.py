"""How the value of a tag lies in a record's hash: as it is, unless an index could take it for another one.

A server's index drops the blanks around a value, ends it at a NUL and parts it at the separator. Values with such
characters are spelled out (`%` and the value with percent signs), so that each value is found by itself alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from sharedmem.search.protocol import SEPARATOR

NO_VALUE = SEPARATOR
"""Stands for a value that no record has."""
_ENCODED_PREFIX = "%"
# Inside a value, blanks and signs mean nothing; at its ends blanks are dropped, and so is a backslash before one.
_PLAIN = re.compile(r"(?![%\s])[^\x00-\x1f\x7f\\]*(?<!\s)")


def encode_tag(value: str) -> str:
    """A value as it lies in the hash, and as a filter looks for it."""
    if value and _PLAIN.fullmatch(value):
        return value
    return _ENCODED_PREFIX + quote(value, safe="", errors="surrogatepass")


def join_tags(values: Iterable[str]) -> str:
    """What a tag field holds for these values; write no field when there are none."""
    return SEPARATOR.join(map(encode_tag, values))


def split_tags(field: str) -> list[str]:
    """The values that a tag field holds."""
    return [_decode_tag(value) for value in field.split(SEPARATOR)] if field else []


def _decode_tag(value: str) -> str:
    if value.startswith(_ENCODED_PREFIX):
        return unquote(value[len(_ENCODED_PREFIX) :], errors="surrogatepass")
    return value
