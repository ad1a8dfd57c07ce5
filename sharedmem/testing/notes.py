"""Whether the notes of synthesis hang together, for the tests of agents that use it.

async with fake_hub() as hub:
    store = hub.store("support")
    task = await store.synthesis.add_memory(app_id="desk", user_id="ada", messages=[...])
    await store.synthesis.wait(task.task_id)
    await assert_sound(store, "desk")
"""

from __future__ import annotations

from typing import Protocol

from sharedmem.models import NoteCheck


class NoteChecker(Protocol):
    """What checks notes: `store.synthesis`."""

    async def fsck(self, *, app_id: str) -> NoteCheck:
        """Tells what is wrong with the notes of an app."""


class HasSynthesis(Protocol):
    """What has notes: a store."""

    @property
    def synthesis(self) -> NoteChecker:
        """Checks them."""


async def assert_sound(store: HasSynthesis, app_id: str) -> NoteCheck:
    """Check that no memory of an app is lost, and that no chain has two heads, a gap or a circle.

    Args:
        store: whose notes.
        app_id: of which app.

    Returns:
        What was looked at.

    Raises:
        AssertionError: something is wrong; the message tells it, note by note.
    """
    check = await store.synthesis.fsck(app_id=app_id)
    told = "\n".join(f"{problem.note_id}: {problem.kind}: {problem.explanation}" for problem in check.problems)
    assert not check.problems, f"the notes of app {app_id!r} do not hang together:\n{told}"
    return check
