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

import sharedmem.testing.suites  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.durable_suite.bodies import BodyTests
from sharedmem.testing.durable_suite.purges import LifeTests, PurgeTests
from sharedmem.testing.durable_suite.puts import PutTests
from sharedmem.testing.durable_suite.queries import QueryTests
from sharedmem.testing.durable_suite.walks import WalkTests

__all__ = ["DurableSuite"]


class DurableSuite(PutTests, BodyTests, QueryTests, WalkTests, PurgeTests, LifeTests):
    """The whole of `Durable`; a backend's test class gives the fixture `durable`, an open one that it closes."""
