"""Versions of entities follow from the changes in their rows, whatever order these came in; and outlive Redis."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st
from support import durable_hub_fixtures
from support.durable_graphs import GROUP, drain_and_flush
from support.example_budget import example_count
from support.graph_rows import entity_row

from sharedmem import Hub, SharedMemoryStore
from sharedmem.graph.backends.redis_layout import decode_row, encode_row
from sharedmem.graph.entity_versions import (
    EntityState,
    entity_version_at,
    entity_versions,
    with_alias,
    with_merge,
    with_summary,
    with_type,
)
from sharedmem.graph.names import entity_id
from sharedmem.graph.records import LATEST, BitemporalPoint, EntityRow

data_dir = durable_hub_fixtures.data_dir
settings = durable_hub_fixtures.settings
hub = durable_hub_fixtures.hub
store = durable_hub_fixtures.store

FIRST = 5
MOMENT = st.integers(1, 12)
# What is told, its value, since when it is true, and when it was recorded.
TOLD = st.lists(
    st.tuples(st.sampled_from(["type", "summary", "alias", "merge"]), st.sampled_from("abc"), MOMENT, MOMENT),
    max_size=12,
)


def told_row(told: Sequence[tuple[str, str, int, int]]) -> EntityRow:
    row = entity_row("Acme", start=FIRST, recorded=FIRST)
    for what, value, start, recorded in told:
        if what == "type":
            row = with_type(row, value, start=start, recorded=recorded)
        elif what == "summary":
            row = with_summary(row, value, start=start, recorded=recorded)
        elif what == "alias":
            name = f"{value}{row.alias_count}"
            row = with_alias(row, name, name, start=start, recorded=recorded)
        else:
            row = with_merge(row, "" if row.merged_into else value, recorded=recorded)
    return row


def summary_at(told: Sequence[tuple[str, str, int, int]], world: int, known: int) -> str:
    """The summary with the latest beginning among the begun and known ones; repetitions do not count."""
    new: list[tuple[str, str, int, int]] = []
    for one in told:
        if one[0] == "summary" and _last_begun(new, one[2], LATEST) != one[1]:
            new.append(one)
    return _last_begun(new, world, known)


def _last_begun(told: Sequence[tuple[str, str, int, int]], world: int, known: int) -> str:
    begun = [(start, recorded, value) for _, value, start, recorded in told if start <= world and recorded <= known]
    return max(begun)[2] if begun else ""


@tries(max_examples=example_count(300, thorough=3_000))
@given(TOLD, MOMENT, MOMENT)
def test_at_each_point_of_both_times_one_version_at_most_holds(
    told: Sequence[tuple[str, str, int, int]], world: int, known: int
) -> None:
    row = told_row(told)

    holding = [one for one in entity_versions(row) if one.times.holds(world, known)]

    assert len(holding) <= 1
    assert entity_version_at(row, BitemporalPoint(world, known)) == (holding[0] if holding else None)
    if world >= FIRST and known >= FIRST:
        assert holding


@tries(max_examples=example_count(300, thorough=3_000))
@given(TOLD)
def test_the_present_state_is_the_version_that_begins_last_as_known_now(
    told: Sequence[tuple[str, str, int, int]],
) -> None:
    row = told_row(told)

    version = entity_version_at(row, BitemporalPoint(LATEST, LATEST))

    assert version is not None
    assert version.state == EntityState(row.type, row.summary, row.aliases, row.alias_count, row.merged_into)


@tries(max_examples=example_count(300, thorough=3_000))
@given(TOLD, MOMENT, MOMENT)
def test_a_summary_holds_until_the_next_one_begins(
    told: Sequence[tuple[str, str, int, int]], world: int, known: int
) -> None:
    # As episodes are recorded: each later than those before.
    rising = [(what, value, start, place + FIRST) for place, (what, value, start, _) in enumerate(told)]

    version = entity_version_at(told_row(rising), BitemporalPoint(world, known))

    assert (version.state.summary if version is not None else "") == summary_at(rising, world, known)


@tries(max_examples=example_count(100, thorough=1_000))
@given(TOLD)
def test_a_row_comes_back_with_its_changes(told: Sequence[tuple[str, str, int, int]]) -> None:
    row = told_row(told)

    assert decode_row("n", encode_row(row), version=0) == row


def test_a_row_of_an_earlier_release_is_of_one_version_since_an_unknown_time() -> None:
    body = orjson.loads(encode_row(entity_row("Acme", type="company", recorded=FIRST)))
    del body["start"], body["changes"]
    row = decode_row("n", orjson.dumps(body), version=0)
    assert isinstance(row, EntityRow)

    (version,) = entity_versions(with_type(row, "company", start=1, recorded=9))

    assert (version.state.type, version.times.start, version.times.recorded) == ("company", 0, FIRST)


def test_what_has_not_changed_since_the_first_record_is_stored_once() -> None:
    row = entity_row("Acme", type="company", summary="Sells anvils.", start=FIRST, recorded=FIRST)

    same = with_summary(with_type(row, "company", start=9, recorded=9), "Sells anvils.", start=9, recorded=9)

    assert same == row
    assert not with_alias(row, "acme inc", "Acme Inc", start=FIRST, recorded=FIRST).changes


async def test_versions_are_the_same_after_redis_has_lost_everything(hub: Hub, store: SharedMemoryStore) -> None:
    graph = store.graph
    await graph.add_entity("Acme", group_id=GROUP, summary="Sells anvils.")
    await graph.add_entity("Acme", group_id=GROUP, type="company", summary="Sells rockets.")
    await graph.add_entity("A.C.M.E.", group_id=GROUP)
    await graph.merge("A.C.M.E.", "Acme", group_id=GROUP)
    await graph.unmerge("A.C.M.E.", group_id=GROUP)
    named = ("Acme", entity_id("a.c.m.e"))
    before = [await graph.entity_versions(name, group_id=GROUP) for name in named]

    await drain_and_flush(hub)

    assert [await graph.entity_versions(name, group_id=GROUP) for name in named] == before
    assert [len(versions) for versions in before] == [3, 3]
