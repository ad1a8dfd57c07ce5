"""What the tests of REST share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from support.rest_server import open_service


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service without tokens."""
    async with open_service() as service, service.client() as client:
        yield client
