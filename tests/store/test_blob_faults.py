"""docs/blobs.md: what a store of blobs does when the disk, the network or the log-in fails it."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.azurite_emulator import Azurite, azurite

from sharedmem import AccessDeniedError, ConfigError, NotFoundError, UnavailableError, UnsupportedError
from sharedmem.blobs.azure import AzureBlobStore
from sharedmem.blobs.blobs import Blobs
from sharedmem.blobs.folder import FolderBlobStore
from sharedmem.clock import new_id

__all__ = ["azurite"]

BODY = b"x" * 100_000
NOBODY = 65534
A_KEY = "c2VjcmV0" * 10


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


def content_in(folder: Path) -> Path:
    (content,) = folder.rglob("content")
    return content


def set_mode(folder: Path, mode: int) -> None:
    folder.chmod(mode)


# -- the folder -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """A folder whose permissions hold for the test as well, also when root runs it."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sm-") as base:
        Path(base).chmod(0o777)
        as_root = os.geteuid() == 0
        if as_root:
            os.seteuid(NOBODY)
        try:
            (Path(base) / "blobs").mkdir()
            yield Path(base) / "blobs"
        finally:
            if as_root:
                os.seteuid(0)


async def test_a_full_disk_is_told_and_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await Blobs(FolderBlobStore(folder)).put("n:a:before", b"json", BODY)
    before = sorted(files(folder))
    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(UnavailableError, match=r"blob folder .*: No space left on device; free space"):
        await Blobs(FolderBlobStore(folder)).put("n:a:x", b"json", BODY)

    assert sorted(files(folder)) == before


async def test_a_disk_that_fills_up_between_reference_and_content_leaves_no_reference(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = os.fsync, []

    def filling(file: int) -> None:
        written.append(os.fstat(file).st_size)
        if len(BODY) in written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    monkeypatch.setattr(os, "fsync", filling)

    with pytest.raises(UnavailableError, match="No space left"):
        await Blobs(FolderBlobStore(folder)).put("n:a:x", b"json", BODY)

    assert files(folder) == []


async def test_a_folder_that_may_not_be_written_is_reported(folder_of_nobody: Path) -> None:
    set_mode(folder_of_nobody, 0o500)

    with pytest.raises(UnavailableError, match=r"Permission denied; free space, correct its permissions"):
        await Blobs(FolderBlobStore(folder_of_nobody)).put("n:a:x", b"json", BODY)


async def test_a_content_stays_where_it_cannot_be_seen_who_refers_to_it(folder_of_nobody: Path) -> None:
    blobs = Blobs(FolderBlobStore(folder_of_nobody))
    ada, bob = await blobs.put("n:ada:x", b"json", BODY), await blobs.put("n:bob:x", b"json", BODY)
    shared = content_in(folder_of_nobody).parent
    set_mode(shared, 0o300)

    await blobs.remove("n:ada:x", ada.path)

    set_mode(shared, 0o700)
    assert await blobs.get("n:bob:x", bob) == BODY


async def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")

    with pytest.raises(UnavailableError, match=r"Not a directory|File exists"):
        await Blobs(FolderBlobStore(tmp_path / "blobs")).put("n:a:x", b"json", BODY)


async def test_a_lock_that_is_never_given_back_ends_the_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharedmem.blobs.folder._PATIENCE_S", 0.05)
    store = FolderBlobStore(folder)
    await store.put("n/a", BODY)

    with store._locked(), pytest.raises(UnavailableError, match="another process has held its lock"):
        await store.put("n/b", BODY)

    await store.put("n/b", BODY)


async def test_a_write_that_a_crash_broke_off_is_collected(folder: Path) -> None:
    blobs = Blobs(FolderBlobStore(folder))
    reference = await blobs.put("n:a:x", b"json", BODY)
    left = folder / reference.path.partition("/")[0] / ".0123456789ab"
    left.write_bytes(BODY[:10])

    assert await blobs.collect("n", older_than_s=3600) == 0
    assert await blobs.collect("n", older_than_s=-60) == 1
    assert left.name not in files(folder)
    assert await blobs.get("n:a:x", reference) == BODY


async def test_a_content_that_was_changed_or_cut_or_lost_on_disk_is_told(folder: Path) -> None:
    blobs = Blobs(FolderBlobStore(folder))
    reference = await blobs.put("n:a:x", b"json", BODY)
    content = content_in(folder)

    for damaged in (BODY[:-1], b"y" + BODY[1:], b""):
        content.write_bytes(damaged)
        with pytest.raises(NotFoundError, match="intact blob of key 'n:a:x' does not exist; its content was changed"):
            await blobs.get("n:a:x", reference)
    content.unlink()
    with pytest.raises(NotFoundError, match=r"blob of key 'n:a:x' does not exist; it is not in blob folder "):
        await blobs.get("n:a:x", reference)


async def test_what_cannot_be_removed_now_is_left_to_a_sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs(FolderBlobStore(folder))
    reference = await blobs.put("n:a:x", b"json", BODY)

    with monkeypatch.context() as broken:
        broken.setattr("sharedmem.blobs.folder._PATIENCE_S", 0.05)
        with FolderBlobStore(folder)._locked():
            await blobs.remove("n:a:x", reference.path)

    assert [path async for _, path in blobs.referrers("n", older_than_s=-60)] == [reference.path]


# -- Azure Blob Storage ---------------------------------------------------------------------------


@asynccontextmanager
async def answering(status: str, *headers: str) -> AsyncIterator[str]:
    """A server that gives every request this answer; the url is that of a container."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        lines = [f"HTTP/1.1 {status}", "Content-Length: 0", "Connection: close", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"azure+http://127.0.0.1:{server.sockets[0].getsockname()[1]}/account/container"


@asynccontextmanager
async def azure_store(url: str, key: str = A_KEY, *, tries_again: int = 0) -> AsyncIterator[AzureBlobStore]:
    store = AzureBlobStore(url, key=key, folder="data", tries_again=tries_again)
    try:
        yield store
    finally:
        await store.close()


async def test_a_store_that_is_away_is_told(unused_tcp_port: int) -> None:
    async with azure_store(f"azure+http://127.0.0.1:{unused_tcp_port}/account/container") as store:
        for asked in (store.put("n/a", BODY), store.get("n/a"), store.mark("n/a"), store.delete("n/a")):
            with pytest.raises(UnavailableError, match=r"Azure Blob Storage .* cannot be reached; check blob_url"):
                await asked
        with pytest.raises(UnavailableError, match="cannot be reached"):
            assert [found async for found in store.list("n/")]


async def test_a_busy_store_says_when_to_try_again() -> None:
    async with (
        answering("503 Server Busy", "x-ms-error-code: ServerBusy", "Retry-After: 7") as url,
        azure_store(url) as store,
    ):
        with pytest.raises(UnavailableError, match="replies 503 ServerBusy; try again later") as told:
            await store.put("n/a", BODY)

    assert told.value.retry_after == 7


async def test_a_log_in_without_the_right_is_told() -> None:
    async with (
        answering("403 Forbidden", "x-ms-error-code: AuthorizationPermissionMismatch") as url,
        azure_store(url) as store,
    ):
        with pytest.raises(AccessDeniedError, match="says AuthorizationPermissionMismatch; check blob_key"):
            await store.put("n/a", BODY)


async def test_a_key_that_the_account_refuses_is_named() -> None:
    async with (
        answering("403 Forbidden", "x-ms-error-code: AuthenticationFailed") as url,
        azure_store(url) as store,
    ):
        with pytest.raises(ConfigError, match=r"'blob_key'.* rejects it \(AuthenticationFailed\)"):
            await store.put("n/a", BODY)


async def test_a_wrong_key_is_told_and_not_shown(azurite: Azurite) -> None:
    async with azure_store(f"{azurite.url}/c{new_id()}") as store:
        # Azure itself answers AuthenticationFailed, which is tested above.
        with pytest.raises(AccessDeniedError, match="says AuthorizationFailure; check blob_key") as told:
            await store.put("n/a", BODY)

        assert A_KEY not in f"{store!r} {store.place} {told.value} {told.value.__cause__}"


async def test_a_container_that_is_missing_is_made_by_the_first_write(azurite: Azurite) -> None:
    url = f"{azurite.url}/c{new_id()}"
    async with azure_store(url, azurite.key) as store, azure_store(url, azurite.key) as other:
        assert await store.get("n/a") is None
        assert [found async for found in store.list("n/")] == []

        await asyncio.gather(store.put("n/a", BODY), other.put("n/b", BODY))

        assert (await other.get("n/a"), await store.get("n/b")) == (BODY, BODY)


async def test_data_sets_share_a_container_without_seeing_each_other(azurite: Azurite) -> None:
    url = f"{azurite.url}/c{new_id()}"
    one, other = (AzureBlobStore(url, key=azurite.key, folder=folder) for folder in ("one", "other"))
    await one.put("n/a", BODY)

    assert await other.get("n/a") is None
    assert [name async for name, _ in one.list("n/")] == ["n/a"]
    assert [found async for found in other.list("n/")] == []
    await one.close()
    await other.close()


async def test_a_reply_that_is_lost_is_asked_for_again(azurite: Azurite) -> None:
    async with (
        cutting(azurite.url, cuts=2) as url,
        azure_store(f"{url}/c{new_id()}", azurite.key, tries_again=3) as one,
    ):
        await one.put("n/a", BODY)

        assert await one.get("n/a") == BODY


@asynccontextmanager
async def cutting(url: str, cuts: int) -> AsyncIterator[str]:
    """In front of the emulator, a proxy that cuts the first connections when their replies come."""
    host, _, port_and_path = url.removeprefix("azure+http://").partition(":")
    port, _, account = port_and_path.partition("/")
    left = iter(range(cuts))

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))

        async def bring(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, replies: bool) -> None:
            while data := await source.read(65_536):
                if replies and next(left, None) is not None:
                    break
                sink.write(data)
                await sink.drain()
            sink.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(bring(reader, there[1], replies=False))
            group.create_task(bring(there[0], writer, replies=True))

    server = await asyncio.start_server(carry, host, 0)
    async with server:
        yield f"azure+http://{host}:{server.sockets[0].getsockname()[1]}/{account}"


@pytest.mark.parametrize(
    "url",
    [
        "azure://account.blob.core.windows.net",
        "azure://account.blob.core.windows.net/a/b",
        "azure+http://127.0.0.1:10000/container",
        "azure+http://127.0.0.1:10000/account/container/more",
    ],
)
def test_a_url_without_one_container_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"'blob_url'.* names no container; give azure"):
        AzureBlobStore(url, key=A_KEY, folder="data")


def test_what_is_no_key_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="it is not an account key, which is base64 text") as told:
        AzureBlobStore("azure://a.blob.core.windows.net/c", key="geheim!", folder="data")

    assert "geheim" not in str(told.value)


def test_an_emulator_needs_its_key() -> None:
    with pytest.raises(ConfigError, match=r"'blob_key'.* an emulator needs its key"):
        AzureBlobStore("azure+http://127.0.0.1:1/account/container", folder="data")


@pytest.mark.parametrize("module", ["azure.storage.blob.aio", "azure.identity.aio"])
async def test_without_the_extra_it_is_said_what_to_install(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    async with azure_store("azure+http://127.0.0.1:1/account/container") as store:
        for asked in (store.get("n/a"), store.delete("n/a"), store.put("n/a", BODY)):
            with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[azure-blobs\]'"):
                await asked
