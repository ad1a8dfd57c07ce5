"""Request units that a call causes, as the durable tier charges them."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Self


class ChargedUnits:
    """Adds up the request units that are charged in its block, and in the tasks that the block starts.

    A task that another caller has started, and whose result several callers share, is charged to that caller.
    """

    def __init__(self) -> None:
        self.units = 0.0
        self._outer: Token[ChargedUnits | None] | None = None

    def __enter__(self) -> Self:
        self._outer = _CHARGED.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._outer is not None
        _CHARGED.reset(self._outer)


_CHARGED: ContextVar[ChargedUnits | None] = ContextVar("request units of the current call", default=None)


def charge(units: float) -> None:
    """Add the units of one request to the call that made it."""
    charged = _CHARGED.get()
    if charged is not None:
        charged.units += units
