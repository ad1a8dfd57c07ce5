"""Notes for tests: chains as an app makes them, and what can go wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from sharedmem.models import Note, SynthesisMessage

START = datetime(2026, 1, 1, tzinfo=UTC)
APP = "desk"


def make_chain_note(id_: str, *, day: int = 0, says: str = "", **fields: Any) -> Note:
    """A note of one day, made of one message unless it has sources."""
    moment = START + timedelta(days=day)
    told = () if fields.get("sources") else (SynthesisMessage(role="user", content=f"message of {id_}"),)
    usual: dict[str, Any] = {
        "app_id": APP,
        "user_id": "ada",
        "memory_note": says or f"## Summary\n\ntext of {id_}",
        "chain_id": id_,
    }
    usual |= {"created_at": moment, "updated_at": moment, "messages": told}
    return Note.model_validate({"id": id_, **usual, **fields})


def make_retired_note(id_: str, successor: str, **fields: Any) -> Note:
    """A note that was consolidated into another."""
    return make_chain_note(id_, **{"status": "updated", "status_reason": "consolidated", "next_id": successor} | fields)


def chain_of_two_consolidations() -> tuple[Note, ...]:
    """A chain of five: two notes come together in `s1`, which comes together with a third in `s2`."""
    return (
        make_retired_note("a", "s1", day=1),
        make_retired_note("b", "s1", day=2),
        make_retired_note("s1", "s2", day=3, sources=("b", "a"), chain_id="a"),
        make_retired_note("c", "s2", day=4, status="deleted", status_reason="contradicted"),
        make_chain_note("s2", day=5, status_reason="consolidated", sources=("c", "s1"), chain_id="a"),
    )


@st.composite
def sound_notes(draw: st.DrawFn) -> tuple[Note, ...]:
    """Any notes that hang together: each newer one takes the place of some heads, or of none."""
    found: dict[str, Note] = {}
    for number in range(draw(st.integers(1, 9))):
        heads = [one for one in found.values() if one.next_id is None and one.status == "active"]
        taken = draw(st.lists(st.sampled_from(heads), unique_by=lambda one: one.id, max_size=3)) if heads else []
        id_ = f"n{number}"
        chain = min(taken, key=lambda one: one.created_at).chain_id if taken else id_
        for one in taken:
            found[one.id] = one.model_copy(
                update={"next_id": id_, "status": "updated", "status_reason": "consolidated"}
            )
        status = draw(st.sampled_from(["active"] * 4 + ["conflict_pending", "deleted", "archived"]))
        reason = "manual_update" if status == "deleted" else "created"
        sources = tuple(one.id for one in taken)
        found[id_] = make_chain_note(
            id_, day=number, sources=sources, chain_id=chain, status=status, status_reason=reason
        )
    return tuple(found.values())


@st.composite
def damaged_notes(draw: st.DrawFn) -> tuple[Note, ...]:
    """Notes of which some were changed or taken away without a thought for the others."""
    notes = {one.id: one for one in draw(sound_notes())}
    for _ in range(draw(st.integers(1, 5))):
        if not notes:
            break
        id_ = draw(st.sampled_from(sorted(notes)))
        others = [*sorted(notes), "gone"]
        match draw(st.sampled_from(("lost", "next", "sources", "status", "chain", "user"))):
            case "lost":
                del notes[id_]
            case "next":
                notes[id_] = _with(notes[id_], next_id=draw(st.none() | st.sampled_from(others)))
            case "sources":
                notes[id_] = _with(notes[id_], sources=tuple(draw(st.lists(st.sampled_from(others), max_size=3))))
            case "status":
                notes[id_] = _with(notes[id_], status=draw(st.sampled_from(("active", "updated", "deleted"))))
            case "user":
                notes[id_] = _with(notes[id_], user_id="bob")
            case _:
                notes[id_] = _with(notes[id_], chain_id=draw(st.sampled_from(others)))
    return tuple(notes.values())


def _with(one: Note, **fields: object) -> Note:
    return one.model_copy(update=fields)


def reachable_ids(notes: Iterable[Note]) -> set[str]:
    """Ids of the notes that can be reached from living notes, found the plain way."""
    known = {one.id: one for one in notes}
    alive = {"active", "conflict_pending", "archived"}
    waiting = [one.id for one in known.values() if one.status in alive or one.status_reason == "manual_update"]
    found: set[str] = set()
    while waiting:
        id_ = waiting.pop()
        if id_ not in found and id_ in known:
            found.add(id_)
            waiting += known[id_].sources
    return found
