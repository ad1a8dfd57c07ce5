"""Conformance tests of durable stores (`durable.protocol.Durable`); a test class inherits them.

    class TestMyDurable(DurableSuite):
        @pytest.fixture
        async def durable(self, tmp_path):
            store = MyDurable(tmp_path / "cold.db")
            await store.open()
            yield store
            await store.close()

Requires pytest and pytest-asyncio with `asyncio_mode = "auto"`. Each test works in a namespace of its own, whose
documents are not deleted: use a temporary database.
"""

import sharedmem.testing.pytest_required  # noqa: F401  # the entry point: it needs pytest
from sharedmem.testing.durable_suite.lifecycle import OpenCloseTests, PurgeTests
from sharedmem.testing.durable_suite.queries import IterationTests, QueryTests
from sharedmem.testing.durable_suite.records import BodyTests, PutTests

__all__ = ["DurableSuite"]


class DurableSuite(PutTests, BodyTests, QueryTests, IterationTests, PurgeTests, OpenCloseTests):
    """All tests of `Durable`; a backend's test class provides the fixture `durable`, an open store, and closes it."""
