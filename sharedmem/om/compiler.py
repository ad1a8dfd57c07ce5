"""Translate the conditions of a query into those of a search index, as far as the index can test them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, nextafter
from typing import NamedTuple, TypeAlias

from sharedmem.errors import InvalidError
from sharedmem.om.expressions import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Negation,
    Scalar,
    comparisons,
    conjuncts,
)
from sharedmem.search.protocol import Between, Condition, Either, Every, Inverse, Tagged, Worded

_WHOLE = 2**53
"""Up to here every whole number has a float of its own."""
_INTERVALS: Mapping[str, Callable[[str, float], Condition]] = {
    "EQ": lambda field, number: Between(field, number, number),
    "NE": lambda field, number: Inverse(Between(field, number, number)),
    "LT": lambda field, number: Between(field, high=nextafter(number, -inf)),
    "LE": lambda field, number: Between(field, high=number),
    "GT": lambda field, number: Between(field, low=nextafter(number, inf)),
    "GE": lambda field, number: Between(field, low=number),
}


@dataclass(frozen=True, slots=True)
class IndexedTag:
    """A field whose exact values are in the index."""

    field: str
    encode: Callable[[Scalar], tuple[str, ...] | None] = lambda value: (value,) if isinstance(value, str) else None
    """Return the values of the index that represent a value, any of which may match; None if the index has none."""


@dataclass(frozen=True, slots=True)
class IndexedNumber:
    """A field whose numbers, or times, are in the index."""

    field: str


@dataclass(frozen=True, slots=True)
class IndexedWords:
    """A field whose words are in the index."""

    terms: Callable[[str], tuple[str, ...]]
    """Return the words of a query as the index has them."""
    field: str = "terms"
    tag: IndexedTag | None = None
    """Where its exact values are too."""


IndexedField: TypeAlias = IndexedTag | IndexedNumber | IndexedWords
IndexedFields: TypeAlias = Mapping[tuple[str, ...], IndexedField]


class CompiledQuery(NamedTuple):
    """The conditions of a query: what the index tests, and what is tested on each object that it finds."""

    filters: Every
    is_exact: bool
    """Whether the index tests all conditions, so that its counts and pages are right for the query."""
    tested: Conjunction
    """What is tested on each object; conditions on words are left out, which the index alone decides."""


def compile_query(expressions: tuple[Expression, ...], fields: IndexedFields) -> CompiledQuery:
    """Split the conditions of a query.

    Raises:
        InvalidError: a condition on words is combined with one that the index cannot test.
    """
    filters: list[Condition] = []
    tested: list[Expression] = []
    is_exact = True
    for part in conjuncts(Conjunction(expressions)):
        condition = _condition(part, fields)
        if condition is None:
            is_exact = False
        else:
            filters.append(condition)
        if not any(_is_worded(one, fields) for one in comparisons(part)):
            tested.append(part)
        elif condition is None:
            names = ", ".join(dict.fromkeys(one.name for one in comparisons(part)))
            advice = "in `|` and `~`, combine `%` with fields that the index has alone, or join the others by `&`"
            raise InvalidError("condition", names, advice)
    return CompiledQuery(Every(tuple(filters)), is_exact, Conjunction(tuple(tested)))


def _is_worded(comparison: Comparison, fields: IndexedFields) -> bool:
    return comparison.operator == "LIKE" and isinstance(fields.get(comparison.path), IndexedWords)


def _condition(expression: Expression, fields: IndexedFields) -> Condition | None:
    """Return the condition that matches exactly the same objects; None where the index has none."""
    match expression:
        case Negation(part):
            inner = _condition(part, fields)
            return None if inner is None else Inverse(inner)
        case Conjunction(parts):
            return _joined(parts, fields, Every)
        case Disjunction(parts):
            return _joined(parts, fields, Either)
        case Comparison():
            return _compared(expression, fields)


def _joined(parts: tuple[Expression, ...], fields: IndexedFields, kind: type[Every | Either]) -> Condition | None:
    conditions = [_condition(part, fields) for part in parts]
    known = [condition for condition in conditions if condition is not None]
    return kind(tuple(known)) if len(known) == len(conditions) else None


def _compared(comparison: Comparison, fields: IndexedFields) -> Condition | None:
    match fields.get(comparison.path):
        case IndexedTag() as tag:
            return _tagged(comparison, tag)
        case IndexedNumber(field):
            return _between(comparison, field)
        case IndexedWords() as words if comparison.operator == "LIKE" and isinstance(comparison.value, str):
            return Worded(words.terms(comparison.value), words.field)
        case IndexedWords(tag=IndexedTag() as tag):
            return _tagged(comparison, tag)
        case _:
            return None


def _tagged(comparison: Comparison, tag: IndexedTag) -> Condition | None:
    values = comparison.values if comparison.operator in {"IN", "NOT_IN"} else (comparison.value,)
    encoded = [tag.encode(value) for value in values]
    known = tuple(one for some in encoded if some is not None for one in some)
    if None in encoded:
        return None
    match comparison.operator:
        case "EQ" | "IN":
            return Tagged(tag.field, known)
        case "NE" | "NOT_IN":
            return Inverse(Tagged(tag.field, known))
        case _:
            return None


def _between(comparison: Comparison, field: str) -> Condition | None:
    if comparison.operator in {"IN", "NOT_IN"}:
        numbers = [_number(value) for value in comparison.values]
        some = Either(tuple(Between(field, one, one) for one in numbers if one is not None))
        if None in numbers:
            return None
        return some if comparison.operator == "IN" else Inverse(some)
    number = _number(comparison.value)
    if number is None or comparison.operator not in _INTERVALS:
        return None
    return _INTERVALS[comparison.operator](field, number)


def _number(value: Scalar) -> float | None:
    """Return the float that equals a number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _WHOLE:
        return None
    return float(value)
