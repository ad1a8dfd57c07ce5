"""Commands that run one operation of the table: declared by their arguments, and by how a person sees the answer."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from sharedmem.api.operation import find_operation
from sharedmem.errors import NotFoundError
from sharedmem.faces.cli.app import app, command
from sharedmem.faces.cli.output import print_answer
from sharedmem.faces.cli.session import options_of, perform

if TYPE_CHECKING:
    from rich.console import RenderableType

Picture = TypeVar("Picture", bound="Callable[..., RenderableType]")


class Reads(NamedTuple):
    """In the annotation of an argument: makes a field of the request of what was given."""

    read: Callable[[Any], Any]


def operation_command(
    operation: str,
    name: str,
    panel: str | None = None,
    *,
    example: str,
    group: typer.Typer = app,
    words: dict[str, bool] | None = None,
    request: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
) -> Callable[[Picture], Picture]:
    """Register a command that runs an operation and prints its answer; the decorated function draws it for a person.

    The function's first parameter is the answer. The others are the arguments and options of the command, and under
    the same names (`id_` for `id`) the fields of the request. What the caller leaves out, the operation decides.

    Args:
        operation: its name in the table.
        request: makes the fields of the request of those of the command, where they differ.
        name, panel, example, group, words: as `command`.
    """

    def register(draw: Picture) -> Picture:
        _, *declared = inspect.signature(draw).parameters.values()

        def run(context: typer.Context, **given: Any) -> None:
            options = options_of(context)
            fields = request(_fields(hints, given))
            found = perform(options, operation, **fields)
            if found is None:
                _check_absence(operation, fields)
            print_answer(options, found, lambda: draw(found, **given))

        # The types of the answer and of the picture are not imported at run time.
        run.__annotations__ = {one.name: one.annotation for one in declared}
        hints = typing.get_type_hints(run, draw.__globals__, include_extras=True)
        run.__annotations__ = {"context": typer.Context, **hints}
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY)
        parameters = [context, *(one.replace(kind=one.KEYWORD_ONLY) for one in declared)]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # it is what typer reads
            [one.replace(annotation=run.__annotations__[one.name]) for one in parameters]
        )
        run.__doc__, run.__name__, run.__module__ = draw.__doc__, draw.__name__, draw.__module__
        command(name, panel, example=example, group=group, words=words)(run)
        return draw

    return register


def _check_absence(operation: str, fields: Mapping[str, Any]) -> None:
    """Check that nothing is an answer of an operation, and does not mean that what was asked for does not exist.

    Raises:
        NotFoundError: it means that.
    """
    route = find_operation(operation).http
    if route.absent:
        asked = route.path.rpartition("{")[2].partition("}")[0]
        raise NotFoundError(route.absent, str(fields[asked]))


def _fields(hints: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request, without fields that were not given."""
    return {name.rstrip("_"): _read(hints[name], value) for name, value in given.items() if value is not None}


def _read(hint: Any, value: Any) -> Any:
    """The value of a field; of a list, each word is read by itself."""
    reads = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Reads)), None)
    if reads is None:
        return value
    return [reads.read(word) for word in value] if isinstance(value, list) else reads.read(value)
