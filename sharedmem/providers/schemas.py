"""Forms of answers: what a pydantic model asks for, as the strict dialect of JSON schema that services take."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel

_LONGEST_NAME = 64
# Defaults mean nothing where every field must be given; titles only repeat names.
_LEFT_OUT = frozenset({"default", "title"})


def strict_schema(form: type[BaseModel]) -> dict[str, object]:
    """Its JSON schema with every field required and no others allowed, as strict mode demands."""
    return {str(name): value for name, value in _strict_mapping(form.model_json_schema()).items()}


def name_of(form: type[BaseModel]) -> str:
    """Its name, as a service takes one."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", form.__name__)[:_LONGEST_NAME]


def _strict(node: object) -> object:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    return _strict_mapping(node) if isinstance(node, Mapping) else node


def _strict_mapping(node: Mapping[str, object]) -> dict[str, object]:
    strict = {name: _strict(value) for name, value in node.items() if name not in _LEFT_OUT}
    properties = node.get("properties")
    if isinstance(properties, Mapping) and node.get("type") == "object":
        # Here names are those of fields, which may be called `title` too.
        strict["properties"] = {name: _strict(value) for name, value in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict
