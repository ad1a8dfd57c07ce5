"""Conditions of LangGraph on values and on namespaces."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from sharedmem.errors import InvalidError

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_MATCHES = frozenset({"prefix", "suffix"})


def check_filter(conditions: Mapping[str, Any] | None) -> None:
    """Check the conditions of a search.

    Raises:
        InvalidError: there is no such operator.
    """
    for name, condition in (conditions or {}).items():
        if isinstance(condition, dict):
            for each in condition:
                if each.startswith("$") and each not in {"$eq", "$ne", *_ORDERS}:
                    raise InvalidError("filter", {name: condition}, f"choose $eq, $ne, {', '.join(_ORDERS)}")
            check_filter(condition if not any(each.startswith("$") for each in condition) else None)


def fits(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    """Return whether a value meets all conditions: by field a value, a nested condition, or operators."""
    return all(_meets(value.get(name), condition) for name, condition in (conditions or {}).items())


def _meets(value: Any, condition: Any) -> bool:
    if isinstance(condition, dict):
        if any(name.startswith("$") for name in condition):
            return all(_compares(value, name, bound) for name, bound in condition.items())
        return isinstance(value, dict) and fits(value, condition)
    if isinstance(condition, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(condition)
        return alike and all(map(_meets, value, condition))
    return bool(value == condition)


def _compares(value: Any, name: str, bound: Any) -> bool:
    if name == "$eq":
        return bool(value == bound)
    if name == "$ne":
        return bool(value != bound)
    try:
        return _ORDERS[name](float(value), float(bound))
    except (TypeError, ValueError):
        # Texts are in order, too; what cannot be compared does not fit.
        return isinstance(value, str) and isinstance(bound, str) and _ORDERS[name](value, bound)


def check_matches(conditions: Iterable[MatchCondition]) -> None:
    """Check the conditions of a listing.

    Raises:
        InvalidError: there is no such kind of match.
    """
    for condition in conditions:
        if condition.match_type not in _MATCHES:
            raise InvalidError("match_type", condition.match_type, "choose prefix or suffix")


def matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return whether a namespace begins or ends with a path, in which `*` is any part."""
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    parts = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", part) for part, wanted in zip(parts, path, strict=True))
