"""The conditions of a query as plain data, whether an object meets them, and what of them a search index can test.

No I/O, and nothing of redis-om.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from math import inf, isfinite, nextafter
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from sharedmem.errors import InvalidError
from sharedmem.search.protocol import Between, Condition, Either, Every, Inverse, Tagged, Worded
from sharedmem.text.analysis import document_terms

Operator = Literal["EQ", "NE", "LT", "LE", "GT", "GE", "IN", "NOT_IN", "LIKE", "STARTSWITH", "ENDSWITH", "CONTAINS"]
OPERATORS: tuple[str, ...] = get_args(Operator)
Scalar: TypeAlias = "bool | int | float | str | None"
"""What values are compared as: times are numbers, see `Moment`."""
Moment: TypeAlias = Callable[[datetime], float]
"""The number as which a time is compared."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field compared with a value."""

    path: tuple[str, ...]
    """Names of the fields that lead to it, from the object on."""
    operator: Operator
    value: Scalar
    values: tuple[Scalar, ...] = ()
    """Of `IN` and `NOT_IN`."""

    @property
    def name(self) -> str:
        """The field as errors name it."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All parts are true; `Conjunction()` is true of every object."""

    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Disjunction:
    """At least one part is true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The part is not true."""

    part: Expression


Expression: TypeAlias = "Comparison | Conjunction | Disjunction | Negation"


def conjuncts(expression: Expression) -> Iterable[Expression]:
    """Yield the expressions that must all be true."""
    if isinstance(expression, Conjunction):
        for part in expression.parts:
            yield from conjuncts(part)
    else:
        yield expression


def comparisons(expression: Expression) -> Iterable[Comparison]:
    """Yield every comparison of an expression."""
    match expression:
        case Comparison():
            yield expression
        case Negation(part):
            yield from comparisons(part)
        case Conjunction(parts) | Disjunction(parts):
            for part in parts:
                yield from comparisons(part)


# -- values -----------------------------------------------------------------------------------------


def milliseconds(at: datetime) -> float:
    """The number of a time where the index has milliseconds since 1970."""
    return float(round(at.timestamp() * 1000))


def seconds(at: datetime) -> float:
    """The number of a time as redis-om stores it: seconds since 1970."""
    return at.timestamp()


def scalar(name: str, value: object, moment: Moment) -> Scalar:
    """Return a value of a condition as it is compared.

    Args:
        name: the field that it is compared with.
        value: of the caller.
        moment: makes a number of a time.

    Raises:
        InvalidError: it is not a text, number, time, truth value or None, or not one that Redis can store.
    """
    found = _plain(value, moment)
    if isinstance(found, float) and not isfinite(found):
        raise InvalidError(f"the value for {name}", value, "give a finite number")
    if isinstance(found, str):
        try:
            found.encode()
        except UnicodeEncodeError:
            raise InvalidError(f"the value for {name}", "...", "give properly decoded text") from None
    if found is None or isinstance(found, bool | int | float | str):
        return found
    raise InvalidError(f"the value for {name}", type(value).__name__, "give a text, number, time, truth value or None")


def _plain(value: object, moment: Moment) -> object:
    if isinstance(value, Enum):
        return _plain(value.value, moment)
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, date):
        return moment(datetime.combine(value, time.min, tzinfo=UTC))
    return float(value) if isinstance(value, Decimal) else value


# -- evaluation -------------------------------------------------------------------------------------

_COMPARED = frozenset({str, int, float, bool})
"""Types of values that are compared as they are."""


def is_true(expression: Expression, record: object, moment: Moment) -> bool:
    """Whether an object meets an expression."""
    match expression:
        case Comparison():
            held = values_at(record, expression.path)
            values = [value if type(value) in _COMPARED else _plain(value, moment) for value in held]
            return _compares(expression, [value for value in values if value is not None])
        case Negation(part):
            return not is_true(part, record, moment)
        case Conjunction(parts):
            return all(is_true(part, record, moment) for part in parts)
        case Disjunction(parts):
            return any(is_true(part, record, moment) for part in parts)


def values_at(record: object, path: Sequence[str]) -> list[Any]:
    """Return the values of a field; those of each member where a list is on the way."""
    found: list[Any] = [record]
    for name in path:
        members = [item.get(name) if isinstance(item, dict) else getattr(item, name, None) for item in found]
        found = []
        for member in members:
            if isinstance(member, list | tuple | set | frozenset):
                found += member
            else:
                found.append(member)
    return found


def _compares(comparison: Comparison, held: list[object]) -> bool:
    value = comparison.value
    match comparison.operator:
        case "EQ":
            return not held if value is None else any(_equal(one, value) for one in held)
        case "NE":
            return bool(held) if value is None else not any(_equal(one, value) for one in held)
        case "IN":
            return _is_among(comparison.values, held)
        case "NOT_IN":
            return not _is_among(comparison.values, held)
        case "LIKE":
            wanted = set(document_terms(str(value)))
            return bool(wanted) and wanted <= {term for one in held for term in document_terms(str(one))}
        case "STARTSWITH":
            return any(isinstance(one, str) and one.startswith(str(value)) for one in held)
        case "ENDSWITH":
            return any(isinstance(one, str) and one.endswith(str(value)) for one in held)
        case "CONTAINS":
            return any(isinstance(one, str) and str(value) in one for one in held)
        case _:
            return any(_is_ordered(comparison.operator, one, value) for one in held)


def _is_among(values: tuple[Scalar, ...], held: list[object]) -> bool:
    return any(not held if value is None else any(_equal(one, value) for one in held) for value in values)


def _equal(one: object, value: Scalar) -> bool:
    # In Python True equals 1, which is another value to a caller.
    return isinstance(one, bool) == isinstance(value, bool) and one == value


def _is_ordered(operator: Operator, one: Any, value: Any) -> bool:
    if isinstance(one, str) != isinstance(value, str):
        return False
    match operator:
        case "LT":
            return bool(one < value)
        case "LE":
            return bool(one <= value)
        case "GT":
            return bool(one > value)
        case _:
            return bool(one >= value)


def sort_key(record: object, name: str, moment: Moment) -> tuple[int, Any]:
    """Return what an object is sorted by; one without a value comes after all others.

    Raises:
        InvalidError: the field holds what has no order.
    """
    values = [_plain(value, moment) for value in values_at(record, (name,)) if value is not None]
    if not values:
        return 2, 0
    first = values[0]
    if isinstance(first, str):
        return 1, first
    if isinstance(first, int | float):
        return 0, first
    raise InvalidError("sort_by", name, "its values have no order; sort by a text, number or time")


# -- what an index can test -----------------------------------------------------------------------


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
