"""What you test your agents with: a hub without a server, a clock that you turn, and suites for new backends.

The suites need pytest and lie in modules of their own: `sharedmem.testing.durable_suite` for durable stores,
`blob_suite` for stores of blobs, `store_suite`, `transport_suite`, and others for what agents agree by.
"""

from sharedmem.testing.clock import ManualClock
from sharedmem.testing.fakes import connect_to_fake, fake_hub

__all__ = ["ManualClock", "connect_to_fake", "fake_hub"]
