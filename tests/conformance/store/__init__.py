"""What every backend of a store has to do, as tests that a backend's test file inherits.

    class TestStoreOnMine(StoreSuite):
        @pytest.fixture
        async def hub(self):
            async with Hub.open("redis://localhost") as hub:
                yield hub

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`. Each test works in a namespace of its own and empties it.
"""

from conformance.store.messages import FeedTests, MessageTests
from conformance.store.namespace import AccessTests, NamespaceTests
from conformance.store.shared_changes import SharedChangeTests
from conformance.store.structures import CounterTests, HashTests, ListTests, SetTests
from conformance.store.typed_reads import TypedReadTests
from conformance.store.values import ConditionTests, LifetimeTests, ValueTests

__all__ = ["StoreSuite"]


class StoreSuite(
    ValueTests,
    TypedReadTests,
    ConditionTests,
    LifetimeTests,
    ListTests,
    HashTests,
    SetTests,
    CounterTests,
    MessageTests,
    FeedTests,
    SharedChangeTests,
    NamespaceTests,
    AccessTests,
):
    """The whole public store API; a backend's test class inherits it and gives the fixture `hub`, an open `Hub`."""
