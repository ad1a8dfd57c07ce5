"""Conformance tests of stores of blobs (`data.blobs.BlobStore`); a test class inherits them.

    class TestMyBlobs(BlobSuite):
        @pytest.fixture
        async def blob_store(self, tmp_path):
            store = FolderStore(tmp_path)
            yield store
            await store.close()

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`.
"""

from __future__ import annotations

import asyncio

from sharedmem.blobs.blobs import BlobReference, Blobs, BlobStore
from sharedmem.clock import new_id
from sharedmem.errors import NotFoundError
from sharedmem.testing.pytest_required import pytest

_BODY = bytes(range(256)) * 8
_LARGE_BYTES = 9_000_000
_WRITERS = 12
_ROUNDS = 3
_JUST_NOW_S = 60.0


async def _names(store: BlobStore, prefix: str) -> set[str]:
    return {name async for name, _ in store.list(prefix)}


class _StoreTests:
    """Tests of named objects."""

    @pytest.fixture
    def shelf(self) -> str:
        """A prefix for the names of this test alone."""
        return f"suite-{new_id(8)}"

    async def test_an_object_is_read_as_it_was_put(self, blob_store: BlobStore, shelf: str) -> None:
        for number, body in enumerate((b"", b"\x00", _BODY, _BODY * (_LARGE_BYTES // len(_BODY)))):
            await blob_store.put(f"{shelf}/{number}", body)

            assert await blob_store.get(f"{shelf}/{number}") == body

    async def test_an_object_that_was_never_put_is_not_there(self, blob_store: BlobStore, shelf: str) -> None:
        assert await blob_store.get(f"{shelf}/a") is None
        assert await blob_store.mark(f"{shelf}/a") is None
        assert await _names(blob_store, f"{shelf}/") == set()
        await blob_store.delete(f"{shelf}/a")
        await blob_store.delete(f"{shelf}/a", mark="of old")

    async def test_an_object_is_replaced_whole(self, blob_store: BlobStore, shelf: str) -> None:
        await blob_store.put(f"{shelf}/a", _BODY)

        await blob_store.put(f"{shelf}/a", b"short")

        assert await blob_store.get(f"{shelf}/a") == b"short"
        assert await _names(blob_store, f"{shelf}/") == {f"{shelf}/a"}

    async def test_each_put_gives_another_mark_also_for_the_same_bytes(self, blob_store: BlobStore, shelf: str) -> None:
        marks = set()
        for _ in range(20):
            await blob_store.put(f"{shelf}/a", _BODY)
            marks.add(await blob_store.mark(f"{shelf}/a"))

        assert len(marks - {None}) == 20
        assert await blob_store.mark(f"{shelf}/a") == await blob_store.mark(f"{shelf}/a")

    async def test_an_object_is_deleted_under_its_mark_only(self, blob_store: BlobStore, shelf: str) -> None:
        await blob_store.put(f"{shelf}/a", _BODY)
        before = await blob_store.mark(f"{shelf}/a")
        await blob_store.put(f"{shelf}/a", _BODY)

        await blob_store.delete(f"{shelf}/a", mark=before)
        assert await blob_store.get(f"{shelf}/a") == _BODY

        await blob_store.delete(f"{shelf}/a", mark=await blob_store.mark(f"{shelf}/a"))
        assert await blob_store.get(f"{shelf}/a") is None

    async def test_a_list_has_whole_parts_and_ages(self, blob_store: BlobStore, shelf: str) -> None:
        for name in ("a/1", "a/b/2", "ab/3"):
            await blob_store.put(f"{shelf}/{name}", _BODY)

        found = {name: age_s async for name, age_s in blob_store.list(f"{shelf}/a/")}

        assert set(found) == {f"{shelf}/a/1", f"{shelf}/a/b/2"}
        assert all(abs(age_s) < _JUST_NOW_S for age_s in found.values())

    async def test_odd_names_stay_apart(self, blob_store: BlobStore, shelf: str) -> None:
        names = [f"{shelf}/{part}/x" for part in ("ns-%2E%2E", "ns-a%2Fb", "ns-a b", "ns-ü", "ns-+", "ns-a&b=c#d?e")]
        for name in names:
            await blob_store.put(name, name.encode())

        assert [await blob_store.get(name) for name in names] == [name.encode() for name in names]
        assert await _names(blob_store, f"{shelf}/") == set(names)

    async def test_readers_see_whole_objects_while_they_are_replaced(self, blob_store: BlobStore, shelf: str) -> None:
        bodies = {bytes([number]) * 100_000 for number in range(4)}
        await blob_store.put(f"{shelf}/a", next(iter(bodies)))

        async with asyncio.TaskGroup() as group:
            for body in bodies:
                group.create_task(blob_store.put(f"{shelf}/a", body))
            reads = [group.create_task(blob_store.get(f"{shelf}/a")) for _ in range(8)]

        assert {read.result() for read in reads} <= bodies


class _BlobTests:
    """Tests of contents and references on such a store."""

    @pytest.fixture
    def blobs(self, blob_store: BlobStore) -> Blobs:
        """Contents on the store under test."""
        return Blobs(blob_store)

    @pytest.fixture
    def namespace(self) -> str:
        """A namespace of this test alone."""
        return f"suite-{new_id(8)}"

    async def test_a_content_is_read_as_it_was_put(self, blobs: Blobs, namespace: str) -> None:
        reference = await blobs.put(f"{namespace}:ada:x", b"json", _BODY)

        assert await blobs.get(f"{namespace}:ada:x", reference) == _BODY
        assert (reference.type, reference.size, reference.codec) == ("blob", len(_BODY), "json")
        assert reference.content_type == "application/json"

    async def test_the_bytes_of_many_keys_lie_once_in_a_namespace(
        self, blobs: Blobs, blob_store: BlobStore, namespace: str
    ) -> None:
        keys = [f"{namespace}:ada:{number}" for number in range(5)]
        references = [await blobs.put(key, b"json", _BODY) for key in keys]

        shelf = references[0].path.partition("/")[0]
        assert len([name for name in await _names(blob_store, f"{shelf}/") if name.endswith("/content")]) == 1
        assert [await blobs.get(*pair) for pair in zip(keys, references, strict=True)] == [_BODY] * 5

    async def test_a_content_goes_with_its_last_reference(
        self, blobs: Blobs, blob_store: BlobStore, namespace: str
    ) -> None:
        ada, bob = f"{namespace}:ada:x", f"{namespace}:bob:x"
        of_ada, of_bob = await blobs.put(ada, b"json", _BODY), await blobs.put(bob, b"json", _BODY)

        await blobs.remove(ada, of_ada.path)
        assert await blobs.get(bob, of_bob) == _BODY
        with pytest.raises(NotFoundError, match="does not exist"):
            await blobs.get(ada, of_ada)

        await blobs.remove(bob, of_bob.path)
        assert await _names(blob_store, of_ada.path.partition("/")[0] + "/") == set()

    async def test_a_key_that_is_written_anew_with_the_same_content_keeps_it(
        self, blobs: Blobs, namespace: str
    ) -> None:
        key = f"{namespace}:ada:x"
        first = await blobs.put(key, b"json", _BODY)
        second = await blobs.put(key, b"json", _BODY)

        await blobs.remove(key, first.path)

        assert await blobs.get(key, second) == _BODY

    async def test_removing_twice_harms_nobody(self, blobs: Blobs, namespace: str) -> None:
        ada, bob = f"{namespace}:ada:x", f"{namespace}:bob:x"
        of_ada, of_bob = await blobs.put(ada, b"json", _BODY), await blobs.put(bob, b"json", _BODY)

        await blobs.remove(ada, of_ada.path)
        await blobs.remove(ada, of_ada.path)

        assert await blobs.get(bob, of_bob) == _BODY

    async def test_the_reference_of_another_key_is_neither_followed_nor_removed(
        self, blobs: Blobs, namespace: str
    ) -> None:
        ada, bob = f"{namespace}:ada:x", f"{namespace}:bob:x"
        of_bob = await blobs.put(bob, b"json", _BODY)

        with pytest.raises(NotFoundError, match="names another blob"):
            await blobs.get(ada, of_bob)
        await blobs.remove(ada, of_bob.path)

        assert await blobs.get(bob, of_bob) == _BODY

    async def test_knowing_the_digest_of_a_content_gives_no_right_to_it(self, blobs: Blobs, namespace: str) -> None:
        ada, bob = f"{namespace}:ada:x", f"{namespace}:bob:x"
        of_ada, of_bob = await blobs.put(ada, b"json", b"hers"), await blobs.put(bob, b"json", _BODY)
        shelf, _, name = of_ada.path.split("/")
        forged = of_bob.model_copy(update={"path": f"{shelf}/{of_bob.sha256}/{name}"})

        with pytest.raises(NotFoundError, match="it is not in"):
            await blobs.get(ada, forged)
        await blobs.remove(ada, forged.path)

        assert await blobs.get(bob, of_bob) == _BODY

    @pytest.mark.parametrize("body", [_BODY[:-1], _BODY[1:] + b"\x00", b""])
    async def test_a_changed_or_cut_content_is_an_error_and_repaired_by_a_new_write(
        self, blobs: Blobs, blob_store: BlobStore, namespace: str, body: bytes
    ) -> None:
        key = f"{namespace}:ada:x"
        reference = await blobs.put(key, b"json", _BODY)
        await blob_store.put(_content(reference), body)

        with pytest.raises(NotFoundError, match=r"intact blob of key.*write the value again"):
            await blobs.get(key, reference)

        await blobs.put(key, b"json", _BODY)
        assert await blobs.get(key, reference) == _BODY

    async def test_a_missing_content_is_an_error(self, blobs: Blobs, blob_store: BlobStore, namespace: str) -> None:
        reference = await blobs.put(f"{namespace}:ada:x", b"json", _BODY)
        await blob_store.delete(_content(reference))

        with pytest.raises(NotFoundError, match=r"blob of key .* all processes need the same blob_dir or blob_url"):
            await blobs.get(f"{namespace}:ada:x", reference)

    async def test_the_contents_of_a_namespace_are_listed_by_key(self, blobs: Blobs, namespace: str) -> None:
        keys = [f"{namespace}:ada:{number}" for number in range(3)]
        paths = [(await blobs.put(key, b"json", key.encode())).path for key in keys]

        found = [pair async for pair in blobs.referrers(namespace, older_than_s=-_JUST_NOW_S)]
        young = [pair async for pair in blobs.referrers(namespace, older_than_s=3600)]

        assert sorted(found) == sorted(zip(keys, paths, strict=True))
        assert young == []

    async def test_what_a_crash_left_behind_is_found_and_collected(
        self, blobs: Blobs, blob_store: BlobStore, namespace: str
    ) -> None:
        kept = await blobs.put(f"{namespace}:ada:x", b"json", _BODY)
        left = await blobs.put(f"{namespace}:ada:y", b"json", b"left")
        await blob_store.delete(left.path)

        assert await blobs.collect(namespace, older_than_s=3600) == 0
        assert await blobs.collect(namespace, older_than_s=-_JUST_NOW_S, remove=False) == 1
        assert await blobs.collect(namespace, older_than_s=-_JUST_NOW_S) == 1
        assert await blob_store.get(_content(left)) is None
        assert await blobs.get(f"{namespace}:ada:x", kept) == _BODY

    async def test_a_namespace_is_cleared_and_its_neighbour_is_not(self, blobs: Blobs, namespace: str) -> None:
        neighbour = namespace + "b"
        for number in range(3):
            await blobs.put(f"{namespace}:ada:{number}", b"json", _BODY)
        reference = await blobs.put(f"{neighbour}:ada:x", b"json", _BODY)

        await blobs.clear(namespace)

        assert [pair async for pair in blobs.referrers(namespace, older_than_s=-_JUST_NOW_S)] == []
        assert await blobs.collect(namespace, older_than_s=-_JUST_NOW_S) == 0
        assert await blobs.get(f"{neighbour}:ada:x", reference) == _BODY

    async def test_writers_and_removers_of_one_content_never_lose_it(
        self, blobs: Blobs, blob_store: BlobStore, namespace: str
    ) -> None:
        async def agent(number: int) -> None:
            key = f"{namespace}:ada:{number}"
            for _ in range(_ROUNDS):
                reference = await blobs.put(key, b"json", _BODY)
                assert await blobs.get(key, reference) == _BODY
                await blobs.remove(key, reference.path)

        kept = await blobs.put(f"{namespace}:ada:kept", b"json", _BODY)
        await blobs.remove(f"{namespace}:ada:kept", kept.path)
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(agent(number))

        assert await _names(blob_store, kept.path.partition("/")[0] + "/") == set()


def _content(reference: BlobReference) -> str:
    return reference.path.rpartition("/")[0] + "/content"


class BlobSuite(_StoreTests, _BlobTests):
    """All tests of `BlobStore`; a backend's test class provides the fixture `blob_store`, and closes it."""
