"""The conditions of a query as plain data, and whether an object meets them: no I/O, and nothing of redis-om."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Literal, TypeAlias, get_args

from sharedmem.errors import InvalidError
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


def is_true(expression: Expression, record: object, moment: Moment) -> bool:
    """Whether an object meets an expression."""
    match expression:
        case Comparison():
            values = [_plain(value, moment) for value in values_at(record, expression.path)]
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
