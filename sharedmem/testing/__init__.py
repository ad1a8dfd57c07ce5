"""Test agents without a server or a language model: a hub on fakeredis, a clock, a scripted model, backend suites.

The suites require pytest and are in modules of their own: `sharedmem.testing.durable_suite` for durable stores,
`blob_suite` for stores of blobs, `store_suite`, `transport_suite`, and others for coordination.
"""

from sharedmem.testing.clock import ManualClock
from sharedmem.testing.fakes import connect_to_fake, fake_hub
from sharedmem.testing.scripted_model import ModelRequest, ScriptedModel

__all__ = ["ManualClock", "ModelRequest", "ScriptedModel", "connect_to_fake", "fake_hub"]
