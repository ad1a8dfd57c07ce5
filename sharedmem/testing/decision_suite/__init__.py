"""What every way to the decision log has to do, as tests that a test file inherits.

    class TestDecisionsOverMine(DecisionSuite):
        @pytest.fixture
        async def decisions(self):
            async with MyClient() as client:
                yield client

`decisions` is whatever has the methods of `sharedmem.knowledge.decisions.Decisions`. Each test works in sessions
of its own and forgets them. Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`.
"""

import sharedmem.testing.suites  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.decision_suite.executions import BlockTests, ClaimTests, ResolveTests
from sharedmem.testing.decision_suite.outcomes import RefusalTests, StatsTests
from sharedmem.testing.decision_suite.plans import PlanTests

__all__ = ["BlockTests", "ClaimTests", "DecisionSuite", "PlanTests", "RefusalTests", "ResolveTests", "StatsTests"]


class DecisionSuite(PlanTests, ClaimTests, ResolveTests, BlockTests, StatsTests, RefusalTests):
    """The whole decision log; a test class inherits it and gives the fixture `decisions`."""
