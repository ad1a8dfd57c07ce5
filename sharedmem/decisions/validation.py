"""Validation: check plans and outcomes of executions, and encode them for the scripts."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import orjson

from sharedmem.coordination.names import check_seconds
from sharedmem.errors import InvalidError

_LENGTH_BYTES = 8


def plan_hash(symbol: str, action: str, reasoning: str) -> str:
    """The name of a plan among people: eight hexadecimal digits.

    One half of all collections of 77,000 plans hold two that share it, and `a|b` + `c` gives what `a` + `b|c`
    gives: it names, and does not decide.
    """
    text = f"{symbol}|{action}|{reasoning}".encode()
    return hashlib.md5(text, usedforsecurity=False).hexdigest()[:8]


def plan_digest(symbol: str, action: str, reasoning: str) -> bytes:
    """What two plans share exactly when symbol, action and reasoning are the same."""
    whole = hashlib.sha256()
    for text in (symbol.encode(), action.encode(), reasoning.encode()):
        # Each length stands before its text, so that no text can pass for the end of another.
        whole.update(len(text).to_bytes(_LENGTH_BYTES, "big"))
        whole.update(text)
    return whole.hexdigest().encode()


DEFAULT_WINDOW_S = 300.0
"""For how long the same plan counts as a duplicate, unless the caller says otherwise."""
LONGEST_WINDOW_S = 2_592_000
"""Thirty days: after them the index of duplicates forgets (spelled by `lua/plan_save.lua` too)."""
LONGEST_REASONING_BYTES = 1_048_576
MOST_LISTED = 1000
_LONGEST_WORD_BYTES = 256
_LONGEST_PLAN_BYTES = 64
_LONGEST_ORDER_ID_BYTES = 512
_LONGEST_ERROR = 4000
_SHORTEST_WINDOW_S = 0.001

_STATES = {
    "success": "succeeded",
    "error": "failed",
    "failed": "failed",
    "unknown": "unknown",
    "timeout": "unknown",
}


class PlanDraft(NamedTuple):
    """A plan that nobody has saved yet."""

    session: str
    symbol: str
    action: str
    confidence: float
    reasoning: str
    method: str
    plan_hash: str
    digest: bytes


class ExecutionOutcome(NamedTuple):
    """How an execution ended, in the executor's words and as a state."""

    state: str
    outcome: bytes
    details: bytes


def prepare_plan(session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str) -> PlanDraft:
    """A plan in full form.

    Raises:
        InvalidError: a field that cannot stand in a plan.
    """
    check_decision(symbol, action, reasoning)
    check_word("method", method, may_be_empty=True)
    short, full = plan_hash(symbol, action, reasoning), plan_digest(symbol, action, reasoning)
    return PlanDraft(session, symbol, action, check_confidence(confidence), reasoning, method, short, full)


def check_decision(symbol: str, action: str, reasoning: str) -> None:
    """Refuse what cannot be decided.

    Raises:
        InvalidError: symbol or action are empty or over 256 bytes, or the reasoning is over 1 MiB.
    """
    check_word("symbol", symbol)
    check_word("action", action)
    if _byte_size("reasoning", reasoning) > LONGEST_REASONING_BYTES:
        advice = "keep it within 1 MiB; write the whole of it to a key, and name that key here"
        raise InvalidError("reasoning", reasoning, advice)


def check_word(field: str, text: str, *, may_be_empty: bool = False, most: int = _LONGEST_WORD_BYTES) -> str:
    """A short text.

    Raises:
        InvalidError: it is none, or empty or blank where it may not be, or too long.
    """
    size = _byte_size(field, text)
    if not may_be_empty and not text.strip():
        raise InvalidError(field, text, "give a text that says something")
    if size > most:
        raise InvalidError(field, text, f"keep it within {most} bytes")
    return text


def check_plan(plan: str) -> str:
    """What callers name a plan by, `plan_hash` or `plan_id`; whether there is such a plan, the server knows.

    Raises:
        InvalidError: no text, or an empty or overlong one.
    """
    return check_word("plan_hash", plan, most=_LONGEST_PLAN_BYTES)


def check_confidence(confidence: float) -> float:
    """How sure a planner is.

    Raises:
        InvalidError: no number from 0 to 1.
    """
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise InvalidError("confidence", confidence, "give a number from 0 to 1")
    return float(confidence)


def check_window_ms(seconds: float) -> int:
    """A time window in seconds as whole milliseconds.

    Raises:
        InvalidError: not above 0, or over 30 days.
    """
    return check_seconds("time_window_sec", seconds, least=_SHORTEST_WINDOW_S, most=LONGEST_WINDOW_S)


def check_limit(limit: int) -> int:
    """How many records to show.

    Raises:
        InvalidError: no whole number from 1 to 1000.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_LISTED:
        raise InvalidError("limit", limit, f"give a whole number from 1 to {MOST_LISTED}")
    return limit


def check_fence(fence: int) -> int:
    """The fence of a claim.

    Raises:
        InvalidError: no whole number above 0.
    """
    if isinstance(fence, bool) or not isinstance(fence, int) or fence < 1:
        raise InvalidError("fence", fence, "give the fence of the claim that begin_execution has answered with")
    return fence


def check_outcome(
    status: str, executed: bool | None, order_id: str, order_size_usdt: float, error: str
) -> ExecutionOutcome:
    """How an execution ended.

    Args:
        status: `success`; `error` or `failed`; `unknown` or `timeout`.
        executed: whether an order was placed; None: if it was a success.
        order_id: up to 512 bytes.
        order_size_usdt: 0 or more.
        error: a text over 4000 characters is cut, so that a long one never stands in the way of a record.

    Raises:
        InvalidError: another status, or what is no such value.
    """
    state = _STATES.get(status) if isinstance(status, str) else None
    if state is None:
        raise InvalidError("status", status, f"say one of {', '.join(_STATES)}")
    if executed is not None and not isinstance(executed, bool):
        raise InvalidError("executed", executed, "say True or False")
    if not isinstance(error, str):
        raise InvalidError("error", error, "give a text")
    check_word("order_id", order_id, may_be_empty=True, most=_LONGEST_ORDER_ID_BYTES)
    details = {
        "executed": state == "succeeded" if executed is None else executed,
        "order_size_usdt": _check_order_size(order_size_usdt),
        "error": error[:_LONGEST_ERROR].encode(errors="replace").decode(),
    }
    return ExecutionOutcome(
        state, encode_json_fields({"status": status, "order_id": order_id}), encode_json_fields(details)
    )


def encode_json_fields(values: dict[str, object]) -> bytes:
    """JSON fields without the braces, which the scripts put around them."""
    return orjson.dumps(values)[1:-1]


def encode_json_text(text: str | None) -> bytes:
    """A text as it stands inside JSON, which is how the scripts name symbols; None is empty."""
    return b"" if text is None else orjson.dumps(text)[1:-1]


def encode_duplicate_entry(confidence: float, method: str) -> bytes:
    """What the index of duplicates remembers of a plan beside its id."""
    return f"{confidence!r} {method}".encode()


def _check_order_size(size: float) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < float("inf"):
        raise InvalidError("order_size_usdt", size, "give a finite number, 0 or more")
    return float(size)


def _byte_size(field: str, text: str) -> int:
    if not isinstance(text, str):
        raise InvalidError(field, text, "give a text")
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidError(field, text, "the text has lone surrogates, which UTF-8 cannot hold") from error
