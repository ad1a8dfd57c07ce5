"""Key/value records as they lie in Redis: one readable header line, then the coded value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from sharedmem.wire.codec import decode, decode_foreign, decode_json

_VERSION_DIGITS = 16
_JSON_HEADER = b" json"
FOREIGN = "x"


class Stored(NamedTuple):
    """A record taken apart; a string that another client has set has version 0 and no actor."""

    version: int
    actor: str
    codec: bytes
    created: int
    body: bytes

    @property
    def expectation(self) -> str:
        """What a conditional write that builds on this record has to find."""
        return str(self.version) if self.version else FOREIGN

    def value(self) -> Any:
        """The value, unless it is a blob's."""
        return decode(self.codec, self.body) if self.codec else decode_foreign(self.body)


def take_apart(raw: bytes) -> Stored:
    """The record of a Redis string."""
    header, separator, body = raw.partition(b"\n")
    words = header.split(b" ")
    version = words[0]
    if not separator or len(words) < 3 or len(version) != _VERSION_DIGITS or not version.isdigit():
        return Stored(0, "", b"", 0, raw)
    created = int(words[2]) if len(words) > 3 and words[2].isdigit() else int(version)
    return Stored(int(version), words[1].decode(errors="replace"), words[-1], created, body)


def value_of(raw: bytes) -> Any:
    """The value of a record whose codec is JSON, the common case, else `NotImplemented`."""
    header, _, body = raw.partition(b"\n")
    if header.endswith(_JSON_HEADER) and header[:_VERSION_DIGITS].isdigit():
        with suppress(ValueError):  # damaged by another client; the careful way says so
            return decode_json(body)
    return NotImplemented
