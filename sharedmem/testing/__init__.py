"""What you test your agents with: a hub without a server, a clock that you turn, and suites for new backends.

The suites need pytest and lie in `sharedmem.testing.store_suite` and `sharedmem.testing.transport_suite`.
"""

from sharedmem.testing.clock import ManualClock
from sharedmem.testing.fakes import connect_to_fake, fake_hub

__all__ = ["ManualClock", "connect_to_fake", "fake_hub"]
