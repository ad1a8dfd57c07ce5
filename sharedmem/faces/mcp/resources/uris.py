"""Addresses of resources: `memory://{id}`, `thread://{id}` and `value://{key}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args
from urllib.parse import quote, unquote

from sharedmem.errors import InvalidError
from sharedmem.faces.mcp.options import Profile

ResourceKind = Literal["thread", "value", "memory"]
KINDS: tuple[ResourceKind, ...] = get_args(ResourceKind)
PROFILE_OF: dict[ResourceKind, Profile] = {"memory": "memory", "thread": "memory", "value": "coordination"}
"""The profile whose tools work on the same data."""
_LONGEST = 4096


@dataclass(frozen=True)
class ResourceUri:
    """The address of a resource."""

    kind: ResourceKind
    name: str
    """The id of a memory or thread, or a key; not percent-encoded."""

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        """Return the parts of an address; None if it has another scheme.

        Raises:
            InvalidError: it names nothing, or is too long.
        """
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in KINDS:
            return None
        name = unquote(rest)
        if not name or len(uri) > _LONGEST:
            raise InvalidError("uri", uri[:80], f"give {scheme}:// and a name of up to {_LONGEST} characters in all")
        return cls(scheme, name)

    def __str__(self) -> str:
        return f"{self.kind}://{quote(self.name, safe=':@!$,;')}"
