"""Ids of entries: UUIDs that end alike, texts that look like stored UUIDs, and logs that an earlier version wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from conformance.conversations import MOST_LINKS, read_all
from support.contexts import client_of

from sharedmem import Hub
from sharedmem.conversations.conversations import Conversations
from sharedmem.redis.change_stream import as_list
from sharedmem.testing import fake_hub

ALIKE = [f"000{number}0000-aaaa-4aaa-8aaa-aaaaaaaaaaaa" for number in range(4)]
LOG, IDS = "sm:{n}:$conversation.log:ada:c", "sm:{n}:$conversation.ids:ada:c"


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub() as hub:
        yield hub


@pytest.fixture
def talks(hub: Hub) -> Conversations:
    return hub.store("n", actor="ada").conversations


async def ids_of(talks: Conversations, name: str) -> list[str]:
    page = await talks.read(name, last=1000)
    return [entry.id for entry in page.entries]


@pytest.mark.parametrize("at_once", [True, False])
async def test_uuids_that_end_alike_are_kept_apart(talks: Conversations, at_once: bool) -> None:
    if at_once:
        await talks.append("c", [0, 1, 2], entry_ids=ALIKE[:3])
    else:
        for number, id_ in enumerate(ALIKE[:3]):
            await talks.append("c", [number], entry_ids=[id_])

    await talks.append("c", ["again", 3], entry_ids=[ALIKE[1], ALIKE[3]])

    assert await ids_of(talks, "c") == ALIKE
    for number, id_ in enumerate(ALIKE):
        page = await talks.read("c", around=id_, limit=1)
        assert [entry.value for entry in page.entries] == [number]


async def test_removing_one_of_them_leaves_the_others(talks: Conversations) -> None:
    await talks.append("c", [0, 1, 2], entry_ids=ALIKE[:3])

    await talks.replace_suffix("c", ALIKE[0], ["new 2", 3], entry_ids=[ALIKE[2], ALIKE[3]])
    await talks.append("c", ["again", "new 1"], entry_ids=[ALIKE[2], ALIKE[1]])
    await talks.pop("c")
    await talks.append("c", ["again", "last 1"], entry_ids=[ALIKE[0], ALIKE[1]])

    assert await read_all(talks, "c") == [0, "new 2", 3, "last 1"]


async def test_a_text_is_not_taken_for_the_end_of_a_uuid(talks: Conversations) -> None:
    text = "fourteen bytes"
    uuid = str(UUID(bytes=b"ab" + text.encode()))

    await talks.append("c", [0, 1], entry_ids=[uuid, text])
    await talks.append("c", [2, 3], entry_ids=[text, uuid])

    assert await ids_of(talks, "c") == [uuid, text]


async def test_a_fork_that_copies_its_entries_knows_their_ids(talks: Conversations) -> None:
    await talks.append("c0", [0, 1], entry_ids=ALIKE[:2])
    for number in range(MOST_LINKS + 2):
        await talks.fork(f"c{number}", f"c{number + 1}")
        await talks.append(f"c{number + 1}", [number])
    last = f"c{MOST_LINKS + 2}"

    await talks.append(last, ["again", "again", "new"], entry_ids=ALIKE[:3])

    values = await read_all(talks, last)
    assert [value for value in values if value in ("again", "new")] == ["new"]


async def test_a_log_of_an_earlier_version_goes_on(hub: Hub, talks: Conversations) -> None:
    await talks.append("c", [0, 1, 2], entry_ids=[*ALIKE[:2], "text"])
    await _as_an_earlier_version_stored_it(hub, [b"\0" + UUID(id_).bytes for id_ in ALIKE[:2]] + [b"text"])

    await talks.append("c", ["again", 3, "again"], entry_ids=[ALIKE[1], ALIKE[2], "text"])
    await talks.fork("c", "f")
    await talks.append("f", ["again", 4], entry_ids=[ALIKE[0], ALIKE[3]])
    await talks.pop("c", 2)
    await talks.append("c", ["again", "new 2"], entry_ids=[ALIKE[1], ALIKE[2]])

    assert await read_all(talks, "c") == [0, 1, "new 2"]
    assert await ids_of(talks, "f") == [*ALIKE[:2], "text", *ALIKE[2:]]


async def _as_an_earlier_version_stored_it(hub: Hub, ids: list[bytes]) -> None:
    """Give the only segment of `c` the name and the hash of ids of layout 1."""
    client = client_of(hub)
    assert len(as_list(await client.call("HGETALL", IDS + "{0s}"))) > 0
    await client.call("DEL", IDS + "{0s}")
    for position, id_ in enumerate(ids):
        await client.call("HSET", IDS + "{0}", id_, position)
    await client.call("RENAME", LOG + "{0s}", LOG + "{0}")
    await client.call("HSET", "sm:{n}:$conversation:ada:c", "segment", "ada:c{0}")
