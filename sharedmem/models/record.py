"""The base class of records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from sharedmem.deferred_builds import DEFER_BUILD


class Record(BaseModel):
    """A frozen record; unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=DEFER_BUILD)


R = TypeVar("R", bound=Record)
_set_slot = object.__setattr__  # records are frozen


def of_checked(kind: type[R], values: dict[str, Any]) -> R:
    """Return a record of values that are known to be valid, three times faster than `model_construct`.

    Args:
        kind: class of the record.
        values: every field by name, also those with defaults; the record keeps this dict.
    """
    made = kind.__new__(kind)
    _set_slot(made, "__dict__", values)
    _set_slot(made, "__pydantic_fields_set__", set(values))
    _set_slot(made, "__pydantic_extra__", None)
    _set_slot(made, "__pydantic_private__", None)
    return made


def all_of_checked(kind: type[R], rows: Iterable[dict[str, Any]]) -> list[R]:
    """As `of_checked`, for many records, which share the set of their fields."""
    new, set_slot, found = kind.__new__, _set_slot, []
    fields: set[str] = set()
    for values in rows:
        fields = fields or set(values)
        made = new(kind)
        set_slot(made, "__dict__", values)
        set_slot(made, "__pydantic_fields_set__", fields)
        set_slot(made, "__pydantic_extra__", None)
        set_slot(made, "__pydantic_private__", None)
        found.append(made)
    return found
