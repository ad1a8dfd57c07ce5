"""What every backend of a store has to do, as tests that a backend's test file inherits.

    class TestStoreOnMine(StoreSuite):
        @pytest.fixture
        async def hub(self):
            async with Hub.open("redis://localhost") as hub:
                yield hub

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`. Each test works in a namespace of its own and empties it.
"""

import sharedmem.testing.suites  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.store_suite.messages import FeedTests, MessageTests
from sharedmem.testing.store_suite.namespace import AccessTests, NamespaceTests
from sharedmem.testing.store_suite.structures import CounterTests, HashTests, ListTests, SetTests
from sharedmem.testing.store_suite.values import ConditionTests, LifetimeTests, ValueTests

__all__ = ["StoreSuite"]


class StoreSuite(
    ValueTests,
    ConditionTests,
    LifetimeTests,
    ListTests,
    HashTests,
    SetTests,
    CounterTests,
    MessageTests,
    FeedTests,
    NamespaceTests,
    AccessTests,
):
    """The whole public store API; a backend's test class inherits it and gives the fixture `hub`, an open `Hub`."""
