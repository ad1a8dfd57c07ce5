"""Options of the MCP face: profiles of tools, writing, the size of answers, sessions, hosts and origins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from sharedmem.errors import InvalidError

Profile = Literal["memory", "coordination", "graph", "notes", "context", "reference-memory"]
"""A group of tools."""
PROFILES: tuple[Profile, ...] = get_args(Profile)
USUAL_PROFILES: tuple[Profile, ...] = ("memory", "coordination", "graph", "notes")
"""Together fewer than twenty tools: models choose worse among more."""
_LEAST_TOKENS = 200
_MIB = 1024 * 1024


@dataclass(frozen=True)
class McpOptions:
    """What may be chosen.

    Args:
        tools: the profiles whose tools are offered.
        write: whether tools that change something are offered too.
        max_tokens: most tokens of an answer; what does not fit is on the next page.
        sessions: whether clients of the protocol up to 2025-11-25 get a session, which lives in this process. Without
            sessions any process behind a port answers any request, but these clients get no notifications.
        max_body_bytes: longer requests are refused with 413.
        body_patience_s: seconds within which a request has to be here, or it is refused with 408.
        max_depth: arrays and objects inside of each other; deeper arguments are refused.
        longest_wait_s: seconds for which a call may wait for a task; longer wishes are cut.
        idempotency_ttl_s: seconds for which the answer to an idempotency key is kept.
        idempotency_lease_s: seconds after which a retry may run the call again if the server was killed in it.
        stream_check_s: seconds after which the token of an open stream is looked at again.
        hosts: further values of the `Host` header, as `memory.example.org` or `memory.example.org:*`.
        origins: pages that browsers may let in (`https://app.example.org`); those of this machine always may.
        public_url: address of the MCP endpoint as clients see it; by default that of the request.
    """

    tools: tuple[Profile, ...] = USUAL_PROFILES
    write: bool = False
    max_tokens: int = 6000
    sessions: bool = True
    max_body_bytes: int = 4 * _MIB
    body_patience_s: float = 20.0
    max_depth: int = 64
    longest_wait_s: float = 25.0
    idempotency_ttl_s: float = 86_400.0
    idempotency_lease_s: float = 30.0
    stream_check_s: float = 5.0
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    public_url: str = ""

    def __post_init__(self) -> None:
        check_profiles(self.tools)
        if self.max_tokens < _LEAST_TOKENS:
            raise InvalidError("max_tokens", self.max_tokens, f"give {_LEAST_TOKENS} or more")
        for name in (
            "max_body_bytes",
            "body_patience_s",
            "max_depth",
            "idempotency_ttl_s",
            "idempotency_lease_s",
            "stream_check_s",
        ):
            if not getattr(self, name) > 0:
                raise InvalidError(name, getattr(self, name), "give more than 0")


def check_profiles(names: Iterable[str]) -> tuple[Profile, ...]:
    """Return the names of profiles, each once.

    Raises:
        InvalidError: no name is given, or no profile has this name.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names))
    unknown = next((name for name in found if name not in PROFILES), None)
    if unknown is not None or not found:
        raise InvalidError("tools", unknown or "", f"give one or more of {', '.join(PROFILES)}")
    return cast("tuple[Profile, ...]", found)
