"""Names, kinds and signatures of the public modules, as in the source.

The snapshot of the API and its reference both use this module.
"""

from __future__ import annotations

import ast
import enum
import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from types import FunctionType, ModuleType
from typing import ForwardRef, NamedTuple, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

PUBLIC_MODULES = (
    "sharedmem",
    "sharedmem.errors",
    "sharedmem.models",
    "sharedmem.config",
    "sharedmem.sync",
    "sharedmem.om",
    "sharedmem.testing",
)

_SENTINEL = re.compile(r"<[\w. ]+ at 0x[0-9a-f]+>")
_PRIVATE_ALIAS = re.compile(r"\b_[A-Z]\w*")
_MODULES = re.compile(r"\b(?:\w+\.)+(?=\w)")


class Member(NamedTuple):
    """A public member of a class: `kind` is `field`, `value`, `property` or a way to call it."""

    name: str
    kind: str
    signature: str
    doc: str


def public_modules() -> list[ModuleType]:
    """Return those of the public modules that exist."""
    return [importlib.import_module(name) for name in PUBLIC_MODULES if importlib.util.find_spec(name)]


def public_names(module: ModuleType) -> dict[str, object]:
    """Return the public names of a module: its `__all__`, else its definitions without an underscore."""
    if listed := getattr(module, "__all__", None):
        return {name: getattr(module, name) for name in sorted(listed)}
    return {
        name: thing
        for name, thing in sorted(vars(module).items())
        if not name.startswith("_") and (name.isupper() or getattr(thing, "__module__", None) == module.__name__)
    }


def origin(thing: object) -> str:
    """Return the dotted name under which a class or function was defined."""
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"


def is_ours(thing: object) -> bool:
    """Return whether a class or function was defined in sharedmem."""
    return str(getattr(thing, "__module__", "")).split(".")[0] == "sharedmem"


def doc_of(thing: object) -> str:
    """Return the docstring of the object itself, unindented."""
    own = getattr(thing, "__doc__", None)
    return inspect.cleandoc(own) if own else ""


# -- functions ------------------------------------------------------------------------------------


class _Spelled:
    """An annotation whose repr is its source text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _spelled(annotation: object) -> object:
    return _Spelled(annotation) if isinstance(annotation, str) else annotation


def signature(function: Callable[..., object], *, bound: bool = False) -> str:
    """Return parameters and result as in the source; `bound` leaves out the first parameter."""
    found = inspect.signature(function)
    parameters = [item.replace(annotation=_spelled(item.annotation)) for item in found.parameters.values()]
    spelled = found.replace(parameters=parameters[bound:], return_annotation=_spelled(found.return_annotation))
    return _SENTINEL.sub("...", str(spelled))


def way_to_call(function: object) -> str:
    """Return `async`, `async iterator`, `async context manager`, `context manager` or an empty text."""
    inner = inspect.unwrap(function) if callable(function) else function
    if inspect.isasyncgenfunction(inner):
        return "async iterator" if inner is function else "async context manager"
    if inspect.isgeneratorfunction(inner) and inner is not function:
        return "context manager"
    return "async" if inspect.iscoroutinefunction(inner) else ""


# -- classes --------------------------------------------------------------------------------------


def constructor(cls: type) -> str | None:
    """Return the signature of a constructor of our own, or None if the class has none."""
    if issubclass(cls, BaseModel | enum.Enum):
        return None
    init = next((vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)), None)
    return signature(init, bound=True) if is_ours(init) and isinstance(init, FunctionType) else None


def bases(cls: type) -> list[str]:
    """Return the names of the meaningful direct base classes."""
    return [base.__name__ for base in cls.__bases__ if base is not object]


def members(cls: type, listed_elsewhere: frozenset[type] = frozenset()) -> Iterator[Member]:
    """Yield public members in the order of the source, with those of our base classes.

    Args:
        cls: a class of ours.
        listed_elsewhere: base classes whose members are left out, since they are listed themselves.
    """
    if issubclass(cls, enum.Enum):
        yield from (Member(item.name, "value", repr(item.value), "") for item in cls)
        return
    seen: set[str] = set()
    for base in cls.__mro__:
        if is_ours(base) and (base is cls or base not in listed_elsewhere):
            for member in own_members(base):
                if member.name not in seen:
                    seen.add(member.name)
                    yield member


def own_members(cls: type) -> Iterator[Member]:
    """Yield public members that the class itself defines, in the order of the source."""
    yield from _fields(cls) if issubclass(cls, BaseModel) else _annotated(cls)
    for name, thing in vars(cls).items():
        if _shows(name) and (member := _callable_member(name, thing)):
            yield member


def _annotated(cls: type) -> Iterator[Member]:
    for name, spelling in inspect.get_annotations(cls).items():
        if _shows(name):
            yield Member(name, "field", _text(spelling), _field_docstrings(cls).get(name, ""))


def _shows(name: str) -> bool:
    return not name.startswith(("_", "test_", "model_"))


def _text(annotation: object) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _callable_member(name: str, thing: object) -> Member | None:
    match thing:
        case property(fget=FunctionType() as getter) | cached_property(func=FunctionType() as getter):
            answer = getter.__annotations__.get("return", "")
            return Member(name, "property", _text(answer), doc_of(getter))
        case classmethod():
            call = f"{way_to_call(thing.__func__)} class method".strip()
            return Member(name, call, signature(thing.__func__, bound=True), doc_of(thing.__func__))
        case staticmethod():
            return Member(name, "static method", signature(thing.__func__), doc_of(thing.__func__))
        case FunctionType():
            return Member(name, way_to_call(thing), signature(thing, bound=True), doc_of(thing))
        case _:
            return None


def _fields(cls: type[BaseModel]) -> Iterator[Member]:
    spoken = _field_docstrings(cls)
    for name, spelling in inspect.get_annotations(cls).items():
        field = cls.model_fields.get(name)
        if field is None or not _shows(name):
            continue
        default = "" if field.is_required() else f" = {_default(field.default)}"
        kind = _PRIVATE_ALIAS.sub(lambda found: _alias(cls, found[0]), _text(spelling))
        yield Member(name, "field", kind + default, field.description or spoken.get(name, ""))


def _alias(cls: type, name: str) -> str:
    """Return the meaning of a private alias of the class's module, without its validation rules."""
    holder = type("Holder", (), {"__annotations__": {"it": vars(sys.modules[cls.__module__])[name]}})
    return _MODULES.sub("", inspect.formatannotation(get_type_hints(holder)["it"]))


def _default(value: object) -> str:
    """Return a default as a word; a computed default depends on the machine and is left out."""
    if value is PydanticUndefined:
        return "(computed)"
    return str(value) if isinstance(value, enum.Enum) else _SENTINEL.sub("...", repr(value))


def _field_docstrings(cls: type) -> dict[str, str]:
    """Return the texts below the fields of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as words)),
            ):
                found[name] = inspect.cleandoc(words)
    return found
