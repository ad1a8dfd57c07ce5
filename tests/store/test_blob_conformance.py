"""docs/blobs.md: a folder and Azure Blob Storage hold blobs alike; and what each of them does when it is in trouble."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.azurite_emulator import Azurite, azurite

from sharedmem.blobs.azure import AzureBlobStore
from sharedmem.blobs.folder import FolderBlobStore
from sharedmem.clock import new_id
from sharedmem.testing.blob_suite import BlobSuite

__all__ = ["azurite"]


class TestFolderStore(BlobSuite):
    @pytest.fixture
    async def blob_store(self, tmp_path: Path) -> AsyncIterator[FolderBlobStore]:
        store = FolderBlobStore(tmp_path / "blobs")
        yield store
        await store.close()


class TestAzureBlobStore(BlobSuite):
    @pytest.fixture
    async def blob_store(self, azurite: Azurite) -> AsyncIterator[AzureBlobStore]:
        store = AzureBlobStore(f"{azurite.url}/c{new_id()}", key=azurite.key, folder="data")
        yield store
        await store.close()
