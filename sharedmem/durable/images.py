"""Images: how the documents of a key lie in Redis, ready to be put there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sharedmem.durable.texts import from_text, member_from_text
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.wire.keys import SHARED_SCOPE, Target
from sharedmem.wire.replies import Argument, Command
from sharedmem.wire.tier import Imager, Part

_Row = tuple[Argument, ...]


class DataImager:
    """Values, counters, lists, hashes and sets: one Redis key each, under the key's own name."""

    def presence(self, target: Target) -> bytes:
        """The key itself."""
        return target.physical

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[Part]:
        """What the living documents of a key, its head first, are in Redis; nothing for a structure without elements.

        Raises:
            InvalidError: a body is not spelled as `durable.texts` says, or the type is none of these.
        """
        head, *elements = records
        if head.type == "value":
            return [Part(target.physical, "SET", [(_value(head),)])]
        if head.type in {"counter", "text"}:
            return [Part(target.physical, "SET", [(_member(head),)])]
        if head.type == "list":
            return _structure(target, "RPUSH", [(_member(one),) for one in elements])
        if head.type == "hash":
            return _structure(target, "HSET", [(one.element.encode(), _member(one)) for one in elements])
        if head.type == "set":
            return _structure(target, "SADD", [(_member(one),) for one in elements])
        raise InvalidError("type", head.type, "it is value, counter, text, list, hash or set")

    def besides(self, target: Target) -> list[Command]:  # noqa: ARG002  # data lies nowhere else
        """Nothing."""
        return []


class LogImager:
    """Logs of several kinds, told apart by the scope of their keys (`wire.tier.Imager`).

    Args:
        kinds: how those of each scope lie in Redis.
    """

    def __init__(self, kinds: Mapping[str, Imager]) -> None:
        self._kinds = kinds

    def presence(self, target: Target) -> bytes:
        """The Redis key that is there if and only if the log is."""
        return self._of(target).presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[Part]:
        """What the living documents of a log are in Redis."""
        return self._of(target).parts(target, records)

    def besides(self, target: Target) -> list[Command]:
        """What else is to be done when it is back."""
        return self._of(target).besides(target)

    def _of(self, target: Target) -> Imager:
        scope = target.key.split(":", 2)[1]
        if scope not in self._kinds:
            raise InvalidError("key", target.key, f"logs lie under {', '.join(self._kinds)}")
        return self._kinds[scope]


def _value(record: DurableRecord) -> bytes:
    """The record as `data.records` reads it: version, actor, when it was first written if earlier, codec, body."""
    created = f" {record.created}" if 0 < record.created != record.version else ""
    # Who wrote an archive by hand may have named nobody; a header needs a name.
    header = f"{record.version:016d} {record.actor or SHARED_SCOPE}{created} {record.codec}\n"
    return header.encode() + from_text(record.codec.encode(), record.body)


def _member(record: DurableRecord) -> bytes:
    return member_from_text(record.codec, record.body)


def _structure(target: Target, command: str, rows: list[_Row]) -> list[Part]:
    return [Part(target.physical, command, rows)] if rows else []
