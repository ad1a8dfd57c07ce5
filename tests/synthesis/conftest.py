"""What the tests of notes share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.note_harness import NoteHarness, open_note_harnesses

from sharedmem.clock import new_id


@pytest.fixture
async def harness() -> AsyncIterator[NoteHarness]:
    """An empty repository of notes."""
    async with open_note_harnesses([f"team-{new_id()}"]) as (harness,):
        yield harness
