"""Patience: connections that do not get to the point are closed.

uvicorn waits for as long as it takes until the head of a request is complete. A few hundred callers that send a byte
a minute would hold its connections for ever, or a head without an end all its memory. Likewise it waits for ever for
readers that take nothing of their answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_WITHIN_S = 15.0
READ_WITHIN_S = 60.0
MOST_HEAD_BYTES = 256 * 1024

# Whichever of its two parsers is installed.
_Protocol: Any = AutoHTTPProtocol


class PatientProtocol(_Protocol):  # type: ignore[misc]  # which class it is depends on what is installed
    """One connection, whose heads of requests have to be here, and whose answers have to be read, in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._head: asyncio.TimerHandle | None = self.loop.call_later(HEAD_WITHIN_S, transport.close)
        self._head_bytes = 0
        self._unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The reader takes less than it is sent: hang up, unless it goes on in time."""
        super().pause_writing()
        # Closing would wait for the reader too.
        self._unread = self._unread or self.loop.call_later(READ_WITHIN_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader has taken what it was sent."""
        self._read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Go on waiting while a head is not complete."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is before and (before is None or before.response_complete):
            self._head = self._head or self.loop.call_later(HEAD_WITHIN_S, self.transport.close)
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.transport.close()
        else:
            self._head_bytes = 0
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._wait_no_more()
        self._read()
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait_no_more(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
