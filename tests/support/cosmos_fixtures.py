"""Cosmos DB on the emulator: a database for a test, a suite of one container alone, and the check of the template."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sharedmem.clock import SystemClock
from sharedmem.durable.cosmos.container import CosmosContainer
from sharedmem.durable.cosmos.endpoint import CosmosTimeouts
from sharedmem.durable.cosmos.layout import ContainerLayout
from sharedmem.durable.cosmos.store import CosmosDurable
from sharedmem.durable.protocol import Durable
from sharedmem.testing.durable_suite import DurableSuite
from sharedmem.testing.durable_suite.base import head
from support.cosmos_emulator import EmulatedDatabase, emulator

# Documents may have 2 MB; aiohttp warns of more than 1 MB.
allow_large_bodies = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")

DIMENSION = 4
NOW_MS = 1_800_000_000_000
NUMBERS = [0.5, -0.25, 0.1, 0.0]
HALF = b64encode(np.asarray(NUMBERS, dtype="<f2").tobytes()).decode()
TEMPLATE = Path(__file__).resolve().parents[2] / "deploy" / "cosmos.bicep"


@pytest.fixture
def room(pytestconfig: pytest.Config) -> EmulatedDatabase:
    return emulator(pytestconfig).room()


class _OneContainer(CosmosDurable):
    """Puts every record into the second container, whatever it is."""

    def _section_of(self, key: str) -> CosmosContainer:  # noqa: ARG002
        return self._sections[1]

    def _section_for(self, of_type: str) -> CosmosContainer:  # noqa: ARG002
        return self._sections[1]


class OneContainerSuite(DurableSuite):
    """The suite of durable stores, with all records in the container of memories or of graphs."""

    layouts: ClassVar[dict[str, Any]]
    """`memories=` or `graphs=` of `CosmosDurable`."""
    charged: ClassVar[tuple[str, int]]
    """What a put and a get cost besides one write: `reads` or `queries`, and how many."""

    @pytest.fixture
    async def durable(self, room: EmulatedDatabase) -> AsyncIterator[CosmosDurable]:
        url, database = room.emulator.url, room.database
        store = _OneContainer(url, database=database, patience=CosmosTimeouts(), clock=SystemClock(), **self.layouts)
        await store.open()
        yield store
        await store.close()

    async def test_what_was_asked_of_it_is_counted(self, durable: Durable, ns: str, key: str) -> None:  # noqa: ARG002  # the suite's own form
        before = durable.charges()

        await durable.put([head(key, 1)])
        await durable.get(key)

        after, (name, count) = durable.charges(), self.charged
        assert (after.writes - before.writes, getattr(after, name) - getattr(before, name)) == (1, count)
        assert after.request_units > before.request_units


def assert_template_makes(layout: ContainerLayout, policies: str, indexing: str) -> None:
    """Compare a layout with the text of its container in deploy/cosmos.bicep.

    Args:
        layout: the one that we make.
        policies: the text up to its indexing policy.
        indexing: the rest.
    """
    assert re.findall(r"^ +'(/.+)'$", policies, re.MULTILINE) == list(layout.partition_key)
    assert layout.full_text is not None
    assert re.findall(r"\{ path: '(.+)', language: '(.+)' \}", policies) == [
        (one["path"], one["language"]) for one in layout.full_text["fullTextPaths"]
    ]
    names = ("includedPaths", "excludedPaths", "fullTextIndexes")
    assert re.findall(r"\{ path: '([^']+)' \}", indexing) == [
        one["path"] for name in names for one in layout.indexing[name]
    ]
    assert re.findall(r"\{ path: '(.+)', order: '(.+)' \}", indexing) == [
        (part["path"], part["order"]) for index in layout.indexing["compositeIndexes"] for part in index
    ]


def container_in_template(name: str, following: str) -> tuple[str, str]:
    """The text of a container in deploy/cosmos.bicep: up to its indexing policy, and from there on.

    Args:
        name: of its resource.
        following: name of the resource behind it.
    """
    text = TEMPLATE.read_text()
    policies, _, indexing = (
        text.partition(f"resource {name} ")[2].partition(f"resource {following} ")[0].partition("indexing")
    )
    return policies, indexing
