"""The only module that knows redis-om: its models are made here, and its expressions become ours.

redis-om has weak types, so that every `Any` of this package is here. Nothing of what it would send to a server is used:
it spells some values into the text of a query as they stand (`IN`, `%`), and splits tags at their separator.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from importlib import import_module
from types import NoneType, UnionType, new_class
from typing import Any, NamedTuple, Union, get_args, get_origin
from weakref import WeakKeyDictionary

import orjson
from pydantic import BaseModel, ValidationError

from sharedmem.errors import InvalidError, UsageError
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
from sharedmem.redis.scripts.integrations import ObjectForm

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
        mixin: the first base, whose methods replace the methods of redis-om.
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


def read_nearest(knn: Any, fields: Iterable[str]) -> NearestQuery:
    """Return what a `KNNExpression` of redis-om asks for.

    Args:
        knn: as `find` takes it.
        fields: names of the model's fields.

    Raises:
        InvalidError: it is about other fields, or has no bytes to compare with.
    """
    names = [getattr(getattr(getattr(knn, part, None), "field", None), "name", None) for part in _KNN_FIELDS]
    if not set(names) <= set(fields):
        raise InvalidError("knn", names, "give fields of the model as vector_field and score_field")
    if not isinstance(knn.reference_vector, bytes):
        raise InvalidError("knn", type(knn.reference_vector).__name__, "give its reference_vector as bytes of floats")
    return NearestQuery(knn.reference_vector, knn.k, str(names[0]), str(names[1]))


_KNN_FIELDS = ("vector_field", "score_field")


# -- models of users --------------------------------------------------------------------------------


class UserModel(NamedTuple):
    """What there is to know of a user's model."""

    name: str
    form: ObjectForm
    key: str
    """Name of the field that is its key."""
    is_blocking: bool
    """Whether it is one of `redis_om`, not of `aredis_om`."""
    fields: frozenset[str]
    paths: tuple[tuple[str, ...], ...]
    """The names that lead to each of its fields, through embedded models too."""
    schema: tuple[str, ...]
    """The fields of its index, as redis-om writes them."""
    booleans: frozenset[str]
    """Names in the index of the fields that hold truth values."""


def read_model(model: Any) -> UserModel:
    """Return what there is to know of a user's model.

    Raises:
        InvalidError: it is not an indexed `JsonModel` or `HashModel`.
    """
    bases = [(base.__module__.partition(".")[0], base.__name__) for base in getattr(model, "__mro__", ())]
    for package in ("aredis_om", "redis_om"):
        for form, base in _FORMS.items():
            is_indexed = (package, base) in bases and model.model_config.get("index") is True
            if is_indexed and not getattr(model.Meta, "embedded", False):
                paths = tuple(_paths(model, ()))
                return UserModel(
                    name=model.__name__,
                    form=form,
                    key=model._meta.primary_key.name,  # noqa: SLF001  # the library's own name for it
                    is_blocking=package == "redis_om",
                    fields=frozenset(model.model_fields),
                    paths=tuple(path for path, _ in paths),
                    schema=tuple(model.schema_for_fields()),
                    booleans=frozenset("_".join(path) for path, kind in paths if kind is bool),
                )
    raise InvalidError("model", model, "give a JsonModel or HashModel of redis-om with index=True")


_FORMS: Mapping[ObjectForm, str] = {"json": "JsonModel", "hash": "HashModel"}


def _paths(model: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, field in model.model_fields.items():
        path = (*above, name)
        kinds = [kind for kind in (get_args(field.annotation) or (field.annotation,)) if kind is not type(None)]
        inner = next((kind for kind in kinds if hasattr(kind, "model_fields") and hasattr(kind, "_meta")), None)
        if inner is None:
            yield path, kinds[0] if kinds else None
        elif inner is not model:
            yield from _paths(inner, path)


def bind_model(model: Any, mixin: type) -> Any:
    """Return a subclass of a user's model whose first base is a mixin.

    Args:
        model: of the user.
        mixin: its methods replace the methods of redis-om, `__init__` of `JsonModel` among them.
    """
    library = _traits_of(model).library
    fields = dict(model.model_fields)
    key = library.RedisModel.model_fields["pk"]

    def body(namespace: dict[str, Any]) -> None:
        namespace.update(__module__=model.__module__, __qualname__=model.__qualname__, __doc__=model.__doc__)
        # A field that a subclass inherits would get the parent's field expression as its default.
        namespace["__annotations__"] = {"pk": key.annotation} | {name: one.annotation for name, one in fields.items()}
        namespace.update({"pk": copy(key)} | {name: copy(one) for name, one in fields.items()})
        namespace["model_config"] = {"index": False}
        namespace["Meta"] = type("Meta", (model.Meta,), {"database": _Unused(), "model_key_prefix": model.__name__})

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Field name")  # of each field: it is in the parent too
        before = dict(library.model_registry)
        bound = new_class(model.__name__, (mixin, model), {"index": True}, body)
    library.model_registry.clear()
    library.model_registry.update(before)
    return bound


def initialize(bound: Any, values: Mapping[str, Any]) -> None:
    """Run the constructor of pydantic alone: that of redis-om asks the server, and looks for the key each time."""
    BaseModel.__init__(bound, **values)


class _Traits(NamedTuple):
    """What is worked out once for a model."""

    library: Any
    """The module of redis-om that it comes from: that with or that without `await`."""
    vectors: dict[str, str]
    """The fields with vectors, each with the code of its numbers."""
    is_plain: bool
    """Whether no field may hold a time, bytes or another model, which redis-om stores otherwise."""


_traits: WeakKeyDictionary[type, _Traits] = WeakKeyDictionary()
_PLAIN = (str, int, float, bool, NoneType, list[str], list[int], list[float])


def _traits_of(model: type[Any]) -> _Traits:
    found = _traits.get(model)
    if found is None:
        names = {base.__module__.partition(".")[0] for base in model.__mro__}
        package = "aredis_om" if "aredis_om" in names else "redis_om"
        fields: dict[str, Any] = model.model_fields
        options = {name: getattr(field, "vector_options", None) for name, field in fields.items()}
        vectors = {name: "d" if one.type.name == "FLOAT64" else "f" for name, one in options.items() if one is not None}
        is_plain = all(_is_plain(field.annotation) for field in fields.values())
        found = _traits[model] = _Traits(import_module(f"{package}.model.model"), vectors, is_plain)
    return found


def _is_plain(annotation: Any) -> bool:
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return all(part in _PLAIN for part in parts)


class _Unused:
    """Placeholder for the connection of a bound model, which the model does not use."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError("the connection of a bound model", f"{name}: use the methods of the model or the store")


def set_fields(found: Any, values: Mapping[str, Any]) -> None:
    """Set fields of an object; `address__city` is a field of an embedded model.

    Raises:
        InvalidError: there is no such field.
    """
    for path, value in values.items():
        holder, *names = found, *path.split("__")
        for name in names[:-1]:
            holder = getattr(holder, name, None)
        if names[-1] not in getattr(type(holder), "model_fields", {}):
            raise InvalidError(
                "field", path, f"the fields of {type(found).__name__} are {', '.join(type(found).model_fields)}"
            )
        setattr(holder, names[-1], value)


def encode_object(found: Any, form: ObjectForm) -> list[bytes]:
    """Return how an object is stored: fields and values in turn, or one JSON text; as redis-om stores it.

    Vectors of a hash are bytes, which an index takes; redis-om 1.2 stores them as text. An empty vector is left out,
    since no index takes an object with one.

    Raises:
        InvalidError: a value does not fit its field, or a vector has another dimension.
    """
    library, codes, _ = _traits_of(type(found))
    try:
        found.check()
    except ValidationError as error:
        raise InvalidError(type(found).__name__, found.pk, str(error.errors()[0]["msg"])) from None
    values = library.convert_datetime_to_timestamp(found.model_dump())
    vectors = {name: values[name] for name in codes if isinstance(values[name], list)}
    for name, numbers in vectors.items():
        _check_dimension(type(found), name, len(numbers))
        if not numbers or form == "hash":
            del values[name]
    packed = {
        name: struct.pack(f"<{len(numbers)}{codes[name]}", *numbers)
        for name, numbers in vectors.items()
        if form == "hash" and numbers
    }
    values = library.jsonable_encoder(library.convert_bytes_to_base64(values))
    if form == "json":
        return [orjson.dumps(values)]
    pairs: list[bytes] = []
    for name, value in (values | packed).items():
        if value is not None:
            pairs += (name.encode(), _hash_value(value))
    return pairs


def _hash_value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (str(int(value)) if isinstance(value, bool) else str(value)).encode()


def _check_dimension(model: Any, name: str, length: int) -> None:
    dimension = model.model_fields[name].vector_options.dimension
    if length not in {0, dimension}:
        raise InvalidError(
            name, f"{length} numbers", f"give {dimension} numbers, or none: else no query finds the object"
        )


def decode_object(model: Any, key: str, stored: Mapping[bytes, bytes] | bytes) -> Any:
    """Return the object that is stored so.

    Args:
        model: its class.
        key: the value of its key.
        stored: the fields of a hash, or JSON text.

    Raises:
        ValueError: it does not fit the model: another client, or another version of the model, has written it.
    """
    library, vectors, is_plain = _traits_of(model)
    values: dict[str, Any]
    if isinstance(stored, bytes):
        values = orjson.loads(stored)
    elif not vectors:
        values = {name.decode(): value.decode() for name, value in stored.items()}
    else:
        values = {name.decode(): value for name, value in stored.items()}
        values = {
            name: list(struct.unpack(f"<{len(value) // struct.calcsize(vectors[name])}{vectors[name]}", value))
            if name in vectors
            else value.decode()
            for name, value in values.items()
        }
    values = {**{name: [] for name in vectors}, **values}
    if not is_plain:
        values = library.convert_timestamp_to_datetime(values, model.model_fields)
        values = library.convert_base64_to_bytes(values, model.model_fields)
    return model.model_validate({**values, model._meta.primary_key.name: key})  # noqa: SLF001  # see `read_model`
