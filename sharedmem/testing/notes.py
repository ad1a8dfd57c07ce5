"""Check the notes of synthesis for consistency, in tests of agents that use it.

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
    """A class that checks notes: `store.synthesis`."""

    async def fsck(self, *, app_id: str) -> NoteCheck:
        """Return the problems of an app's notes."""


class HasSynthesis(Protocol):
    """A class that has notes: a store."""

    @property
    def synthesis(self) -> NoteChecker:
        """The notes."""


async def assert_sound(store: HasSynthesis, app_id: str) -> NoteCheck:
    """Check that no memory of an app is lost, and that no chain has two heads, a gap or a circle.

    Args:
        store: store of the notes.
        app_id: id of the app.

    Returns:
        The report of the check.

    Raises:
        AssertionError: there is a problem; the message lists all, note by note.
    """
    check = await store.synthesis.fsck(app_id=app_id)
    lines = "\n".join(f"{problem.note_id}: {problem.kind}: {problem.explanation}" for problem in check.problems)
    assert not check.problems, f"the notes of app {app_id!r} are inconsistent:\n{lines}"
    return check
