"""Names that are known by their form: order numbers, e-mail addresses, amounts of money."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from sharedmem.errors import InvalidError

LONGEST_PATTERN = 300
_REPEATING = frozenset("*+?")
_COUNT = re.compile(r"\{\d*(?:,\d*)?\}")
_PLACE = re.compile(r"\{(\w+)\}")
_SYMBOLS = {"\u20ac": "EUR", "$": "USD", "\u00a3": "GBP", "\u00a5": "JPY"}
_CODES = "EUR|USD|GBP|JPY|CHF|CAD|AUD|SEK|NOK|DKK|PLN|CZK|INR|CNY"
_NUMBER = r"\d{1,3}(?:[,.' ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d{1,2})?(?!\d)"


@dataclass(frozen=True, slots=True)
class Form:
    """How names of one type look."""

    type: str
    pattern: re.Pattern[str]
    name_of: Callable[[re.Match[str]], str]


def form(type_: str, pattern: str, name: str | None = None) -> Form:
    """A form out of a rules file.

    Args:
        type_: of what has this form.
        pattern: a regular expression; upper and lower case are the same. Its repetitions take all they can.
        name: what the name is, with groups of the pattern in braces; without it what the pattern finds.

    Raises:
        InvalidError: the pattern is none, finds the empty text, or lacks a group of the name.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidError("pattern", pattern, f"keep it within {LONGEST_PATTERN} characters")
    try:
        with warnings.catch_warnings(action="error"):  # what Python may read otherwise one day is no pattern to keep
            compiled = re.compile(possessive(pattern), re.IGNORECASE)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise InvalidError("pattern", pattern, f"it is no regular expression: {error}") from error
    if compiled.search(""):
        raise InvalidError("pattern", pattern, "it finds the empty text; let it ask for a letter or digit")
    for group in _PLACE.findall(name or ""):
        if group not in compiled.groupindex:
            raise InvalidError("name", name, f"its pattern has no group (?P<{group}>...)")
    if name is None:
        return Form(type_, compiled, _as_found)
    return Form(type_, compiled, lambda match: _PLACE.sub(lambda place: match[place[1]] or "", name))


def possessive(pattern: str) -> str:
    """The same regular expression whose repetitions give nothing back, so that no text makes it run for long.

    Raises:
        InvalidError: it has a lazy repetition, or refers back to a group.
    """
    parts = list(_parts(pattern))
    made = []
    for (part, is_repetition), (after, _) in pairwise([*parts, ("", False)]):
        made.append(part)
        if is_repetition and after == "?":
            raise InvalidError(
                "pattern", pattern, "a lazy repetition such as *? is not known here; say what it must not take"
            )
        if is_repetition and after != "+":
            made.append("+")
    return "".join(made)


def _parts(pattern: str) -> list[tuple[str, bool]]:
    """Its characters, classes and escapes; each with whether it is a repetition."""
    parts: list[tuple[str, bool]] = []
    at = 0
    while at < len(pattern):
        end = _end_of_part(pattern, at)
        part = pattern[at:end]
        if part[0] == "\\" and (part[1:].isdigit() and part[1:] != "0"):
            raise InvalidError("pattern", pattern, "it refers back to a group; that is not known here")
        if part.startswith(("(?P=", "(?(")):
            raise InvalidError("pattern", pattern, "it refers back to a group; that is not known here")
        after_repetition = bool(parts) and parts[-1][1]
        repeats = (part in _REPEATING or _COUNT.fullmatch(part) is not None) and not after_repetition
        parts.append((part, repeats))
        at = end
    return parts


def _end_of_part(pattern: str, at: int) -> int:
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return _end_of_class(pattern, at)
    if pattern.startswith("(?", at):
        # `?` belongs to the bracket, and so does what says which kind of group it is.
        return at + (4 if pattern.startswith(("(?P=", "(?<=", "(?<!"), at) else 3)
    counted = _COUNT.match(pattern, at)
    return counted.end() if counted else at + 1


def _end_of_class(pattern: str, at: int) -> int:
    end = at + 1
    if pattern.startswith("^", end):
        end += 1
    if pattern.startswith("]", end):
        end += 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1


def _as_found(match: re.Match[str]) -> str:
    return match[0]


def _amount(match: re.Match[str]) -> str:
    """`49.90 EUR`."""
    said = match["before"] or match["after"]
    return f"{_decimal(match['number'])} {_SYMBOLS.get(said, said.upper())}"


def _decimal(number: str) -> str:
    digits = number.replace("'", "").replace(" ", "")
    separator = max(digits.rfind("."), digits.rfind(","))
    if separator < 0 or len(digits) - separator > 3:
        return digits.replace(",", "").replace(".", "")
    return f"{digits[:separator].replace(',', '').replace('.', '')}.{digits[separator + 1 :]}"


def _shipped(type_: str, pattern: str, name_of: Callable[[re.Match[str]], str] = _as_found) -> Form:
    return Form(type_, re.compile(pattern, re.IGNORECASE), name_of)


def _order(match: re.Match[str]) -> str:
    return f"order {(match['id'] or match['bare']).upper()}"


SHIPPED_FORMS: tuple[Form, ...] = (
    _shipped(
        "email", r"(?<![\w.+-])[\w+-]{1,64}(?:\.[\w+-]{1,64}){0,8}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?![\w-])"
    ),
    _shipped("url", r"\bhttps?://[^\s<>\"')]{1,500}(?<![.,;:!?])"),
    Form(
        "amount",
        re.compile(
            rf"(?<![\w.,])(?:(?P<before>[\u20ac$\u00a3\u00a5]|\b(?:{_CODES}))\s?)?(?P<number>{_NUMBER})"
            rf"(?(before)|\s?(?P<after>[\u20ac$\u00a3\u00a5]|(?:{_CODES})\b))",
            re.IGNORECASE,
        ),
        _amount,
    ),
    _shipped("invoice", r"\bINV(?:OICE)?[-/]?\d{2,12}(?:[-/]\d{1,12}){0,3}(?![\w-])"),
    _shipped(
        "order",
        r"\border(?:s|\s(?:no\.?|number|nr\.?|id))?\s?(?:#\s?(?P<id>[a-z]{0,4}-?\d[\w-]{0,20})|(?P<bare>[a-z]{0,4}-?\d{3,20}))\b"
        r"(?!\s(?:items?|units?|pieces?|eur|usd|more))",
        _order,
    ),
    Form("order", re.compile(r"(?<!\w)#(?P<id>\d{3,20})\b(?P<bare>)"), _order),
    _shipped("ticket", r"\bticket\s?(?:no\.?\s?|number\s)?#?(?P<id>\d{1,12})\b", lambda match: f"ticket {match['id']}"),
    Form("id", re.compile(r"\b[A-Z]{2,10}-\d{1,12}(?:-\d{1,12}){0,3}(?![\w-])"), _as_found),
)
"""What is known without being told, surest first."""
