"""Values as the type that the caller requests, validated by pydantic."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from sharedmem.errors import InvalidError, WrongTypeError

_CACHED_ADAPTERS = 256
_MOST_PROBLEMS = 3


def validated(key: str, value: object, as_: Any) -> Any:
    """Validate a value and return it as an instance of a type.

    Args:
        key: the absolute key that holds the value, for the error.
        value: the value that was read. A model is stored under its field names, so these are accepted beside aliases.
        as_: a type that `TypeAdapter` accepts.

    Raises:
        WrongTypeError: the value does not fit the type; the cause is pydantic's `ValidationError`.
        InvalidError: pydantic cannot validate this type.
    """
    adapter = _adapter_for(as_)
    try:
        return adapter.validate_python(value, by_alias=True, by_name=True)
    except ValidationError as error:
        wanted = as_.__name__ if isinstance(as_, type) else repr(as_)
        held = f"value that does not fit ({_describe_problems(error)})"
        raise WrongTypeError(key, held, wanted, advice="read it without as_ to see it, or write it anew") from error
    except PydanticUserError as error:  # the type refers to an undefined type
        raise _refusal(as_, error) from error


def _adapter_for(as_: Any) -> TypeAdapter[Any]:
    try:
        hash(as_)
    except TypeError:  # Annotated with a list, for example
        return _new_adapter(as_, "")
    # Equal types can differ: int | str == str | int, but pydantic tries the members in order.
    return _cached_adapter(as_, repr(as_))


def _new_adapter(as_: Any, _spelling: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(as_)
    except (PydanticUserError, SchemaError, SyntaxError, NameError, TypeError) as error:
        raise _refusal(as_, error) from error


_cached_adapter = lru_cache(_CACHED_ADAPTERS)(_new_adapter)


def _refusal(as_: Any, error: Exception) -> InvalidError:
    problem = str(error).partition("\n")[0]
    return InvalidError("as_", as_, f"give a type that pydantic's TypeAdapter takes: {problem}")


def _describe_problems(error: ValidationError) -> str:
    """Return where the value does not fit, without quoting it: an error may be logged, and a value may be a secret."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" if problem["loc"] else problem["msg"]
        for problem in problems[:_MOST_PROBLEMS]
    ]
    more = len(problems) - len(shown)
    return "; ".join([*shown, f"{more} more"] if more else shown)
