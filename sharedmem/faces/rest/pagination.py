"""Pagination: lists in pages, with an opaque cursor to the next page."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from typing import Any, NamedTuple
from urllib.parse import urlencode

from sharedmem.api.operation import HttpRoute
from sharedmem.faces.rest.problems import FieldsError
from sharedmem.models import Record

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


class PageBody(NamedTuple):
    """One page as the service returns it."""

    body: dict[str, Any]
    next_cursor: str | None


class Pagination(NamedTuple):
    """How one operation's list comes in pages."""

    field: str
    """Which of its fields is the cursor; empty where the list is cut here."""
    is_sorted: bool = True

    @classmethod
    def of(cls, route: HttpRoute) -> Pagination | None:
        """That of a route; None when it has no pages."""
        if not route.paging:
            return None
        is_cut_here = route.paging in {"names", "recent"}
        return cls("" if is_cut_here else route.paging, route.paging != "recent")

    def taken(self, query: dict[str, Any]) -> dict[str, Any]:
        """The query with the cursor as the operation takes it.

        Raises:
            FieldsError: it is no cursor of ours.
        """
        if not self.field:
            return {name: value for name, value in query.items() if name not in {"cursor", "limit"}}
        others = {name: value for name, value in query.items() if name not in {"cursor", self.field}}
        return others | ({self.field: decode_cursor(query["cursor"])} if "cursor" in query else {})

    def shown(self, found: Any, query: dict[str, str]) -> PageBody:
        """The page of an answer.

        Args:
            found: result of the operation: names in order, or a page of its own.
            query: what was asked for.
        """
        if not self.field:
            return self._of_names(found, query)
        assert isinstance(found, Record)
        told = dict(found)
        cursor = told.pop("cursor")
        following = encode_cursor(cursor) if cursor else None
        return PageBody(told | {"next_cursor": following}, following)

    def _of_names(self, names: list[str], query: dict[str, str]) -> PageBody:
        limit = _limit(query.get("limit"))
        start = self._after(names, decode_cursor(query["cursor"])) if "cursor" in query else 0
        items = names[start : start + limit]
        following = encode_cursor(items[-1]) if start + limit < len(names) else None
        return PageBody({"items": items, "next_cursor": following}, following)

    def _after(self, names: list[str], last: str) -> int:
        # By name and not by number, so that names that come and go move no others into the next page.
        if self.is_sorted:
            return bisect_right(names, last)
        if last not in names:
            raise FieldsError([("cursor", "its position is gone; begin again without a cursor")])
        return names.index(last) + 1


def next_link(path: str, query: list[tuple[str, str]], cursor: str) -> str:
    """The `Link` header that leads to the next page."""
    kept = [(name, value) for name, value in query if name != "cursor"]
    return f'<{path}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'


def encode_cursor(place: str) -> str:
    """A cursor for the outside: nothing to be read or made up."""
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """The place that a cursor means.

    Raises:
        FieldsError: it is not a cursor of this service.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise FieldsError([("cursor", "it is invalid; give the next_cursor of a page as it is")]) from None


def _limit(said: str | None) -> int:
    if said is None:
        return DEFAULT_LIMIT
    if not (said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= MAX_LIMIT):
        raise FieldsError([("limit", f"give a whole number from 1 to {MAX_LIMIT}")])
    return int(said)
