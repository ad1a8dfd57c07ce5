"""Paths: finding out which endpoint a request means.

A path is split before its parts are decoded, so that a key may hold `/` as `%2F`.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from sharedmem.faces.bodies import RequestError
from sharedmem.faces.rest.context import Endpoint
from sharedmem.faces.rest.problems import MethodError, NoSuchPathError

PREFIX = "/api/v1"
"""Path of the service, in front of the paths of its endpoints."""


class Match(NamedTuple):
    """An endpoint, and the parameters in its path."""

    endpoint: Endpoint
    params: dict[str, str]


class _RouteNode:
    """What may follow after some parts of a path."""

    __slots__ = ("any", "endpoints", "fixed")

    def __init__(self) -> None:
        self.fixed: dict[str, _RouteNode] = {}
        self.any: _RouteNode | None = None
        self.endpoints: dict[str, tuple[Endpoint, tuple[str, ...]]] = {}


class Router:
    """All endpoints of a service.

    Args:
        endpoints: each under a method and path of its own.
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _RouteNode()
        for endpoint in endpoints:
            self._add(endpoint)

    def find(self, method: str, raw_path: str) -> Match:
        """The endpoint of a request; as long as the path has parts.

        Args:
            method: as it was sent; HEAD means GET.
            raw_path: as it was sent, percent-encoded.

        Raises:
            NoSuchPathError, MethodError: no endpoint has this path, or this method.
            RequestError: the path is no text in UTF-8.
        """
        parts = raw_path[len(PREFIX) + 1 :].split("/")
        nodes = list(_matching_nodes(self._root, parts, ()))
        wanted = "GET" if method == "HEAD" else method
        for node, values in nodes:
            if wanted in node.endpoints:
                endpoint, names = node.endpoints[wanted]
                return Match(endpoint, {name: _decode_part(value) for name, value in zip(names, values, strict=True)})
        allowed = {known for node, _ in nodes for known in node.endpoints}
        if allowed:
            raise MethodError(method, allowed)
        raise NoSuchPathError

    def _add(self, endpoint: Endpoint) -> None:
        node, names = self._root, []
        for part in endpoint.path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                node.any = node.any or _RouteNode()
                node = node.any
            else:
                node = node.fixed.setdefault(part, _RouteNode())
        if endpoint.method in node.endpoints:
            raise ValueError(f"two endpoints for {endpoint.method} {endpoint.path}")
        node.endpoints[endpoint.method] = (endpoint, tuple(names))


def _matching_nodes(
    node: _RouteNode, parts: list[str], values: tuple[str, ...]
) -> Iterable[tuple[_RouteNode, tuple[str, ...]]]:
    """The nodes that the parts lead to, words before placeholders; there are few, as paths are short."""
    if not parts:
        yield node, values
        return
    first, rest = parts[0], parts[1:]
    if (fixed := node.fixed.get(first)) is not None:
        yield from _matching_nodes(fixed, rest, values)
    if node.any is not None and first:
        yield from _matching_nodes(node.any, rest, (*values, first))


def _decode_part(part: str) -> str:
    if "%" not in part and part.isascii():
        return part
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise RequestError("the path is no text in UTF-8; percent-encode names as UTF-8") from None


def raw_path_of(scope: MutableMapping[str, Any]) -> str:
    """The path of a request as it was sent, without what a proxy has put before it."""
    raw = scope.get("raw_path")
    path = raw.split(b"?")[0].decode("latin-1") if isinstance(raw, bytes) else quote(str(scope["path"]))
    root = str(scope.get("root_path") or "")
    return path[len(root) :] if root and path.startswith(root) else path
