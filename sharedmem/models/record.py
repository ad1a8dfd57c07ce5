"""The base class of records."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from sharedmem.deferred_builds import DEFER_BUILD


class Record(BaseModel):
    """A frozen record; unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=DEFER_BUILD)


R = TypeVar("R", bound=Record)
# Records are frozen. Their slots are set by descriptors, which takes half the time of `object.__setattr__`.
_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


@cache
def _fields_of(kind: type[Record]) -> set[str]:
    """Return the names of the fields of a class: its records share the set."""
    return set(kind.__pydantic_fields__)


def of_checked(kind: type[R], values: dict[str, Any]) -> R:
    """Return a record of values that are known to be valid, three times faster than `model_construct`.

    Args:
        kind: class of the record.
        values: every field by name, also those with defaults; the record keeps this dict.

    Raises:
        ValueError: a field is missing, or there is another one.
    """
    fields = _fields_of(kind)
    if values.keys() != fields:
        raise ValueError(f"a {kind.__name__} with other fields: {', '.join(sorted(values.keys() ^ fields))}")
    made = kind.__new__(kind)
    _set_values(made, values)
    _set_fields(made, fields)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def all_of_checked(kind: type[R], rows: Iterable[dict[str, Any]]) -> list[R]:
    """As `of_checked`, for many records, whose fields are not compared with those of the class."""
    new, fields, found = kind.__new__, _fields_of(kind), []
    for values in rows:
        made = new(kind)
        _set_values(made, values)
        _set_fields(made, fields)
        _set_extra(made, None)
        _set_private(made, None)
        found.append(made)
    return found
