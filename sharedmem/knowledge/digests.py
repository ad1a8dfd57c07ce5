"""Which plan is the same plan: the short hash people see, and the full digest that decides."""

from __future__ import annotations

import hashlib

_LENGTH_BYTES = 8


def plan_hash(symbol: str, action: str, reasoning: str) -> str:
    """The name of a plan among people: eight hexadecimal digits.

    One half of all collections of 77,000 plans hold two that share it, and `a|b` + `c` gives what `a` + `b|c`
    gives: it names, and does not decide.
    """
    text = f"{symbol}|{action}|{reasoning}".encode()
    return hashlib.md5(text, usedforsecurity=False).hexdigest()[:8]


def digest(symbol: str, action: str, reasoning: str) -> bytes:
    """What two plans share exactly when symbol, action and reasoning are the same."""
    whole = hashlib.sha256()
    for text in (symbol.encode(), action.encode(), reasoning.encode()):
        # Each length stands before its text, so that no text can pass for the end of another.
        whole.update(len(text).to_bytes(_LENGTH_BYTES, "big"))
        whole.update(text)
    return whole.hexdigest().encode()
