"""What every durable store has to do (`durable.protocol.Durable`), as tests that its test file inherits.

    class TestMyDurable(DurableSuite):
        @pytest.fixture
        async def durable(self, tmp_path):
            store = MyDurable(tmp_path / "cold.db")
            await store.open()
            yield store
            await store.close()

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`. Each test works in a namespace of its own, whose documents
stay: give it a database that goes away.
"""

import sharedmem.testing.pytest_required  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.durable_suite.lifecycle import OpenCloseTests, PurgeTests
from sharedmem.testing.durable_suite.queries import IterationTests, QueryTests
from sharedmem.testing.durable_suite.records import BodyTests, PutTests

__all__ = ["DurableSuite"]


class DurableSuite(PutTests, BodyTests, QueryTests, IterationTests, PurgeTests, OpenCloseTests):
    """The whole of `Durable`; a backend's test class gives the fixture `durable`, an open one that it closes."""
