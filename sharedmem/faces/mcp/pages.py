"""Bounded answers: a page of what was found, no longer than the budget of tokens, with a cursor to the next page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from sharedmem.errors import InvalidError
from sharedmem.faces.bodies import json_bytes
from sharedmem.providers.chunks import count_tokens

_T = TypeVar("_T")
_DIGITS = 9
# What an answer has beside its items: names of fields, the cursor.
_FRAME_TOKENS = 60
_MOST_CHARACTERS_A_TOKEN = 16


class PageCursor(NamedTuple):
    """Where a page begins: so many items after the beginning of a page of the store."""

    skip: int = 0
    page: str = ""
    """The store's own cursor; empty for its first page."""

    @classmethod
    def parse(cls, text: str | None) -> PageCursor:
        """Return a cursor from its text; None is the beginning.

        Raises:
            InvalidError: no answer of this server had it.
        """
        if not text:
            return cls()
        skip, separator, page = text.partition(".")
        if not (separator and skip.isascii() and skip.isdigit() and len(skip) <= _DIGITS):
            raise InvalidError("cursor", text, "give the next_cursor of the answer before, or none for the first page")
        return cls(int(skip), page)

    def __str__(self) -> str:
        return f"{self.skip}.{self.page}"

    @classmethod
    def of_part(cls, text: str | None, version: int) -> PageCursor:
        """Return a cursor within a text that comes in parts: all of one version.

        Raises:
            InvalidError: no answer of this server had it, or the text has another version by now.
        """
        at = cls.parse(text)
        if text and at.page != str(version):
            advice = f"that part was of another version, now it is {version}: read it again from the beginning"
            raise InvalidError("cursor", text, advice)
        return at


def fit(items: Sequence[_T], *, tokens: int) -> int:
    """Return how many items, from the first one on, fit into an answer; at least one if there are any."""
    left = tokens - _FRAME_TOKENS
    for number, item in enumerate(items):
        left -= tokens_of(item)
        if left < 0:
            return max(number, 1)
    return len(items)


def tokens_of(value: object) -> int:
    """Return how many tokens a value takes as JSON."""
    return count_tokens(json_bytes(value).decode())


def cut_text(text: str, *, tokens: int) -> str:
    """Return the beginning of a text that takes no more than so many tokens as JSON; at least one character."""
    # Longer beginnings are not tried: the cost does not depend on the length of the text.
    high = min(len(text), tokens * _MOST_CHARACTERS_A_TOKEN)
    if high == len(text) and tokens_of(text) <= tokens:
        return text
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens_of(text[:middle]) <= tokens else (low, middle - 1)
    return text[: max(low, 1)]


def paged(
    found: Sequence[_T], at: PageCursor, *, limit: int, tokens: int, next_page: str | None
) -> tuple[int, str | None]:
    """Return how many of the items of a page of the store are shown, and the cursor behind them.

    Args:
        found: items of the page, from `at.skip` on.
        at: where they begin.
        limit: most items of an answer.
        tokens: most tokens of an answer.
        next_page: the store's cursor behind the page; None if it is the last one.
    """
    count = min(fit(found, tokens=tokens), limit)
    if count < len(found):
        return count, str(PageCursor(at.skip + count, at.page))
    return count, None if next_page is None else str(PageCursor(0, next_page))
