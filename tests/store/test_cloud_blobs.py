"""docs/blobs.md: large values and archived notes in S3 and Google Cloud Storage, and what is said when that fails."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.gcs_emulator import GcsEmulator, gcs
from support.moto_s3 import KEY, SECRET, MotoS3, moto_s3, moto_server
from support.note_chains import APP, make_chain_note
from support.note_harness import NoteHarness

from sharedmem import AccessDeniedError, ConfigError, Settings, UnavailableError, UnsupportedError
from sharedmem.blobs.cloud import CloudBlobStore, S3Service, open_bucket
from sharedmem.testing import ManualClock, fake_hub

__all__ = ["gcs", "moto_s3", "moto_server"]

BODY = b"x" * 100_000
TEXT = "long text " * 50_000


@asynccontextmanager
async def bucket(url: str, folder: str = "data") -> AsyncIterator[CloudBlobStore]:
    store = open_bucket(url, folder=folder)
    try:
        yield store
    finally:
        await store.close()


async def names(store: CloudBlobStore, prefix: str = "n/") -> list[str]:
    return [name async for name, _ in store.list(prefix)]


@pytest.fixture(params=["s3", "gs"])
def url(request: pytest.FixtureRequest) -> str:
    """A bucket of each service."""
    service: MotoS3 | GcsEmulator = request.getfixturevalue("moto_s3" if request.param == "s3" else "gcs")
    return f"{request.param}://{service.make_bucket()}"


# -- as users have it -----------------------------------------------------------------------------


async def test_a_large_value_lies_in_the_bucket_and_goes_with_its_key(url: str) -> None:
    async with fake_hub(settings=Settings(blob_url=url)) as hub, bucket(url, "") as all_of_it:
        store = hub.store("charts", actor="ada")

        await store.write("corpus", TEXT)

        assert await hub.store("charts", actor="bob").read("charts:ada:corpus") == TEXT
        await store.delete("corpus")
        assert await names(all_of_it, "") == []


async def test_archived_notes_lie_in_the_bucket_are_found_there_and_come_back(url: str) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=Settings(embedder="hashing", blob_url=url)) as hub:
        harness = NoteHarness(hub.store("team"), clock)
        await harness.put(make_chain_note("gauge", says="## Summary\nThe tide gauge of Skarn was replaced."))
        harness.pass_years(11)

        assert (await harness.archiver.archive(APP)).archived == ("gauge",)

        assert await harness.archived() == 1
        (hit,) = await harness.store.synthesis.query_memory(app_id=APP, query="tide gauge", archived=True)
        assert (hit.archived, "Skarn" in hit.memory_note) == (True, True)
        assert (await harness.archiver.unarchive(APP, "gauge")).status == "active"
        assert await harness.archived() == 0


async def test_data_sets_and_paths_share_a_bucket_without_seeing_each_other(url: str) -> None:
    async with bucket(url, "one") as one, bucket(url, "other") as other, bucket(f"{url}/one/deep/", "one") as deep:
        for store in (one, other, deep):
            await store.put("n/a", repr(store).encode())

        for store in (one, other, deep):
            assert await store.get("n/a") == repr(store).encode()
            assert await names(store) == ["n/a"]


async def test_a_bucket_of_many_objects_is_listed_whole(url: str) -> None:
    async with bucket(url) as store:
        await asyncio.gather(*(store.put(f"n/{number}", b"") for number in range(10)))

        assert sorted(await names(store)) == [f"n/{number}" for number in range(10)]


async def test_google_cloud_storage_keeps_bytes_that_look_like_the_end_of_a_part(gcs: GcsEmulator) -> None:
    async with bucket(f"gs://{gcs.make_bucket()}") as store:
        for body in (b"a\n--==0==--\nb", b"\n--==0==" * 200_000, BODY * 20):
            await store.put("n/a", body)

            assert await store.get("n/a") == body


# -- when it fails --------------------------------------------------------------------------------


async def test_a_bucket_that_does_not_exist_is_told_by_writes_and_is_empty_for_reads(url: str) -> None:
    missing = url.replace("bucket-", "nowhere-")
    async with bucket(missing) as store:
        assert (await store.get("n/a"), await store.mark("n/a"), await names(store)) == (None, None, [])
        await store.delete("n/a")

        with pytest.raises(UnavailableError, match=rf"{missing}.* the bucket does not exist; create it, or correct"):
            await store.put("n/a", BODY)


async def test_a_service_that_ignores_conditions_is_refused_before_anything_is_stored(moto_s3: MotoS3) -> None:
    class Careless(S3Service):
        async def delete(self, files: Any, path: str, mark: str) -> None:  # noqa: ARG002  # that is the fault
            await files._rm_file(path)

    url = f"s3://{moto_s3.make_bucket()}"
    store = CloudBlobStore(url, Careless(), folder="data")

    with pytest.raises(UnsupportedError, match="use one whose DeleteObject honours If-Match, such as Amazon S3"):
        await store.put("n/a", BODY)

    assert await names(store, "") == []
    await store.close()


async def test_a_service_without_credentials_says_where_they_come_from(
    moto_s3: MotoS3, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp("aws") / "none"))

    async with bucket(f"s3://{moto_s3.make_bucket()}") as store:
        with pytest.raises(AccessDeniedError, match=r"S3 s3://bucket-.* refuses the log-in; give AWS_ACCESS_KEY_ID"):
            await store.put("n/a", BODY)


@asynccontextmanager
async def forbidding() -> AsyncIterator[str]:
    """The endpoint of a service that forbids everything."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _all_calls(store: CloudBlobStore) -> list[Callable[[], Any]]:
    return [
        lambda: store.put("n/a", b""),
        lambda: store.get("n/a"),
        lambda: store.mark("n/a"),
        lambda: store.delete("n/a"),
        lambda: store.delete("n/a", mark="1"),
        lambda: names(store),
    ]


async def test_a_log_in_without_rights_is_told_by_every_call(moto_s3: MotoS3, monkeypatch: pytest.MonkeyPatch) -> None:
    async with forbidding() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        async with bucket("s3://private") as store:
            for call in _all_calls(store):
                with pytest.raises(
                    AccessDeniedError,
                    match=r"'S3 log-in' may not .* 'private'.* refuses the log-in; give AWS_ACCESS_KEY_ID",
                ):
                    await call()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_google_is_told_by_every_call(gcs: GcsEmulator, status: int) -> None:
    gcs.refuse(status)
    async with bucket("gs://private") as store:
        for call in _all_calls(store):
            with pytest.raises(AccessDeniedError, match="refuses the log-in; give GOOGLE_APPLICATION_CREDENTIALS"):
                await call()


async def test_a_service_that_is_away_is_told(
    moto_s3: MotoS3, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    async with bucket("s3://away") as store:
        with pytest.raises(UnavailableError, match=r"S3 s3://away: it cannot be reached \(.*\); check blob_url"):
            await store.get("n/a")


async def test_a_mistake_is_not_told_as_an_outage(moto_s3: MotoS3) -> None:
    class Mistaken(S3Service):
        async def get(self, files: Any, path: str) -> bytes:
            raise TypeError(f"{files} has no {path}")

    store = CloudBlobStore(f"s3://{moto_s3.make_bucket()}", Mistaken(), folder="data")

    with pytest.raises(TypeError):
        await store.get("n/a")
    await store.close()


async def test_no_secret_is_shown(moto_s3: MotoS3, caplog: pytest.LogCaptureFixture) -> None:
    async with bucket(f"s3://{moto_s3.make_bucket()}") as store, bucket("s3://nowhere") as other:
        with caplog.at_level(logging.INFO):
            await store.put("n/a", BODY)
            with pytest.raises(UnavailableError) as told:
                await other.put("n/a", BODY)

        shown = f"{store!r} {store.place} {told.value} {told.value.__cause__} {caplog.text}"
        assert SECRET not in shown
        assert KEY not in shown


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("s3://charts", "s3fs", "s3"), ("gs://charts", "gcsfs.core", "gcs")],
)
async def test_a_missing_extra_is_named(url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    async with bucket(url) as store:
        for call in _all_calls(store):
            with pytest.raises(UnsupportedError, match=rf"pip install 'sharedmem-hub\[{extra}\]'"):
                await call()


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://a",
        "s3://Charts",
        "s3:charts",
        "s3://charts//deep",
        "s3://charts/a b",
        "s3://charts#x",
        "gs://-charts",
        "gcs://charts",
        "azure://account.blob.core.windows.net",
        "charts",
    ],
)
def test_what_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"'blob_url'.*core.windows.net/container, s3://bucket or gs://bucket"):
        Settings(blob_url=url)


@pytest.mark.parametrize("url", [f"s3://{KEY}:{SECRET}@charts", f"gs://charts?key={SECRET}"])
def test_credentials_in_the_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="no credentials; give an Azure key as blob_key, others as AWS") as told:
        Settings(blob_url=url)

    assert SECRET not in str(told.value)


async def test_the_key_of_an_azure_account_does_not_go_with_a_bucket() -> None:
    with pytest.raises(ConfigError, match=r"'blob_key'.* it is the key of an Azure account; leave it out") as told:
        async with fake_hub(settings=Settings.model_validate({"blob_url": "s3://charts", "blob_key": SECRET})):
            pass

    assert SECRET not in str(told.value)
