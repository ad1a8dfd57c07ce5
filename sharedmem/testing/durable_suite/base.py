"""Shared parts of the suite: documents, and a namespace for each test."""

from __future__ import annotations

import pytest

from sharedmem.clock import new_id
from sharedmem.durable.protocol import Durable
from sharedmem.models import DurableRecord

# Stamps are versions: microseconds since 1970.
T = 3_000_000_000_000_000
NOW_MS = T // 1000
FAR_MS = 4_102_444_800_000
SEED = 7


def head(key: str, stamp: int, /, **fields: object) -> DurableRecord:
    """Return a plain value at a stamp counted from the suite's first moment."""
    moment = {"version": T + stamp, "stamp": T + stamp, "created": T, "actor": "ada"}
    return DurableRecord.model_validate({"key": key, "type": "value", "kind": "knowledge"} | moment | fields)


def element(key: str, name: str, stamp: int, /, **fields: object) -> DurableRecord:
    """Return one field of a hash, unless `fields` contain other values."""
    return head(key, stamp, **({"element": name, "type": "hash"} | fields))


def tombstone(key: str, stamp: int, /, **fields: object) -> DurableRecord:
    """Return the head of a deleted key."""
    return head(key, stamp, **({"deleted": True, "floor": T + stamp, "body": ""} | fields))


async def all_records_of(durable: Durable, namespace: str, **choice: object) -> list[DurableRecord]:
    """Return the records of all pages of a walk."""
    pages = durable.iterate(namespace, **choice)  # type: ignore[arg-type]  # passed on as the test wrote them
    return [record async for page in pages for record in page]


def sort_by_key(records: list[DurableRecord]) -> list[DurableRecord]:
    """Return the records in the order of key and element."""
    return sorted(records, key=lambda record: (record.key, record.element))


class DurableFixtures:
    """Names of one test alone; the fixture `durable` comes from the backend."""

    @pytest.fixture
    def ns(self) -> str:
        """A namespace of this test alone."""
        return f"suite-{new_id(8)}"

    @pytest.fixture
    def key(self, ns: str) -> str:
        """A key in it."""
        return f"{ns}:shared:note"
