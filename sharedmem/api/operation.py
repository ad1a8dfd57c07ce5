"""Operations: methods of a store that every face offers, with the request, the answer and the route of each.

An operation is declared once, by naming its method, and built when it is first needed. Its request is derived from the
method's signature and the descriptions of its arguments from the docstring; where HTTP needs another form, the
declaration states it. Modules with declarations are imported when one of their operations is first needed: each brings
the libraries of its facet.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union

from pydantic import AwareDatetime, Field, ValidationError, create_model

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import Record
from sharedmem.redis.scope import Need
from sharedmem.store import SharedMemoryStore, require_memory

Owner = TypeVar("Owner")
Request = TypeVar("Request", bound=Record)
Answer = TypeVar("Answer")
Found = TypeVar("Found")
Paging = Literal["", "names", "recent", "cursor", "after"]
"""How a list comes in pages: `names` are sorted texts, `recent` texts in another order; the others are the field of the
operation that says where a page begins."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ARGUMENT = re.compile(r"^( *)([*\w][\w, *]*): +(\S.*)$")


def build_record(kind: type[Request], fields: Mapping[str, Any]) -> Request:
    """Return a record with these fields.

    Raises:
        InvalidError: a field is not as the record has it.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        advice = problem["msg"].lower().replace("input should be", "it should be")
        raise InvalidError(str(problem["loc"][0]), problem["input"], advice) from None


class HttpRoute(NamedTuple):
    """How an operation is called over HTTP. Fields that are not in the path go into the query or the body."""

    method: str
    path: str
    """Below `/api/v1`; `{field}` is a field of the request."""
    paging: Paging = ""
    absent: str = ""
    """What does not exist when the operation returns nothing; without it nothing is an answer."""
    conditional: bool = False
    """Whether it takes and gives versions: ETag, If-Match, If-None-Match."""
    created: int = 0
    """Status of an answer that says where something new is: 201, or 202 for work that was accepted."""
    location: str = ""
    """Path of what is new; `{field}` is a field of the answer, or else of the request."""
    is_new: Callable[[Any], bool] | None = None
    """Whether an answer says that something is new; None when each does."""
    page: Callable[[Any], str | None] | None = None
    """Returns the HTML page in an answer, for a browser; None if this answer has none."""
    bulk: bool = False
    """Whether it handles as much as the caller likes: its CPU time counts for the quota of the caller's token."""


@dataclass(frozen=True)
class Operation(Generic[Answer]):
    """One call with one answer."""

    name: str
    """`<noun>.<verb>`, the same on every face."""
    summary: str
    needs: Need
    """The right that the actor must have on the keys concerned."""
    tag: str
    """The group that it is listed in."""
    takes: type[Record]
    """The request."""
    gives: object
    """The type of the answer, for schemas."""
    run: Callable[[SharedMemoryStore, Any], Awaitable[Answer]]
    """Call it with a store and a request of the type `takes`."""
    http: HttpRoute
    method: Callable[..., object]
    """The method that it calls."""
    answer: str = ""
    """Field of the HTTP answer that holds what the operation returns; empty where that is an object itself."""
    former_names: tuple[str, ...] = ()
    """Names that it had before; `find_operation` knows them for one minor version."""
    former_routes: tuple[HttpRoute, ...] = ()
    """Routes that it had before; REST answers them for one minor version, with a `Deprecation` header."""

    def body(self, answer: Any) -> Any:
        """Return an answer as HTTP has it: an object with named fields."""
        return {self.answer: answer} if self.answer else answer

    def request(self, fields: Mapping[str, Any]) -> Record:
        """Return a request with these fields.

        Raises:
            InvalidError: a field is not as the operation takes it.
        """
        return build_record(self.takes, fields)


@dataclass(frozen=True)
class FeedOperation(Generic[Answer]):
    """One call that goes on answering until its caller leaves."""

    name: str
    summary: str
    needs: Need
    takes: type[Record]
    gives: object
    """The type of one answer, for schemas."""
    run: Callable[[SharedMemoryStore, Any], AsyncIterator[Answer]]
    method: Callable[..., object]


class Facet(Generic[Owner]):
    """A part of a store, and the operations that its methods are, each built when it is first needed.

    Args:
        tag: the group that its operations are listed in.
        of: returns the part of a store that a request is for; None for the store itself.
        fields: fields of every request, by name, that `of` needs: (type, default or ...).
    """

    def __init__(
        self,
        tag: str,
        of: Callable[[SharedMemoryStore, Any], Owner] | None = None,
        fields: Mapping[str, tuple[object, object]] = _NOTHING,
    ) -> None:
        self.tag = tag
        self._rows: dict[str, Callable[[], Operation[Any]]] = {}
        self.feeds: list[FeedOperation[Any]] = []
        """Its feeds."""
        self._of = of
        self._fields = dict(fields)

    def operation(  # noqa: PLR0913  # each states one difference from the method
        self,
        name: str,
        method: Callable[..., Awaitable[Found]],
        http: str,
        *,
        needs: Need | None = None,
        summary: str = "",
        without: Collection[str] = (),
        names: Mapping[str, str] = _NOTHING,
        fields: Mapping[str, object] = _NOTHING,
        reply: Callable[[Found], Answer] | None = None,
        gives: object = ...,
        answer: str = "",
        formerly: Collection[str] = (),
        **route: Any,
    ) -> None:
        """Declare a method as an operation.

        Args:
            name: `<noun>.<verb>`.
            method: of the part, as a function.
            http: its HTTP method and path, such as `GET /memory/items/{id}`.
            needs: `read` or `write`; if not given, `read` for GET and `write` for all others.
            summary: the first line of the docstring if not given.
            without: arguments that have no form outside of a process. Callbacks are left out by themselves.
            names: another name of a field, by argument.
            fields: another type of a field, or (type, default), by argument.
            reply: makes the answer of what the method returns.
            gives: type of the answer; that of the method if not given.
            answer: field of the HTTP answer that holds it: each that is no object needs a name. `items` for lists.
            formerly: names that it had before, such as `graph.ask`, and routes, such as `POST /graph/{group_id}/ask`.
            route: further fields of `HttpRoute`.
        """

        def build() -> Operation[Any]:
            signature = _Signature(method, without=without, names=names, fields=fields)
            takes = signature.request(name, self._fields)
            of, with_names = self._of, signature.call_arguments

            async def run(store: SharedMemoryStore, request: Any) -> Any:
                arguments, options = with_names(request)
                owner = store if of is None else of(store, request)
                found = await method(owner, *arguments, **options)
                return found if reply is None else reply(found)

            answered = signature.gives if gives is ... else gives
            line, address = summary or _first_sentence(method), _route(http, route)
            right = needs or _usual_right(address)
            return Operation(name, line, right, self.tag, takes, answered, run, address, method, answer)

        self._declare(name, formerly, build)

    def written(  # noqa: PLR0913  # likewise
        self,
        name: str,
        method: Callable[..., object],
        http: str,
        run: Callable[[SharedMemoryStore, Request], Awaitable[Answer]],
        *,
        needs: Need | None = None,
        takes: type[Request],
        gives: object,
        summary: str = "",
        answer: str = "",
        formerly: Collection[str] = (),
        **route: Any,
    ) -> None:
        """Declare an operation whose request or call is not that of its method.

        Args:
            name, method, http, needs, summary, gives, answer, formerly, route: as `operation`.
            run: calls it.
            takes: the request.
        """

        def build() -> Operation[Answer]:
            line, address = summary or _first_sentence(method), _route(http, route)
            right = needs or _usual_right(address)
            return Operation(name, line, right, self.tag, takes, gives, run, address, method, answer)

        self._declare(name, formerly, build)

    def feed(
        self,
        name: str,
        method: Callable[..., object],
        run: Callable[[SharedMemoryStore, Request], AsyncIterator[Answer]],
        *,
        takes: type[Request],
        gives: object,
    ) -> None:
        """Declare a method whose answers are a stream; faces say under which route.

        Args:
            name, method, run, takes, gives: as `written`.
        """
        self.feeds.append(FeedOperation(name, _first_sentence(method), "read", takes, gives, run, method))

    def rows(self) -> list[Operation[Any]]:
        """Return its operations, in the order of their declaration."""
        return [row() for row in dict.fromkeys(self._rows.values())]

    def find(self, name: str) -> Operation[Any] | None:
        """Return an operation by its name or a former one; None if it has no such operation."""
        row = self._rows.get(name)
        return None if row is None else row()

    def _declare(self, name: str, formerly: Collection[str], build: Callable[[], Operation[Any]]) -> None:
        names = tuple(one for one in formerly if " " not in one)

        @cache
        def row() -> Operation[Any]:
            built = build()
            routes = tuple(_route(one, built.http._asdict()) for one in formerly if " " in one)
            return replace(built, answer=built.answer or _answer_field(built), former_names=names, former_routes=routes)

        self._rows |= dict.fromkeys((name, *names), row)


def _route(http: str, details: Mapping[str, Any]) -> HttpRoute:
    """A route from its text, such as `GET /memory/items/{id}`."""
    verb, _, path = http.partition(" ")
    return HttpRoute(**{**details, "method": verb, "path": path})


def _usual_right(route: HttpRoute) -> Need:
    return "read" if route.method == "GET" else "write"


def _answer_field(row: Operation[Any]) -> str:
    """The field that holds the answer, where the declaration does not name it.

    Raises:
        TypeError: it has to.
    """
    if typing.get_origin(row.gives) in {list, set}:
        return "" if row.http.paging else "items"
    options = typing.get_args(row.gives) or (row.gives,)
    if row.http.absent:
        options = tuple(option for option in options if option is not type(None))
    if all(option is None or (isinstance(option, type) and issubclass(option, Record)) for option in options):
        return ""
    raise TypeError(f"{row.name} returns {row.gives}, which is no object: name its field with answer=")


class _Signature:
    """The arguments of a method as fields of a request.

    Args:
        method: as a function, with `self` in front.
        without, names, fields: as `Facet.operation`.
    """

    def __init__(
        self,
        method: Callable[..., object],
        *,
        without: Collection[str],
        names: Mapping[str, str],
        fields: Mapping[str, object],
    ) -> None:
        hints = typing.get_type_hints(method, include_extras=True)
        returned = hints.get("return")
        self.gives: object = None if returned is type(None) else returned
        described = argument_descriptions(method)
        self._positional: list[str] = []
        self._rest = ""
        self._named: dict[str, str] = {}
        self._fields: dict[str, Any] = {}
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            argument = parameter.name
            if argument in without or parameter.kind is parameter.VAR_KEYWORD or has_callback(hints[argument]):
                continue
            name = names.get(argument, argument)
            given = fields.get(argument, wire_type(hints[argument]))
            kind, default = given if isinstance(given, tuple) else (given, parameter.default)
            if parameter.kind is parameter.VAR_POSITIONAL:
                kind, self._rest = tuple[kind, ...], name  # type: ignore[valid-type]  # made at run time
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self._named[argument] = name
            else:
                self._positional.append(name)
            self._fields[name] = (kind, _field(default, described.get(argument, "")))

    def request(self, operation: str, fields: Mapping[str, tuple[object, object]]) -> type[Record]:
        """Return the request's type, with the fields that the facet needs in front."""
        noun, _, verb = operation.partition(".")
        title = "".join(part.capitalize() for part in (*noun.split("_"), *verb.split("_"))) + "Request"
        front = {name: (kind, _field(default, "")) for name, (kind, default) in fields.items()}
        made: type[Record] = create_model(title, __base__=Record, **{**front, **self._fields})
        made.__doc__ = f"Request of the operation `{operation}`."
        return made

    def call_arguments(self, request: Record) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the method: (by position, by name)."""
        arguments = [getattr(request, name) for name in self._positional]
        if self._rest:
            arguments += getattr(request, self._rest)
        return arguments, {argument: getattr(request, name) for argument, name in self._named.items()}


def _field(default: object, description: str) -> Any:
    options: dict[str, Any] = {"description": description or None}
    if default not in (inspect.Parameter.empty, ...):
        options["default"] = list(default) if isinstance(default, tuple) else default
    return Field(**options)


def wire_type(hint: Any) -> Any:
    """Return the form of an argument's type in a request.

    Times have a zone; where a record may also be given as a mapping, or a choice as text, only the record or choice
    counts; iterables are lists.
    """
    if hint is datetime:
        return AwareDatetime
    if hint is object:
        return Any
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in {Union, types.UnionType}:
        return Union[tuple(map(wire_type, _plain_options(parts)))]  # noqa: UP007  # made at run time
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[tuple(map(wire_type, parts))]  # type: ignore[misc]  # likewise
    if origin in {Iterable, Sequence} or origin is list:
        return list[wire_type(parts[0])]  # type: ignore[misc]  # likewise
    return hint


def _plain_options(parts: Sequence[Any]) -> list[Any]:
    is_record = any(isinstance(part, type) and issubclass(part, Record) for part in parts)
    is_choice = any(typing.get_origin(part) is Literal or hasattr(part, "__members__") for part in parts)
    return [
        part
        for part in parts
        if not (is_record and typing.get_origin(part) is Mapping) and not (is_choice and part is str)
    ]


def has_callback(hint: Any) -> bool:
    """Return whether a type is, or contains, a function."""
    if typing.get_origin(hint) is Callable or hint is Callable:
        return True
    is_protocol = isinstance(hint, type) and getattr(hint, "_is_protocol", False)
    return is_protocol or any(has_callback(part) for part in typing.get_args(hint) if not isinstance(part, list))


def argument_descriptions(method: Callable[..., object]) -> dict[str, str]:
    """Return what the docstring of a method says about each argument."""
    found: dict[str, str] = {}
    lines = inspect.cleandoc(method.__doc__ or "").split("\n")
    if "Args:" not in lines:
        return found
    current: list[str] = []
    for line in lines[lines.index("Args:") + 1 :]:
        if not line.startswith("    "):
            break
        matched = _ARGUMENT.match(line)
        if matched and len(matched[1]) == 4:  # one level below `Args:`
            current = [name.strip(" *") for name in matched[2].split(",")]
            found |= dict.fromkeys(current, matched[3])
        else:
            found |= {name: f"{found[name]} {line.strip()}" for name in current}
    return {name: text[:1].upper() + text[1:] for name, text in found.items()}


def _first_sentence(method: Callable[..., object]) -> str:
    text = inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return text.partition(". ")[0].rstrip(".") + "."


# -- the table of all operations ------------------------------------------------------------------


class _Module(NamedTuple):
    """A module beside this one, and the extra that it needs."""

    name: str
    nouns: tuple[str, ...]
    """First parts of the names of its operations."""
    feature: str = ""
    extra: str = ""

    def facets(self) -> tuple[Facet[Any], ...]:
        if self.extra:
            require_memory(self.feature, self.extra)
        facets: tuple[Facet[Any], ...] = import_module(f"sharedmem.api.{self.name}").FACETS
        return facets


_MODULES = (
    _Module("store", ("value", "key", "list", "hash", "set", "counter", "message", "change", "namespace")),
    _Module("logs", ("plan", "execution", "episode", "conversation", "durable")),
    _Module("coordination", ("coordination", "lease", "once", "barrier", "limit", "presence", "queue")),
    _Module("memory", ("memory", "thread"), "semantic memory", "memory"),
    _Module("graph", ("graph",), "the knowledge graph", "graph"),
    _Module("synthesis", ("synthesis",), "synthesis", "synthesis"),
    _Module("memory", ("knowledge",), "recall", "memory"),
    _Module("memory", ("cache",), "the semantic cache", "memory"),
)


@cache
def operations() -> Mapping[str, Operation[Any]]:
    """Return the calls with one answer, by name.

    Raises:
        UnsupportedError: the extra `memory` is missing.
    """
    facets = [facet for module in _MODULES for facet in module.facets()]
    return MappingProxyType({row.name: row for facet in facets for row in facet.rows()})


@cache
def feeds() -> Mapping[str, FeedOperation[Any]]:
    """Return the calls that go on answering, by name.

    Raises:
        UnsupportedError: the extra `memory` is missing.
    """
    facets = [facet for module in _MODULES for facet in module.facets()]
    return MappingProxyType({row.name: row for facet in facets for row in facet.feeds})


def find_operation(name: str) -> Operation[Any]:
    """Return an operation by its name or a former one; imports no other facet than its own.

    Raises:
        NotFoundError: there is no operation of this name.
        UnsupportedError: it needs an extra that is missing.
    """
    for facet in _facets_of(name):
        if (row := facet.find(name)) is not None:
            return row
    raise NotFoundError("operation", name, "sharedmem.api.operation.operations() has all")


def find_feed(name: str) -> FeedOperation[Any]:
    """Return a feed by its name; imports no other facet than its own.

    Raises:
        NotFoundError: there is no operation of this name.
        UnsupportedError: it needs an extra that is missing.
    """
    for facet in _facets_of(name):
        for row in facet.feeds:
            if name == row.name:
                return row
    raise NotFoundError("feed", name, "sharedmem.api.operation.feeds() has all")


def _facets_of(name: str) -> tuple[Facet[Any], ...]:
    """The facets of the module that has operations of this noun."""
    noun = name.partition(".")[0]
    return next((module.facets() for module in _MODULES if noun in module.nouns), ())
