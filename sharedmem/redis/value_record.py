"""Format of a value in Redis: one readable header line, then the encoded value."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, NamedTuple

from sharedmem.redis.codec import JSON, decode, decode_foreign, decode_json

# The grammar of lua/include/record.lua: what one of them takes for a record, the other must, too.
_HEADER = re.compile(rb"(\d{16}) (\S+)(?: (\d{1,16})?)? ([a-z]+)\n")
_LONGEST_HEADER = 256
FOREIGN = "x"


class StoredValue(NamedTuple):
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

    def value(self, key: str) -> Any:
        """The value, unless it is a blob's.

        Raises:
            CorruptionError: what lies under that key is damaged.
        """
        return decode(self.codec, self.body, key=key) if self.codec else decode_foreign(self.body)


def parse_record(raw: bytes) -> StoredValue:
    """The record of a Redis string."""
    header = _HEADER.match(raw)
    if header is None or header.end() > _LONGEST_HEADER:
        return StoredValue(0, "", b"", 0, raw)
    version, actor, created, codec = header.groups()
    body = raw[header.end() :]
    return StoredValue(int(version), actor.decode(errors="replace"), codec, int(created or version), body)


def decode_json_record(raw: bytes) -> Any:
    """The value of a record whose codec is JSON, the common case, else `NotImplemented`."""
    header = _HEADER.match(raw)
    if header is not None and header[4] == JSON and header.end() <= _LONGEST_HEADER:
        with suppress(ValueError):  # damaged by another client; the careful way says so
            return decode_json(raw[header.end() :])
    return NotImplemented
