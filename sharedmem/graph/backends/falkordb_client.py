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
_NO_VECTORS = "its graph was created without an embedder; delete the group and add its episodes again"

_EMPTY_KEY = "Invalid graph operation on empty key"
# A query just after the deletion of the graph has created an empty one (see `Beginning.clear`).
_EMPTY_GRAPH = "Attempted to access undefined attribute"
_NO_INDEX = "Invalid arguments for procedure 'db.idx.vector"
_GONE = re.compile("Encountered (an empty key|different graph value) when opened key")
_TIMED_OUT = "Query timed out"
_DIMENSION = "Vector dimension mismatch"
_ALREADY_INDEXED = "is already indexed"
_ESCAPE = "\ue000"
# The module treats texts as C strings, which end at NUL; its indexes drop blanks around a text and split it at others.
_UNSAFE = re.compile(rf"[\x00-\x1f\x7f{_ESCAPE}]|\A\s|\s\Z")
_ESCAPED = re.compile(rf"{_ESCAPE}([0-9a-f]{{4}})")


def graph_type() -> Any:
    """Return the client's graph class.

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

    Values in texts are sent only as parameters, never as part of a query.

    Args:
        line: the client of the server. Queries take a connection aside: a running query blocks its connection.

    Raises:
        UnsupportedError: the client is not installed.
    """

    def __init__(self, line: RedisClient) -> None:
        self._client = line
        self._type = graph_type()

    async def read(
        self, key: bytes, query: str, parameters: Mapping[str, Parameter], *, timeout_ms: int | None = None
    ) -> list[list[Cell]]:
        """Return the rows of a read-only query; no rows if the graph does not exist. One round trip.

        Raises:
            UnavailableError: the server cannot be reached, or could not finish in time.
            UnsupportedError: the server lacks the module.
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
        """Return the rows of a query that writes; no rows if the graph was deleted meanwhile, and nothing was changed.

        One round trip; a query whose reply was lost is sent again.

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
        """Create an index, unless it exists.

        Raises:
            UnavailableError, UnsupportedError: as `read`.
        """
        try:
            await self._graph(key).query(statement)
        except ServerError as error:
            if _ALREADY_INDEXED not in error.text:
                raise self._public(error) from error

    async def delete(self, key: bytes) -> None:
        """Delete a graph, if it exists.

        Raises:
            UnavailableError, UnsupportedError: as `read`.
        """
        try:
            await self._graph(key).delete()
        except ServerError as error:
            if _EMPTY_KEY not in error.text:
                raise self._public(error) from error

    async def keys(self, near: bytes) -> list[bytes]:
        """Return the keys of all graphs of the server that holds, or would hold, the key `near`.

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
        """Send a command for the client's graph class and return the reply."""
        try:
            reply = await self._client.call_aside(*args)
        except UnsupportedError as error:
            raise UnsupportedError(FEATURE, NO_MODULE) from error
        # An error at run time comes at the end of a reply.
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
    """Return a parameter without characters that the module cannot store."""
    if isinstance(value, str):
        return _UNSAFE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", value)
    if isinstance(value, Mapping):
        return {name: _escape(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escape(each) for each in value]
    return value


def _unescape(cell: Cell) -> Cell:
    """Return a cell as it was before `_escape`."""
    if isinstance(cell, str):
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), cell) if _ESCAPE in cell else cell
    return [_unescape(each) for each in cell] if isinstance(cell, list) else cell
