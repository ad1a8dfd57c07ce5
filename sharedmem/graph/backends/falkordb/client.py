"""Send Cypher to the FalkorDB module over the hub's own Redis client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from sharedmem.errors import InvalidError, SharedMemoryError, UnavailableError, UnsupportedError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.replies import Argument, Reply, ServerError, public_error

Cell: TypeAlias = Any
"""A text, a number, a list of these, or None."""
Parameter: TypeAlias = "str | int | list[Any] | dict[str, Any] | None"
FEATURE = "the FalkorDB backend"
NO_CLIENT = "pip install 'sharedmem-hub[falkordb]'"
NO_MODULE = (
    "the server lacks the graph module; set SHAREDMEM_EMBEDDED_MODULES=search,json,graph for the embedded server, load"
    " the FalkorDB module into yours, or set SHAREDMEM_GRAPH_BACKEND=redis"
)
_NO_VECTORS = "its graph began while there was no embedder; delete the group and tell it anew"

_EMPTY_KEY = "Invalid graph operation on empty key"
# A query that came just after the graph had gone has made an empty one (see `Beginning.clear`).
_EMPTY_GRAPH = "Attempted to access undefined attribute"
_NO_INDEX = "Invalid arguments for procedure 'db.idx.vector"
_GONE = re.compile("Encountered (an empty key|different graph value) when opened key")
_TIMED_OUT = "Query timed out"
_DIMENSION = "Vector dimension mismatch"
_ALREADY_INDEXED = "is already indexed"
_ESCAPE = "\ue000"
# The module takes texts for C strings, which end at NUL; its indexes drop blanks around a text and split it at others.
_UNSAFE = re.compile(rf"[\x00-\x1f\x7f{_ESCAPE}]|\A\s|\s\Z")
_ESCAPED = re.compile(rf"{_ESCAPE}([0-9a-f]{{4}})")


def graph_type() -> Any:
    """Return the client's class of a graph.

    Raises:
        UnsupportedError: the client is not installed.
    """
    try:
        from falkordb.asyncio.graph import AsyncGraph  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise UnsupportedError(FEATURE, NO_CLIENT) from error
    return AsyncGraph


class FalkorClient:
    """Sends Cypher to the graphs of one server.

    Texts come in as parameters alone, never as a part of a query.

    Args:
        line: the way to the server. Queries take a connection aside: one that is at work holds back its connection.

    Raises:
        UnsupportedError: the client is not installed.
    """

    def __init__(self, line: RedisClient) -> None:
        self._client = line
        self._type = graph_type()

    async def read(
        self, key: bytes, query: str, parameters: Mapping[str, Parameter], *, timeout_ms: int | None = None
    ) -> list[list[Cell]]:
        """Return the rows of a query that only looks; none where there is no graph. One round trip.

        Raises:
            UnavailableError: the server cannot be reached, or could not finish in time.
            UnsupportedError: it lacks the module.
            InvalidError: a vector has another dimension than the graph's.
        """
        try:
            result = await self._graph(key).ro_query(query, _escape(parameters), timeout=timeout_ms)
        except ServerError as error:
            if _EMPTY_KEY in error.text or _EMPTY_GRAPH in error.text:
                return []
            raise self._public(error) from error
        return [[_unescape(cell) for cell in row] for row in result.result_set]

    async def write(self, key: bytes, query: str, parameters: Mapping[str, Parameter]) -> list[list[Cell]]:
        """The rows of a query that changes something; none when the graph went meanwhile, and nothing was changed.

        One round trip; a query that was lost is sent again.

        Raises:
            UnavailableError, UnsupportedError, InvalidError: as `read`.
        """
        try:
            result = await self._graph(key).query(query, _escape(parameters))
        except ServerError as error:
            if _GONE.search(error.text):
                return []
            raise self._public(error) from error
        return [[_unescape(cell) for cell in row] for row in result.result_set]

    async def index(self, key: bytes, statement: str) -> None:
        """Make an index, unless it is there.

        Raises:
            UnavailableError, UnsupportedError: as `read`.
        """
        try:
            await self._graph(key).query(statement)
        except ServerError as error:
            if _ALREADY_INDEXED not in error.text:
                raise self._public(error) from error

    async def delete(self, key: bytes) -> None:
        """Delete a graph, if it is there.

        Raises:
            UnavailableError, UnsupportedError: as `read`.
        """
        try:
            await self._graph(key).delete()
        except ServerError as error:
            if _EMPTY_KEY not in error.text:
                raise self._public(error) from error

    async def keys(self, near: bytes) -> list[bytes]:
        """Return the keys of all graphs of the server that has, or would have, the key `near`.

        Raises:
            UnavailableError, UnsupportedError: as `read`.
        """
        try:
            reply = await self._client.call_near(near, "GRAPH.LIST")
        except UnsupportedError as error:
            raise UnsupportedError(FEATURE, NO_MODULE) from error
        except ServerError as error:
            raise self._public(error) from error
        return [key for key in reply if isinstance(key, bytes)] if isinstance(reply, list) else []

    async def execute_command(self, *args: Argument) -> Reply:
        """Return what the client's graphs send their commands with."""
        try:
            reply = await self._client.call_aside(*args)
        except UnsupportedError as error:
            raise UnsupportedError(FEATURE, NO_MODULE) from error
        # What fails while it runs comes at the end of an answer.
        if isinstance(reply, list) and reply and isinstance(reply[-1], Exception):
            raise ServerError(str(reply[-1]))
        return reply

    def _graph(self, key: bytes) -> Any:
        return self._type(self, key.decode())

    def _public(self, error: ServerError) -> SharedMemoryError:
        if _TIMED_OUT in error.text:
            return UnavailableError(f"FalkorDB at {self._client.address}", "it could not finish in time; ask for less")
        if _DIMENSION in error.text:
            return InvalidError("vector", "...", error.text)
        if _NO_INDEX in error.text:
            return UnsupportedError("searching this group by meaning", _NO_VECTORS)
        return public_error(error, self._client.address)


def _escape(value: Any) -> Any:
    """Return a parameter without what the module cannot keep."""
    if isinstance(value, str):
        return _UNSAFE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", value)
    if isinstance(value, Mapping):
        return {name: _escape(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(each) for each in value]
    return value


def _unescape(cell: Cell) -> Cell:
    """Return a cell as it was given to `_escape`."""
    if isinstance(cell, str):
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), cell) if _ESCAPE in cell else cell
    return [_unescape(each) for each in cell] if isinstance(cell, list) else cell
