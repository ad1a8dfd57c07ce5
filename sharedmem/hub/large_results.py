"""Large results of work that was done once: they lie in the blob store, beside the large values."""

from __future__ import annotations

from pydantic import ValidationError

from sharedmem.data.blobs import BlobReference, Blobs
from sharedmem.data.sweeping import Sweeper
from sharedmem.errors import NotFoundError


class LargeResults:
    """Writes and reads them; a sweep removes those that have expired.

    Args:
        blobs: where they lie.
        sweeper: told of the namespaces that have some.
    """

    def __init__(self, blobs: Blobs, sweeper: Sweeper) -> None:
        self._blobs = blobs
        self._sweeper = sweeper

    async def read(self, key: str, reference: str) -> bytes:
        """The bytes behind a reference; raises as `Blobs.get`."""
        try:
            found = BlobReference.model_validate_json(reference)
        except ValidationError:
            raise NotFoundError("blob of key", key, "its reference was damaged by another client") from None
        return await self._blobs.get(key, found)

    async def write(self, key: str, codec: bytes, body: bytes) -> str:
        """Store bytes; returns the reference to them; raises as `Blobs.put`."""
        reference = await self._blobs.put(key, codec, body)
        self._sweeper.watch(key.partition(":")[0])
        return reference.model_dump_json()
