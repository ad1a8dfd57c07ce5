"""docs/blobs.md: a folder and Azure Blob Storage hold blobs alike; and what each of them does when it is in trouble."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.azurite_emulator import Azurite, azurite
from support.gcs_emulator import GcsEmulator, gcs
from support.moto_s3 import MotoS3, moto_s3, moto_server

from sharedmem.blobs.azure import AzureBlobStore
from sharedmem.blobs.cloud import CloudBlobStore, GcsService, S3Service
from sharedmem.blobs.folder import FolderBlobStore
from sharedmem.clock import new_id
from sharedmem.testing.blob_suite import BlobSuite

__all__ = ["azurite", "gcs", "moto_s3", "moto_server"]


class TestFolderStore(BlobSuite):
    @pytest.fixture
    async def blob_store(self, tmp_path: Path) -> AsyncIterator[FolderBlobStore]:
        store = FolderBlobStore(tmp_path / "blobs")
        yield store
        await store.close()


@pytest.mark.nightly
class TestAzureBlobStore(BlobSuite):
    @pytest.fixture
    async def blob_store(self, azurite: Azurite) -> AsyncIterator[AzureBlobStore]:
        store = AzureBlobStore(f"{azurite.url}/c{new_id()}", key=azurite.key, folder="data")
        yield store
        await store.close()


class TestS3BlobStore(BlobSuite):
    @pytest.fixture
    async def blob_store(self, moto_s3: MotoS3) -> AsyncIterator[CloudBlobStore]:
        store = CloudBlobStore(f"s3://{moto_s3.make_bucket()}", S3Service(), folder="data")
        yield store
        await store.close()


@pytest.mark.nightly
class TestGcsBlobStore(BlobSuite):
    @pytest.fixture
    async def blob_store(self, gcs: GcsEmulator) -> AsyncIterator[CloudBlobStore]:
        store = CloudBlobStore(f"gs://{gcs.make_bucket()}", GcsService(), folder="data")
        yield store
        await store.close()
