"""What a Redis server can answer, and the two ways in which it does not.

These exceptions stay inside the house: `wire.faults` turns them into the errors that users see.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Argument: TypeAlias = bytes | str | int
Command: TypeAlias = tuple[Argument, ...]
Reply: TypeAlias = "bytes | int | list[Reply] | ServerError | None"


class ServerError(Exception):
    """The server refused a command: nothing of it has happened, and the connection is well.

    Args:
        text: the server's words, of which the first is the code.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0].partition(":")[0].rstrip(",")


class LostError(Exception):
    """The connection was lost, or could not be had: the command may or may not have happened."""


class Load(NamedTuple):
    """How busy a transport is."""

    open: int
    """Connections."""
    waiting: int
    """Calls whose answers have not come yet."""


def raise_if_error(reply: Reply) -> Reply:
    """The reply, unless it is an error.

    Raises:
        ServerError: it is one.
    """
    if isinstance(reply, ServerError):
        raise reply
    return reply
