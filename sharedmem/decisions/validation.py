"""Validation: check plans and outcomes of executions, and encode them for the scripts."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Required, TypedDict

import orjson

from sharedmem.coordination.names import check_seconds
from sharedmem.errors import InvalidError

_LENGTH_BYTES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAN_ID = re.compile(r"\d{16}")


def plan_hash(symbol: str, action: str, reasoning: str) -> str:
    """Return the short id of a plan for people: eight hexadecimal digits.

    One half of all collections of 77,000 plans contain two with the same hash, and `a|b` + `c` gives the same as `a` +
    `b|c`: the hash identifies plans for people, but never decides whether two are equal.
    """
    text = f"{symbol}|{action}|{reasoning}".encode()
    return hashlib.md5(text, usedforsecurity=False).hexdigest()[:8]


def plan_digest(symbol: str, action: str, reasoning: str) -> bytes:
    """Return a digest that is equal exactly if symbol, action and reasoning are equal."""
    # Each text has its length before it, so that different splits give different digests.
    texts = (symbol.encode(), action.encode(), reasoning.encode())
    whole = b"".join([part for text in texts for part in (len(text).to_bytes(_LENGTH_BYTES, "big"), text)])
    return hashlib.sha256(whole).hexdigest().encode()


DEFAULT_WINDOW_S = 300.0
"""Default time window in which the same plan counts as a duplicate."""
LONGEST_WINDOW_S = 2_592_000
"""Thirty days: then entries of the duplicate index expire (also defined in `lua/plan_save.lua`)."""
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
    """A plan that is not saved yet."""

    session: str
    symbol: str
    action: str
    confidence: float
    reasoning: str
    method: str
    plan_hash: str
    digest: bytes


class ExecutionOutcome(NamedTuple):
    """The outcome of an execution, in the executor's words and as a state."""

    state: str
    outcome: bytes
    details: bytes


def prepare_plan(session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str) -> PlanDraft:
    """Return a plan with checked fields.

    Raises:
        InvalidError: a field is invalid.
    """
    check_decision(symbol, action, reasoning)
    check_word("method", method, may_be_empty=True)
    short, full = plan_hash(symbol, action, reasoning), plan_digest(symbol, action, reasoning)
    return PlanDraft(session, symbol, action, check_confidence(confidence), reasoning, method, short, full)


def check_decision(symbol: str, action: str, reasoning: str) -> None:
    """Check the texts of a plan.

    Raises:
        InvalidError: symbol or action is empty or over 256 bytes, or the reasoning is over 1 MiB.
    """
    check_word("symbol", symbol)
    check_word("action", action)
    check_reasoning(reasoning)


def check_kind(symbol: str | None, action: str | None) -> None:
    """Check a condition on plans; None is no condition.

    Raises:
        InvalidError: symbol or action is given, and is empty or over 256 bytes.
    """
    for field, word in (("symbol", symbol), ("action", action)):
        if word is not None:
            check_word(field, word)


def check_reasoning(reasoning: str) -> None:
    """Check the reasoning of a plan.

    Raises:
        InvalidError: it is over 1 MiB.
    """
    if _byte_size("reasoning", reasoning) > LONGEST_REASONING_BYTES:
        advice = "keep it within 1 MiB; write the whole text to a key, and name that key here"
        raise InvalidError("reasoning", reasoning, advice)


def check_word(field: str, text: str, *, may_be_empty: bool = False, most: int = _LONGEST_WORD_BYTES) -> str:
    """Return a short text.

    Raises:
        InvalidError: the value is not a text, is empty or blank where that is not allowed, or is too long.
    """
    size = _byte_size(field, text)
    if not may_be_empty and not text.strip():
        raise InvalidError(field, text, "give a text that is not blank")
    if size > most:
        raise InvalidError(field, text, f"keep it within {most} bytes")
    return text


def check_plan(plan: str) -> str:
    """Return a `plan_hash` or `plan_id` from a caller; the server checks whether the plan exists.

    Raises:
        InvalidError: the plan is not a text, or is empty or too long.
    """
    return check_word("plan_hash", plan, most=_LONGEST_PLAN_BYTES)


def check_confidence(confidence: float) -> float:
    """Return a confidence.

    Raises:
        InvalidError: the confidence is not a number from 0 to 1.
    """
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise InvalidError("confidence", confidence, "give a number from 0 to 1")
    return float(confidence)


def check_window_ms(seconds: float, field: str = "time_window_sec") -> int:
    """Return a time window in seconds as whole milliseconds.

    Raises:
        InvalidError: the window is not above 0, or is over 30 days.
    """
    return check_seconds(field, seconds, least=_SHORTEST_WINDOW_S, most=LONGEST_WINDOW_S)


LATEST_US = 2**53


def check_moment_us(field: str, moment: datetime | str | None, default: int) -> int:
    """Return a moment in microseconds since 1970.

    Args:
        field: name of the argument, for the error.
        moment: a time with its zone, or the id of a plan.
        default: the result without a moment.

    Raises:
        InvalidError: it has neither form.
    """
    if moment is None:
        return default
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return (moment - _EPOCH) // timedelta(microseconds=1)
    if isinstance(moment, str) and _PLAN_ID.fullmatch(moment):
        return int(moment)
    raise InvalidError(field, moment, "give a time with its zone, or the id of a plan")


def check_limit(limit: int) -> int:
    """Return the highest number of records to return.

    Raises:
        InvalidError: the limit is not a whole number from 1 to 1000.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_LISTED:
        raise InvalidError("limit", limit, f"give a whole number from 1 to {MOST_LISTED}")
    return limit


def check_fence(fence: int) -> int:
    """Return the fence of a claim.

    Raises:
        InvalidError: the fence is not a whole number above 0.
    """
    if isinstance(fence, bool) or not isinstance(fence, int) or fence < 1:
        raise InvalidError("fence", fence, "give the fence of the claim that begin_execution returned")
    return fence


class OutcomeFields(TypedDict, total=False):
    """How an execution ended, as calls take it; `check_outcome` has the defaults."""

    status: Required[str]
    executed: bool | None
    order_id: str
    order_size_usdt: float
    error: str


def check_outcome(
    *, status: str, executed: bool | None = None, order_id: str = "", order_size_usdt: float = 0.0, error: str = ""
) -> ExecutionOutcome:
    """Return the outcome of an execution.

    Args:
        status: `success`; `error` or `failed`; `unknown` or `timeout`.
        executed: whether an order was placed; None: if it was a success.
        order_id: up to 512 bytes.
        order_size_usdt: 0 or more.
        error: truncated to 4000 characters, so that a long text never prevents a record.

    Raises:
        InvalidError: the status or another argument is invalid.
    """
    state = _STATES.get(status) if isinstance(status, str) else None
    if state is None:
        raise InvalidError("status", status, f"give one of {', '.join(_STATES)}")
    if executed is not None and not isinstance(executed, bool):
        raise InvalidError("executed", executed, "give True or False")
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
    """Return JSON fields without the braces, which the scripts add."""
    return orjson.dumps(values)[1:-1]


def encode_json_text(text: str | None) -> bytes:
    """Return a text as it is inside JSON, which is how the scripts name symbols; empty for None."""
    return b"" if text is None else orjson.dumps(text)[1:-1]


def encode_duplicate_entry(confidence: float, method: str) -> bytes:
    """Return the entry of a plan in the duplicate index, without its id."""
    return f"{confidence!r} {method}".encode()


def _check_order_size(size: float) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < float("inf"):
        raise InvalidError("order_size_usdt", size, "give a finite number, 0 or more")
    return float(size)


def _byte_size(field: str, text: str) -> int:
    if not isinstance(text, str):
        raise InvalidError(field, text, "give a text")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidError(field, text, "the text has lone surrogates, which UTF-8 cannot hold") from error
