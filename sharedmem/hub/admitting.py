"""What faces that let callers in need of an open hub: the place where their tokens are kept."""

from __future__ import annotations

from sharedmem.hub.hub import Hub
from sharedmem.wire.credentials import Credentials


def credentials_of(hub: Hub) -> Credentials:
    """The tokens of a hub's server. No round trip.

    Args:
        hub: an open one, whose Redis user may reach more than one namespace.

    Raises:
        UsageError: the hub is not open.
    """
    parts = hub._open_parts()  # noqa: SLF001  the same package
    return Credentials(parts.means.line, parts.ground.sender, parts.keyspace)
