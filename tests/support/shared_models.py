"""Random calls of several clients of one server, compared with a model: the clients, and how a machine is run.

A module takes the fixture by assignment: `clients = shared_models.clients`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from redis import Redis

from sharedmem import Settings, SharedMemoryError
from sharedmem.sync import Hub
from sharedmem.testing import connect_to_fake

Clients = tuple[list[Hub], Redis]
"""Two hubs and a bare client; a machine gets them as its attributes `hubs` and `bare`."""


@pytest.fixture(params=["fakeredis", "redis"])
def clients(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Clients]:
    """Two hubs and a bare client of one server."""
    with ExitStack() as stack:
        if request.param == "fakeredis":
            server = fakeredis.FakeServer()
            opened = [Hub(settings=settings, connect=connect_to_fake(server)) for _ in range(2)]
            bare = Redis.from_pool(fakeredis.FakeStrictRedis(server=server).connection_pool)
        else:
            url = request.getfixturevalue("redis_url")
            opened = [Hub.open(url, settings=settings) for _ in range(2)]
            bare = Redis.from_url(url)
        yield [stack.enter_context(hub) for hub in opened], stack.enter_context(bare)


def run_machine(machine: type[RuleBasedStateMachine], clients: Clients, **effort: Any) -> None:
    """Let a machine make random calls by these clients."""
    bound: Any = type("Bound", (machine,), {"hubs": clients[0], "bare": clients[1]})
    quiet = list(HealthCheck)  # a server is slower than hypothesis likes
    run_state_machine_as_test(bound, settings=settings(deadline=None, suppress_health_check=quiet, **effort))


def check_that_it_notices(machine: type[RuleBasedStateMachine], clients: Clients) -> None:
    """Check that a machine fails which does something that its model does not know."""
    no_shrinking = {"phases": (Phase.generate,), "database": None, "report_multiple_bugs": False}
    # It ends with the first failure; one that time has a part in may not repeat.
    with pytest.raises((AssertionError, SharedMemoryError, Flaky, pytest.fail.Exception)):
        run_machine(machine, clients, max_examples=500, **no_shrinking)
