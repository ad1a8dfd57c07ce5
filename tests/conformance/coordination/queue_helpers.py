"""What the parts of the queue suite share."""

from __future__ import annotations

from typing import Any

from sharedmem.models import Task

LONG_S = 20.0
"""Longer than any of these tests waits; who waits for a task is called."""


async def claim_all(queue: Any, *, wait: float = 0.0) -> Task:
    """The next task, of which there must be one."""
    task = await queue.claim(wait=wait)
    assert isinstance(task, Task)
    return task


async def waiting_worker(queue: Any, count: int) -> bool:
    """Whether so many workers wait in line."""
    return bool((await queue.stats()).workers_waiting == count)
