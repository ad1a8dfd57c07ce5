"""What every way to the decision log has to do, as tests that a test file inherits.

    class TestDecisionsOverMine(DecisionSuite):
        @pytest.fixture
        async def decisions(self):
            async with MyClient() as client:
                yield client

`decisions` is whatever has the methods of `sharedmem.decisions.decisions.Decisions`. Each test works in sessions
of its own and forgets them. Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`.
"""

from conformance.decisions.executions import (
    ExecutionBlockTests,
    ExecutionClaimTests,
    ExecutionOrphanTests,
    ExecutionResolveTests,
)
from conformance.decisions.outcomes import DecisionInputTests, RefusalTests, StatsTests
from conformance.decisions.plans import PlanTests

__all__ = [
    "DecisionInputTests",
    "DecisionSuite",
    "ExecutionBlockTests",
    "ExecutionClaimTests",
    "ExecutionOrphanTests",
    "ExecutionResolveTests",
    "PlanTests",
    "RefusalTests",
    "StatsTests",
]


class DecisionSuite(
    PlanTests,
    ExecutionClaimTests,
    ExecutionOrphanTests,
    ExecutionResolveTests,
    ExecutionBlockTests,
    StatsTests,
    DecisionInputTests,
):
    """The whole decision log; a test class inherits it and gives the fixture `decisions`."""
