"""Arguments of `store.conversations`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sharedmem.data.keys import check_integer
from sharedmem.errors import InvalidError
from sharedmem.redis.durability import check_ttl_ms

TAGS = ("user", "agent", "app")
_MOST_TAG_BYTES = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_tags(tags: Mapping[str, str] | None) -> tuple[str, str, str]:
    """Return user, agent and app as the scripts expect them: an absent one is empty.

    Raises:
        InvalidError: a tag is unknown or invalid.
    """
    if tags is None:
        return "", "", ""
    if not isinstance(tags, Mapping) or not tags.keys() <= set(TAGS):
        raise InvalidError("tags", tags, f"give any of {', '.join(TAGS)} by name")
    user, agent, app = (check_tag(name, tags.get(name)) for name in TAGS)
    return user, agent, app


def check_tag(name: str, tag: str | None) -> str:
    """Return a tag; an absent one is empty.

    Raises:
        InvalidError: the tag is empty, over 128 bytes, or has control characters.
    """
    if tag is None:
        return ""
    if not isinstance(tag, str) or not tag or _CONTROL.search(tag) or len(tag.encode()) > _MOST_TAG_BYTES:
        raise InvalidError(name, tag, f"give a text of 1 to {_MOST_TAG_BYTES} bytes without control characters")
    return tag


def checked_ttl_ms(ttl: float | None) -> int | None:
    """Return seconds in milliseconds; None stays None.

    Raises:
        InvalidError: it is not a positive number, or too large.
    """
    return None if ttl is None else check_ttl_ms(ttl)


def check_version(field: str, version: int | None) -> int | None:
    """Return an expected version.

    Raises:
        InvalidError: it is negative or not a whole number.
    """
    if version is not None and check_integer(field, version) < 0:
        raise InvalidError(field, version, "give a version, 0 for none, or leave it out")
    return version


def check_count(field: str, count: int, most: int) -> int:
    """Return a number of entries or conversations.

    Raises:
        InvalidError: it is not a whole number from 1 to `most`.
    """
    if not 1 <= check_integer(field, count) <= most:
        raise InvalidError(field, count, f"give a whole number from 1 to {most:,}")
    return count
