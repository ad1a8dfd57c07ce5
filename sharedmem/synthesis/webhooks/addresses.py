"""Allow webhooks only to hosts on the public network, also after name resolution (SSRF guard)."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

from sharedmem.errors import InvalidError

ResolveHost: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host and port, as texts; raises `OSError` if none exist."""
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_FIELD = "callback_url"
_LONGEST_URL, _LONGEST_HOST = 2_000, 253
_PORTS = {"http": 80, "https": 443}
_VALID_URL = re.compile(r"[!-~]+")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# A last label of this kind is read as a number by the resolvers of most systems.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Addresses that Python counts as global, but that lead to machines outside of the public network.
_BLOCKED_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # Azure's metadata
        "2002::/16",  # 6to4: any IPv4 address may be inside
        "3fff::/20",  # documentation
    )
)


class Destination(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str
    """In lower case, as ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""

    @property
    def authority(self) -> str:
        """Host and port as the `Host` header names them."""
        return self._at(self.host)

    def url_at(self, address: str) -> str:
        """Return the URL with an address in place of the name."""
        return f"{self.scheme}://{self._at(address)}{self.target}"

    def _at(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        return shown if self.port == _PORTS[self.scheme] else f"{shown}:{self.port}"


def parse_url(url: str) -> Destination:
    """Return the parts of a URL that is allowed for a webhook; its address is not checked here.

    Args:
        url: absolute.

    Raises:
        InvalidError: it is not http or https, has credentials, or its host is neither a name nor a usual address.
    """
    if not isinstance(url, str) or not _VALID_URL.fullmatch(url) or "\\" in url or len(url) > _LONGEST_URL:
        advice = f"give a URL of at most {_LONGEST_URL} printable ASCII characters, others percent-encoded"
        raise InvalidError(_FIELD, "...", advice)
    parts = _split(url)
    if parts.scheme not in _PORTS:
        raise InvalidError(_FIELD, parts.scheme, "begin it with https:// or http://")
    if "@" in parts.netloc:
        raise InvalidError(_FIELD, "...", "leave user and password out of it; calls are signed instead")
    host, port = _host(parts), _port(parts)
    query = f"?{parts.query}" if parts.query else ""
    return Destination(parts.scheme, host, port, f"{parts.path or '/'}{query}")


def refusal_reason(address: str) -> str | None:
    """Return why an address is rejected; None if it is on the public network.

    Args:
        address: an address from the resolver. For an IPv6 address with an IPv4 address inside, that one decides.
    """
    try:
        found: IpAddress = ipaddress.ip_address(address)
    except ValueError:
        return "is not an address"
    if isinstance(found, ipaddress.IPv6Address):
        inner = _embedded_address(found)
        if inner is None and found not in _PUBLIC_V6:
            return "is not on the public network"
        found = inner or found
    if not found.is_global or found.is_multicast or any(found in network for network in _BLOCKED_NETWORKS):
        return "is not on the public network"
    return None


async def resolve_public(
    destination: Destination, *, private: bool, resolve: ResolveHost | None = None
) -> tuple[str, ...]:
    """Look up the addresses of a host once, so that the caller connects to the addresses that were checked.

    Args:
        destination: the parsed URL.
        private: whether addresses of private networks are allowed.
        resolve: the resolver; None for the system's.

    Raises:
        InvalidError: one of the addresses is not on the public network, even if others are.
        OSError: the name cannot be resolved now.
    """
    addresses = await (resolve or system_resolve)(destination.host, destination.port)
    for address in () if private else addresses:
        if reason := refusal_reason(address):
            advice = f"it leads to {address}, which {reason}; the setting webhook_private would allow it"
            raise InvalidError(_FIELD, destination.host, advice)
    if not addresses:
        raise OSError(f"{destination.host} has no address")
    return tuple(addresses)


async def system_resolve(host: str, port: int) -> list[str]:
    """Return the system's addresses of a host, in the order in which it would try them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _embedded_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise InvalidError(_FIELD, "...", "its host is neither a name nor an address") from None


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise InvalidError(_FIELD, parts.netloc, "give a port from 1 to 65535, or none")
    return port or _PORTS[parts.scheme]


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    if _is_address(host, bracketed=parts.netloc.startswith("[")) or _is_name(host):
        return host
    raise InvalidError(_FIELD, host, "name a host, or give an address in its usual spelling")


def _is_address(host: str, *, bracketed: bool) -> bool:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return bracketed == (found.version == 6) and "%" not in host


def _is_name(host: str) -> bool:
    labels = host.split(".")
    return (
        len(host) <= _LONGEST_HOST
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )
