"""The only module that knows redis-om: its models are made here, and its expressions become ours.

redis-om has weak types, so that every `Any` of this package is here. Nothing of what it would send to a server is used:
it spells some values into the text of a query as they stand (`IN`, `%`), and splits tags at their separator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import new_class
from typing import Any, NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.om.expressions import (
    OPERATORS,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Moment,
    Negation,
    Scalar,
    scalar,
)
from sharedmem.om.query import NearestQuery

_ADVICE = "compare fields of the model, such as `Model.name == 'ada'`, and join conditions by `&`, `|` and `~`"


class ModelField(NamedTuple):
    """One field of a model to be made."""

    annotation: Any
    default: Any
    is_key: bool = False


def make_model(name: str, doc: str, fields: Mapping[str, ModelField], mixin: type) -> type[Any]:
    """Return a new model of redis-om.

    Args:
        name: of the class.
        doc: its docstring.
        fields: by name; one of them is the key.
        mixin: the first base, whose methods take the place of those of redis-om.
    """
    from aredis_om import Field, RedisModel  # noqa: PLC0415  # optional, and half a second to load
    from aredis_om.model.model import model_registry  # noqa: PLC0415  # likewise

    def body(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = mixin.__module__
        namespace["__doc__"] = doc
        namespace["__annotations__"] = {one: field.annotation for one, field in fields.items()}
        for one, field in fields.items():
            namespace[one] = Field(default=field.default, index=True, primary_key=field.is_key)

    made: type[Any] = new_class(name, (mixin, RedisModel), {"index": True}, body)
    # The registry is for models whose index redis-om makes; what is in it is never let go.
    model_registry.pop(f"{made.__module__}.{made.__qualname__}", None)
    return made


def construct(model: type[Any], values: Mapping[str, Any]) -> Any:
    """Return an object of a model, without a look at its values."""
    return model.model_construct(**values)


def partial(model: type[Any], values: Mapping[str, Any]) -> Any:
    """Return an object of which only some fields are known; others raise AttributeError when they are read."""
    from aredis_om.model.model import PartialModel  # noqa: PLC0415  # see `make_model`

    return PartialModel(model_class=model, data=dict(values), loaded_fields=set(values))


# -- expressions ------------------------------------------------------------------------------------


def read_expressions(given: Iterable[Any], fields: Iterable[str], moment: Moment) -> tuple[Expression, ...]:
    """Return expressions of redis-om as ours; nothing of them is kept but names, operators and plain values.

    Args:
        given: as `find` takes them.
        fields: names of the model's fields.
        moment: makes a number of a time.

    Raises:
        InvalidError: one of them is not an expression, is about another model, or compares with what is not a value.
    """
    known = frozenset(fields)
    return tuple(_expression(one, known, moment) for one in given)


def _expression(given: Any, known: frozenset[str], moment: Moment) -> Expression:
    inner = getattr(given, "expression", None)
    if inner is not None and type(given).__name__ == "NegatedExpression":
        return Negation(_expression(inner, known, moment))
    operator = getattr(getattr(given, "op", None), "name", None)
    if operator is None or type(given).__name__ != "Expression":
        raise InvalidError("condition", type(given).__name__, _ADVICE)
    if operator in {"AND", "OR"}:
        parts = (_expression(given.left, known, moment), _expression(given.right, known, moment))
        return Conjunction(parts) if operator == "AND" else Disjunction(parts)
    if operator == "ALL":
        return Conjunction()
    if operator not in OPERATORS:
        raise InvalidError("condition", operator, _ADVICE)
    return _comparison(given, operator, known, moment)


def _comparison(given: Any, operator: Any, known: frozenset[str], moment: Moment) -> Comparison:
    path = (*(str(parent[0]) for parent in given.parents), str(getattr(given.left, "name", "")))
    name = ".".join(path)
    if path[0] not in known:
        raise InvalidError("condition", name, f"the fields of the model are {', '.join(sorted(known))}")
    if operator in {"IN", "NOT_IN"}:
        return Comparison(path, operator, None, _several(name, given.right, moment))
    value = scalar(name, given.right, moment)
    is_ordering = operator in {"LT", "LE", "GT", "GE"}
    if is_ordering and (value is None or isinstance(value, bool)):
        raise InvalidError(f"the value for {name}", value, "an order takes a number, a time or a text")
    if not is_ordering and operator not in {"EQ", "NE"} and not isinstance(value, str):
        raise InvalidError(f"the value for {name}", value, "this operator takes a text")
    return Comparison(path, operator, value)


def _several(name: str, given: Any, moment: Moment) -> tuple[Scalar, ...]:
    if not isinstance(given, list | tuple | set | frozenset):
        raise InvalidError(f"the values for {name}", type(given).__name__, "give a list")
    return tuple(scalar(name, one, moment) for one in given)


def read_nearest(knn: Any, vector: str, distance: str) -> NearestQuery:
    """Return what a `KNNExpression` of redis-om asks for.

    Args:
        knn: as `find` takes it.
        vector, distance: the fields of the model that it may name.

    Raises:
        InvalidError: it is about other fields, or has no bytes to compare with.
    """
    names = tuple(getattr(getattr(getattr(knn, part, None), "field", None), "name", None) for part in _KNN_FIELDS)
    if names != (vector, distance):
        raise InvalidError("knn", names, f"give vector_field=Model.{vector} and score_field=Model.{distance}")
    if not isinstance(knn.reference_vector, bytes):
        raise InvalidError("knn", type(knn.reference_vector).__name__, "give its reference_vector as float32 bytes")
    return NearestQuery(knn.reference_vector, knn.k)


_KNN_FIELDS = ("vector_field", "score_field")
