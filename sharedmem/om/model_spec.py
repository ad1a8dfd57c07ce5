"""What a read model consists of: its fields, what the index has of them, and the calls that change its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from pydantic.fields import FieldInfo

from sharedmem.errors import UnsupportedError
from sharedmem.models.record import Record
from sharedmem.om import library
from sharedmem.om.compiler import IndexedFields
from sharedmem.om.expressions import Moment, milliseconds
from sharedmem.om.library import ModelField

EMBEDDING = "embedding"
DISTANCE = "distance"


def _nothing_indexed(_namespace: str) -> IndexedFields:
    return {}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One read model."""

    name: str
    doc: str
    fields: Mapping[str, ModelField]
    instead: Mapping[str, str]
    """By call of redis-om (`save`, `update`, `delete`), the call of the store to use."""
    indexed: Callable[[str], IndexedFields] = _nothing_indexed
    """Return what the index has, in a namespace."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """By field, the number of the index by which it can sort."""
    moment: Moment = milliseconds
    """The number as which the index has a time."""

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object, all where none is named: as a dictionary, or as an object of these."""
        values = {name: getattr(found, name) for name in names or self.fields}
        return values if as_dict else library.partial(type(found), values)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change records."""
        known = self.instead.get(call, self.instead["update"])
        return UnsupportedError(f"{call}() of the read model {self.name}", f"use {known}")


def record_fields(record: type[Record], *, key: str = "id", has_vector: bool = False) -> dict[str, ModelField]:
    """Return the fields of a model for a record, all of them optional but the key.

    Args:
        record: its class.
        key: the field that names the record.
        has_vector: whether a query may ask for the nearest; the model then has `embedding` and `distance`.
    """
    found = {name: _optional(one) for name, one in record.model_fields.items()}
    found[key] = ModelField(str, ..., True)
    if has_vector:
        found[EMBEDDING] = ModelField(tuple[float, ...] | None, None)
        found[DISTANCE] = ModelField(float | None, None)
    return found


def _optional(one: FieldInfo) -> ModelField:
    """Return a field that may be missing in an object of which only some fields were asked for."""
    if one.is_required():
        return ModelField(Optional[one.annotation], None)  # noqa: UP045  # the annotation is a value here
    return ModelField(one.annotation, one.get_default(call_default_factory=True, validated_data={}))
