"""Archives: how the texts of a chain lie in the blob store, and how they are found there again.

An archive is JSON of whole notes, packed with zstd where that is installed. The text that leads to it is kept in each
of the notes. The blob store keeps each content once, with a reference for each archive of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

import orjson
from pydantic import TypeAdapter, ValidationError

from sharedmem.data.blobs import BlobReference, Blobs, annex_of
from sharedmem.durable.archive.frames import compressed, decompressed
from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.models import Note
from sharedmem.telemetry import in_thread

YOUNGEST_S = 3600.0
"""A younger archive may belong to a commit that is just about to refer to it."""

_FORMAT = 1
# Of text, far above any chain of notes: what somebody else has put there must not fill the memory.
_LONGEST_BYTES = 1 << 28
_PACKED, _PLAIN = "json.zst", "json"
_LOCATION = re.compile(r"blob:(?P<path>[^?]+)\?(?P<facts>.+)")
_NOTES = TypeAdapter(tuple[Note, ...])


class Archived(NamedTuple):
    """An archive that was written."""

    location: str
    bytes: int
    """Of it, packed."""


class Loose(NamedTuple):
    """An archive as the blob store knows it, whoever may refer to it."""

    app_id: str
    note_id: str
    """The first note in it."""
    path: str


class Archives:
    """The archives of one namespace.

    Args:
        blobs: where they lie.
        namespace: whose.
    """

    def __init__(self, blobs: Blobs, namespace: str) -> None:
        self._blobs = blobs
        self._annex = annex_of(namespace)

    async def put(self, app_id: str, notes: Sequence[Note]) -> Archived:
        """Store notes, and make sure that they can be read again. Two objects are written, two are read.

        Args:
            app_id: whose.
            notes: at least one.

        Raises:
            UnavailableError: the blob store cannot be used.
        """
        first = notes[0].id
        codec, body = await asyncio.to_thread(_packed, notes)
        reference = await self._blobs.put(self._key(app_id, first), codec.encode(), body)
        facts = {"note": first, "size": reference.size, "codec": codec}
        location = f"blob:{reference.path}?{urlencode(facts)}"
        if await self.get(app_id, location) != {note.id: note for note in notes}:
            await self.remove(app_id, location)
            raise InvalidError("archive", location, "it does not read as it was written; nothing was archived")
        return Archived(location, reference.size)

    async def get(self, app_id: str, location: str) -> dict[str, Note]:
        """The notes of an archive, by id, as they were before they were archived. Two objects are read.

        Raises:
            InvalidError: the location is none, or the archive is damaged.
            NotFoundError: it is not there, or it is not this app's.
            UnavailableError: the blob store cannot be used.
            UnsupportedError: it is packed, and zstd is not installed.
        """
        first, reference = _reference(location)
        body = await self._blobs.get(self._key(app_id, first), reference)
        return await in_thread(_unpacked, body, reference.codec, location)

    async def remove(self, app_id: str, location: str) -> None:
        """Remove an archive, and its content if no other has the same; one that is gone already is fine."""
        first, reference = _reference(location)
        await self._blobs.remove(self._key(app_id, first), reference.path)

    async def loose(self, *, older_than_s: float = YOUNGEST_S) -> AsyncIterator[Loose]:
        """All archives that are there; whether a note still refers to each is the caller's to ask.

        Args:
            older_than_s: younger ones are left out.

        Raises:
            UnavailableError: the blob store cannot be used.
        """
        async for key, path in self._blobs.referrers(self._annex, older_than_s=older_than_s):
            app_id, note_id = orjson.loads(key.partition(":")[2])
            yield Loose(app_id, note_id, path)

    async def drop(self, loose: Loose) -> None:
        """Remove an archive that nobody refers to."""
        await self._blobs.remove(self._key(loose.app_id, loose.note_id), loose.path)

    def _key(self, app_id: str, first: str) -> str:
        return f"{self._annex}:{orjson.dumps([app_id, first]).decode()}"


def path_of(location: str) -> str:
    """The path of an archive, as `Loose` has it."""
    return location.removeprefix("blob:").partition("?")[0]


def _reference(location: str) -> tuple[str, BlobReference]:
    """The first note of an archive, and where it lies."""
    found = _LOCATION.fullmatch(location)
    facts = dict(parse_qsl(found["facts"])) if found else {}
    if found is None or not facts.keys() >= {"note", "size", "codec"} or not facts["size"].isdigit():
        raise InvalidError("archival_location", location, "it leads to no archive of ours")
    path = found["path"]
    sha256 = path.split("/")[-2] if "/" in path else ""
    reference = BlobReference(path=path, size=int(facts["size"]), sha256=sha256, content_type="", codec=facts["codec"])
    return facts["note"], reference


def _packed(notes: Sequence[Note]) -> tuple[str, bytes]:
    told = {"format": _FORMAT, "notes": [note.model_dump(mode="json") for note in notes]}
    text = orjson.dumps(told)
    try:
        return _PACKED, compressed(text)
    except UnsupportedError:
        return _PLAIN, text


def _unpacked(body: bytes, codec: str, location: str) -> dict[str, Note]:
    text = decompressed(body, location, max_bytes=_LONGEST_BYTES) if codec == _PACKED else body
    try:
        told = orjson.loads(text)
        if told["format"] != _FORMAT:
            raise NotFoundError("archive of a known format", location, "a newer sharedmem has written it; upgrade")
        return {note.id: note for note in _NOTES.validate_python(told["notes"])}
    except (KeyError, TypeError, orjson.JSONDecodeError, ValidationError) as error:
        raise InvalidError("archival_location", location, f"what lies there is no archive of notes: {error}") from error
