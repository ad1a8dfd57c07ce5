"""Objects that belong to one process: they hold a connection, which no copy of them could use."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from sharedmem.errors import NotPicklableError


class ProcessBound:
    """What a hub gives out; refuses `pickle` and `copy`, and with them arguments and results of process pools."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklableError(type(self).__name__)
