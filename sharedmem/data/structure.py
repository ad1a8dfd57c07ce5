"""What every shared structure stands on: the line, the mutations, the rights, the lifetimes."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.data.blobs import FileBlobs
from sharedmem.data.lifetimes import Lifetimes
from sharedmem.data.sweeping import Sweeper
from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.tasks import Background
from sharedmem.telemetry import Counters
from sharedmem.wire.access import Scope
from sharedmem.wire.changes import text_of
from sharedmem.wire.faults import explain
from sharedmem.wire.keys import Target
from sharedmem.wire.line import Line
from sharedmem.wire.listen import Listener
from sharedmem.wire.mutations import Mutations
from sharedmem.wire.replies import ServerError

T = TypeVar("T")
_LONGEST_INTEGER = (1 << 63) - 1


@dataclass(frozen=True)
class Means:
    """What a hub lends to each of its stores."""

    line: Line
    mutations: Mutations
    listener: Listener
    blobs: FileBlobs
    sweeper: Sweeper
    lifetimes: Lifetimes
    background: Background
    counters: Counters
    settings: Settings
    clock: Clock


class Structure:
    """One kind of shared data, seen with the rights of one actor.

    Args:
        means: what the hub lends.
        scope: hands out keys within the actor's rights.
    """

    def __init__(self, means: Means, scope: Scope) -> None:
        self._means = means
        self._line = means.line
        self._mutations = means.mutations
        self._lifetimes = means.lifetimes
        self._scope = scope
        self._actor = scope.signature

    async def _explained(self, target: Target, wanted: str, call: Awaitable[T]) -> T:
        """The call's result; what the server refuses is explained with the key and the type it holds.

        Raises:
            WrongTypeError: the key holds something else than `wanted`.
            InvalidError: what it holds cannot be counted.
        """
        try:
            return await call
        except ServerError as error:
            raise await self._explanation(error, target, wanted) from error

    async def _explanation(self, error: ServerError, target: Target, wanted: str) -> SharedMemoryError:
        held = text_of(await self._line.call("TYPE", target.physical))
        return explain(error, self._line.address, key=target.key, held=held, wanted=wanted)


def check_whole(field: str, value: object) -> int:
    """A whole number of 64 bits.

    Raises:
        InvalidError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(field, value, "give a whole number")
    if abs(value) > _LONGEST_INTEGER:
        raise InvalidError(field, value, "keep it within 64 bits")
    return value


def check_member(field: str, member: bytes, most: int) -> bytes:
    """A coded member of a list, hash or set, small enough to lie in Redis.

    Raises:
        InvalidError: it is larger than the blob threshold.
    """
    if len(member) > most:
        advice = f"it takes {len(member)} bytes, members may take {most}; write() it under a key and put the key here"
        raise InvalidError(field, "...", advice)
    return member
