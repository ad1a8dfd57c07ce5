"""What every backend of conversations has to do, as tests that a backend's test file inherits."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sharedmem.conversations.conversations import Conversations
from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, VersionConflictError
from sharedmem.models import ConversationPage, PoppedEntries
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.store import SharedMemoryStore, parts_of
from sharedmem.testing.pytest_required import pytest
from sharedmem.testing.store_fixtures import StoreFixtures

MOST_LINKS = 64


def values_of(page: ConversationPage | PoppedEntries) -> list[Any]:
    return [entry.value for entry in page.entries]


async def read_all(conversations: Conversations, id_: str) -> list[Any]:
    return values_of(await conversations.read(id_, limit=10_000))


class ConversationSuite(StoreFixtures):
    """The whole public API of `store.conversations`; a backend's test class gives the fixture `hub`, an open `Hub`."""

    @pytest.fixture
    def talks(self, ada: SharedMemoryStore) -> Conversations:
        return ada.conversations

    async def leftovers(self, team: SharedMemoryStore) -> list[str]:
        """The keys of conversations that the server has, of any kind."""
        reply = await parts_of(team).context.client.call("KEYS", f"*{{{team.namespace}}}:$conversation*")
        return [text_of(key) for key in as_list(reply)]

    # -- append and read

    async def test_entries_come_back_in_order_with_who_and_when(
        self, team: SharedMemoryStore, ada: SharedMemoryStore
    ) -> None:
        before = datetime.now(UTC) - timedelta(minutes=1)
        first = await ada.conversations.append("team-talk", ["hello", {"role": "user"}])
        second = await team.conversations.append((await ada.conversations.list()).conversations[0].key, ["bye"])

        page = await ada.conversations.read("team-talk")

        assert [(entry.value, entry.actor) for entry in page.entries] == [
            ("hello", "ada"),
            ({"role": "user"}, "ada"),
            ("bye", "shared"),
        ]
        assert before < page.entries[0].at < page.entries[2].at
        assert (first.length, second.length, page.length) == (2, 3, 3)
        assert first.revision < second.revision == page.revision == int(page.cursor or 0)
        assert [entry.id for entry in page.entries] == [entry.cursor for entry in page.entries]

    @pytest.mark.parametrize("user", [None, "u"])
    async def test_every_call_knows_the_newest_entry(self, talks: Conversations, user: str | None) -> None:
        await talks.append("c", [0], tags=None if user is None else {"user": user})
        await talks.append("d", [0])
        for number in (1, 2):
            added = await talks.append("c", [number], entry_ids=[f"e{number}"])
        assert (added.length, added.added) == (3, 1)

        known = await talks.get("c")
        assert known is not None
        assert (known.revision, known.length) == (added.revision, 3)
        assert known.updated > known.created
        assert (await talks.list(user=user, limit=1)).conversations == [known]
        for page in (await talks.read("c", last=2), await talks.read("c", after="e1"), await talks.read("c")):
            assert (page.revision, page.length, values_of(page)[-1]) == (added.revision, 3, 2)
        assert (await talks.append("c", ["again"], entry_ids=["e2"])).revision == added.revision
        with pytest.raises(VersionConflictError):
            await talks.append("c", [3], if_revision=known.revision - 1)
        assert values_of(await talks.pop("c", if_revision=added.revision)) == [2]

        patched = (await talks.patch_state("c", {"n": 1})).state_version
        last = await talks.append("c", [3])

        assert (last.length, last.state_version) == (3, patched)
        fork = await talks.fork("c", "f")
        assert await read_all(talks, "c") == await read_all(talks, "f") == [0, 1, 3]
        assert (await talks.append("f", [4])).length == fork.length + 1 == 4

    async def test_concurrent_appends_of_every_kind_are_independent(self, talks: Conversations) -> None:
        await talks.append("known", [0])
        await talks.append("tagged", [0], tags={"app": "a"})
        await talks.append("ends", [0], ttl=500)

        changes = await asyncio.gather(
            talks.append("known", [1]),
            talks.append("new", [1]),
            talks.append("tagged", [1], entry_ids=["e"]),
            talks.append("known", [2], state={"n": 1}),
            talks.append("ends", [1]),
            talks.append("known", [3]),
            talks.append("known", []),
            talks.append("tagged", ["again"], entry_ids=["e"]),
        )

        assert [change.length for change in changes] == [2, 1, 2, 3, 2, 4, 4, 2]
        assert [change.added for change in changes] == [1, 1, 1, 1, 1, 1, 0, 0]
        assert [change.revision for change in changes[:6]] == sorted({change.revision for change in changes[:6]})
        assert await read_all(talks, "known") == [0, 1, 2, 3]
        order = [found.key.rpartition(":")[2] for found in (await talks.list()).conversations]
        assert order == ["known", "ends", "tagged", "new"]
        for name in order:
            known = await talks.get(name)
            page = await talks.read(name)
            assert known is not None
            assert (known.revision, known.length) == (page.revision, page.length)

    @pytest.mark.parametrize(
        "value", ["", "zwölf 🦆", 7, 2.5, None, True, [], [1, {"a": []}], b"\x00\nraw", {"n": 2**70}]
    )
    async def test_an_entry_keeps_its_value_and_id(self, talks: Conversations, value: Any) -> None:
        ids = [str(uuid4()), "a b:c ✓", "1795000000000000"]
        await talks.append("c", [value] * 3, entry_ids=ids)
        await talks.append("c", [value])

        page = await talks.read("c")

        assert values_of(page) == [value] * 4
        assert [entry.id for entry in page.entries[:3]] == ids

    async def test_entries_of_any_size_come_back(self, talks: Conversations) -> None:
        large = {"text": "x" * 300_000, "of": {1, 2}}
        await talks.append("c", ["x" * 200_000, "small", large], entry_ids=["a", "b", "c"])
        again = await talks.append("c", [large, "new"], entry_ids=["c", "d"])
        await talks.fork("c", "f", at="c")

        assert again.added == 1
        assert values_of(await talks.read("c", last=2)) == [large, "new"]
        assert values_of(await talks.pop("c", 3)) == ["small", large, "new"]
        assert await read_all(talks, "f") == ["x" * 200_000, "small", large]
        await talks.replace_suffix("f", "a", [large, 7])
        assert await read_all(talks, "f") == ["x" * 200_000, large, 7]

    async def test_a_page_is_what_was_asked_for(self, talks: Conversations) -> None:
        await talks.append("c", list(range(10)), entry_ids=[f"e{number}" for number in range(10)])
        cursor = (await talks.read("c", limit=4)).cursor

        assert values_of(await talks.read("c", last=3)) == [7, 8, 9]
        assert values_of(await talks.read("c", last=50)) == list(range(10))
        assert values_of(await talks.read("c", after=cursor, limit=2)) == [4, 5]
        assert values_of(await talks.read("c", after="e8")) == [9]
        assert values_of(await talks.read("c", after="e9")) == []
        assert values_of(await talks.read("c", around="e5", limit=3)) == [4, 5, 6]
        assert values_of(await talks.read("c", around="e0", limit=4)) == [0, 1, 2, 3]
        assert (await talks.read("c", limit=4)).has_more
        assert not (await talks.read("c", last=4)).has_more
        assert (await talks.read("c", last=4)).first == 6

    async def test_a_cursor_holds_after_its_entry_was_removed(self, talks: Conversations) -> None:
        await talks.append("c", ["a", "b", "c"])
        cursor = (await talks.read("c", limit=2)).cursor
        await talks.pop("c", 2)
        await talks.append("c", ["new"])

        assert values_of(await talks.read("c", after=cursor)) == ["new"]

    async def test_a_conversation_that_does_not_exist_is_empty(self, talks: Conversations) -> None:
        assert await talks.read("none", last=5) == ConversationPage(revision=0, length=0, first=0, entries=[])
        assert await talks.get("none") is None
        assert (await talks.state("none")).version == 0
        assert (await talks.pop("none")).entries == []
        assert not await talks.delete("none")
        assert not await talks.expire("none", 60)
        assert (await talks.list()).conversations == []

    async def test_an_unknown_entry_is_named(self, talks: Conversations) -> None:
        await talks.append("c", ["a"])

        with pytest.raises(NotFoundError, match="'nope'"):
            await talks.read("c", after="nope")
        with pytest.raises(NotFoundError, match="'nope'"):
            await talks.replace_suffix("c", "nope", ["b"])
        with pytest.raises(NotFoundError, match="'nope'"):
            await talks.fork("c", "d", at="nope")
        for call in (talks.clear("none"), talks.replace_suffix("none", None, ["b"]), talks.fork("none", "d")):
            with pytest.raises(NotFoundError, match="ada:none"):
                await call
        assert await read_all(talks, "c") == ["a"]

    # -- once by id

    async def test_an_entry_is_stored_once_by_its_id(self, talks: Conversations) -> None:
        ids = [str(uuid4()) for _ in range(3)]
        await talks.append("c", [0, 1], entry_ids=ids[:2])
        again = await talks.append("c", [0, 1, 2, 2], entry_ids=[*ids, ids[2]])

        assert (again.added, again.length) == (1, 3)
        assert await read_all(talks, "c") == [0, 1, 2]

    async def test_a_batch_that_is_there_succeeds_whatever_its_conditions(self, talks: Conversations) -> None:
        first = await talks.append("c", [0], entry_ids=["e0"], state={"n": 1}, if_revision=0)
        again = await talks.append("c", [0], entry_ids=["e0"], state={"n": 2}, if_revision=0)

        assert again == first.model_copy(update={"added": 0})
        assert (await talks.state("c")).fields == {"n": 1}

    async def test_the_id_of_a_removed_entry_may_be_used_again(self, talks: Conversations) -> None:
        await talks.append("c", [0, 1, 2], entry_ids=["e0", "e1", "e2"])
        await talks.pop("c", 2)
        await talks.append("c", ["new", 0], entry_ids=["e2", "e0"])

        assert await read_all(talks, "c") == [0, "new"]

    # -- conditions and state

    async def test_a_stale_writer_changes_nothing(self, talks: Conversations) -> None:
        first = await talks.append("c", ["a"], state={"n": 1})
        second = await talks.append("c", ["b"])

        stale: list[Awaitable[object]] = [
            talks.append("c", ["x", "y"], if_revision=first.revision, state={"n": 2}),
            talks.append("c", ["x"], if_revision=0),
            talks.append("c", ["x"], if_state=0),
            talks.append("new", ["x"], if_revision=first.revision),
            talks.pop("c", if_revision=first.revision),
            talks.replace_suffix("c", None, ["x"], if_revision=first.revision),
            talks.clear("c", if_revision=first.revision),
            talks.delete("c", if_revision=first.revision),
            talks.patch_state("c", {"n": 2}, if_state=second.revision),
        ]
        for call in stale:
            with pytest.raises(VersionConflictError):
                await call

        assert await read_all(talks, "c") == ["a", "b"]
        assert (await talks.state("c")).fields == {"n": 1}
        assert await talks.get("new") is None
        assert (await talks.append("c", ["c"], if_revision=second.revision)).length == 3

    async def test_of_writers_on_one_revision_one_wins(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        mine = await ada.conversations.append("c", ["start"])
        key = (await ada.conversations.list()).conversations[0].key
        calls = [ada.conversations.append("c", [n], if_revision=mine.revision) for n in range(5)]
        calls += [team.conversations.append(key, [n], if_revision=mine.revision) for n in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert sum(isinstance(outcome, VersionConflictError) for outcome in outcomes) == 9
        assert len(await read_all(ada.conversations, "c")) == 2

    async def test_appends_of_one_moment_are_all_there(self, talks: Conversations) -> None:
        await asyncio.gather(*(talks.append(f"c{n % 3}", [n, -n]) for n in range(60)))

        for talk in range(3):
            found = await read_all(talks, f"c{talk}")
            assert sorted(found[::2]) == list(range(talk, 60, 3))
            assert found[1::2] == [-n for n in found[::2]]

    async def test_a_state_is_patched_field_by_field(self, talks: Conversations) -> None:
        change = await talks.append("c", ["a"], state={"topic": "x", "n": [1]})
        patched = await talks.patch_state("c", {"n": None, "done": True}, if_state=change.state_version)

        state = await talks.state("c")
        assert (state.fields, state.version) == ({"topic": "x", "done": True}, patched.state_version)
        assert patched.revision == change.revision, "the log has not changed"
        with pytest.raises(VersionConflictError, match="its state"):
            await talks.patch_state("c", {"n": 2}, if_state=change.state_version)

    async def test_a_state_needs_no_entries(self, talks: Conversations) -> None:
        created = await talks.patch_state("c", {"a": 1})

        assert created.length == 0
        assert (await talks.append("c", ["x"], if_revision=created.revision)).length == 1

    # -- removal

    async def test_pop_returns_the_newest_entries_oldest_first(self, talks: Conversations) -> None:
        await talks.append("c", [b"\n", "b", {"c": "\n"}], entry_ids=["e0", "e1", "e2"])

        popped = await talks.pop("c", 2)

        assert values_of(popped) == ["b", {"c": "\n"}]
        assert [entry.id for entry in popped.entries] == ["e1", "e2"]
        assert values_of(await talks.pop("c", 5)) == [b"\n"]
        assert values_of(await talks.pop("c")) == []
        assert await talks.get("c") is not None

    async def test_a_suffix_is_replaced_in_one_step(self, talks: Conversations) -> None:
        await talks.append("c", [0, 1, 2, 3], entry_ids=["e0", "e1", "e2", "e3"])
        change = await talks.replace_suffix("c", "e0", ["sum", 3, 0], entry_ids=["s", "e3", "e0"], state={"n": 1})

        assert await read_all(talks, "c") == [0, "sum", 3]
        assert (change.length, change.added) == (3, 2)
        assert (await talks.state("c")).fields == {"n": 1}
        await talks.replace_suffix("c", None, ["all"])
        assert await read_all(talks, "c") == ["all"]

    async def test_clear_leaves_the_conversation_without_entries(self, talks: Conversations) -> None:
        await talks.append("c", [0, 1], entry_ids=["e0", "e1"], state={"n": 1}, tags={"user": "u"})
        cleared = await talks.clear("c")

        assert (cleared.length, await read_all(talks, "c")) == (0, [])
        assert (await talks.state("c")).fields == {"n": 1}
        assert len((await talks.list(user="u")).conversations) == 1
        assert (await talks.append("c", [0], entry_ids=["e0"], if_revision=cleared.revision)).length == 1

    async def test_delete_leaves_nothing(self, talks: Conversations, team: SharedMemoryStore) -> None:
        await talks.append("c", [0, 1], entry_ids=["e0", "e1"], state={"n": 1}, tags={"user": "u", "app": "a"})

        assert await talks.delete("c")
        assert not await talks.delete("c")
        assert await self.leftovers(team) == []
        assert (await talks.append("c", ["new"], if_revision=0)).length == 1

    async def test_appends_of_one_moment_are_independent(self, talks: Conversations) -> None:
        first = await talks.append("c", [0], entry_ids=["e0"])
        plain = [talks.append("c", [number], entry_ids=[f"e{number}"]) for number in range(1, 6)]
        special = [
            talks.append("c", ["refused"], if_revision=first.revision + 1),
            talks.append("c", [1], entry_ids=["e1"]),
            talks.append("c", ["state"], state={"n": 1}),
            talks.append("d", ["new"], tags={"user": "u"}),
            talks.append("c", ["x" * 300_000]),
        ]
        more = [talks.append("c", [number]) for number in range(6, 9)]
        told = await asyncio.gather(*plain, *special, *more, return_exceptions=True)

        assert isinstance(told[5], VersionConflictError)
        changes = [change for change in told if not isinstance(change, BaseException)]
        assert sorted(change.added for change in changes) == [0] + [1] * (len(told) - 2)
        page = await talks.read("c", limit=100)
        assert sorted(map(str, values_of(page)))[:9] == [str(number) for number in range(9)]
        assert [entry.cursor for entry in page.entries] == sorted(entry.cursor for entry in page.entries)
        assert values_of(await talks.read("c", last=3)) == values_of(page)[-3:]
        assert (known := await talks.get("c")) is not None
        assert (known.length, known.revision) == (len(page.entries), page.revision) == (11, int(page.cursor or 0))
        assert [found.key[-2:] for found in (await talks.list()).conversations] == [":c", ":d"]

    # -- forks

    async def test_a_fork_and_its_parent_go_separate_ways(self, talks: Conversations) -> None:
        await talks.append("p", [0, 1, 2, 3], entry_ids=["e0", "e1", "e2", "e3"], state={"n": 1}, tags={"user": "u"})
        forked = await talks.fork("p", "f", at="e2")
        await talks.append("p", ["p4"])
        await talks.append("f", [0, "f3", 3], entry_ids=["e0", "x", "e3"])
        await talks.patch_state("f", {"n": 2})

        assert (forked.length, await read_all(talks, "p")) == (3, [0, 1, 2, 3, "p4"])
        assert await read_all(talks, "f") == [0, 1, 2, "f3", 3]
        assert values_of(await talks.read("f", around="e2", limit=3)) == [1, 2, "f3"]
        assert ((await talks.state("p")).fields, (await talks.state("f")).fields) == ({"n": 1}, {"n": 2})
        known = await talks.get("f")
        assert known is not None
        assert (known.parent, known.shared, known.user) == (f"{known.key[:-1]}p", 3, "u")

    @pytest.mark.parametrize("keep", range(5))
    async def test_a_fork_keeps_what_its_parent_removes(
        self, talks: Conversations, team: SharedMemoryStore, keep: int
    ) -> None:
        await talks.append("p", [0, 1, 2, 3], entry_ids=["e0", "e1", "e2", "e3"])
        await talks.fork("p", "f", at="e1")
        if keep < 4:
            await talks.pop("p", 4 - keep)
        await talks.append("p", ["new", 1], entry_ids=["n", "e1"])
        await talks.fork("f", "g")
        await talks.replace_suffix("f", "e0", ["f1"])

        rest = [0, 1, 2, 3][:keep] + ["new"] + ([] if keep > 1 else [1])
        assert await read_all(talks, "p") == rest
        assert await read_all(talks, "f") == [0, "f1"]
        assert await talks.delete("p")
        assert await read_all(talks, "g") == [0, 1]
        assert await talks.delete("f")
        assert await read_all(talks, "g") == [0, 1]
        assert await talks.delete("g")
        assert await self.leftovers(team) == [], "the last reader of a segment deletes it"

    async def test_a_name_can_be_used_again_while_a_fork_shares_its_entries(self, talks: Conversations) -> None:
        await talks.append("p", ["old"])
        await talks.fork("p", "f")
        await talks.delete("p")
        await talks.append("p", ["new"])
        await talks.delete("f")

        assert await read_all(talks, "p") == ["new"]

    async def test_a_fork_needs_a_new_name(self, talks: Conversations) -> None:
        await talks.append("p", [0])
        await talks.append("f", [1])

        for name in ("f", "p"):
            with pytest.raises(VersionConflictError):
                await talks.fork("p", name)
        assert await read_all(talks, "f") == [1]

    async def test_forks_of_forks_have_all_their_entries(self, talks: Conversations, team: SharedMemoryStore) -> None:
        await talks.append("c0", [0], entry_ids=["e0"])
        for number in range(1, MOST_LINKS + 6):
            await talks.fork(f"c{number - 1}", f"c{number}")
            await talks.append(f"c{number}", [number], entry_ids=[f"e{number}"])

        last = MOST_LINKS + 5
        assert await read_all(talks, f"c{last}") == list(range(last + 1))
        assert (await talks.append(f"c{last}", [0, 9], entry_ids=["e0", f"e{last - 1}"])).added == 0
        for number in range(last + 1):
            assert await talks.delete(f"c{number}")
        assert await self.leftovers(team) == []

    # -- list

    async def test_conversations_are_listed_by_their_last_change(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        await ada.conversations.append("a", [1], tags={"user": "u1", "agent": "x"})
        await bob.conversations.append("b", [1], tags={"user": "u1", "app": "web:2"})
        await ada.conversations.append("c", [1])
        await ada.conversations.append("a", [2])
        listed = bob.conversations.list

        async def names(**choices: Any) -> list[str]:
            return [found.key.partition(":")[2] for found in (await listed(**choices)).conversations]

        assert await names() == ["ada:a", "ada:c", "bob:b"]
        assert await names(order="oldest") == ["bob:b", "ada:c", "ada:a"]
        assert await names(user="u1") == ["ada:a", "bob:b"]
        assert await names(user="u1", agent="x") == ["ada:a"]
        assert await names(app="web:2") == ["bob:b"]
        assert await names(agent="nobody") == []
        assert await names(scope="ada") == ["ada:a", "ada:c"]
        page = await listed(limit=2)
        assert await names(cursor=page.cursor) == ["bob:b"]
        await bob.conversations.append("b", [2])
        assert await names(user="u1") == await names(user="u1", limit=2) == ["bob:b", "ada:a"]
        await ada.conversations.append("a", [3], tags={"user": "u2"})
        assert await names(user="u1") == ["bob:b"]
        assert await names(user="u2") == ["ada:a"]

    # -- erase

    async def test_what_is_erased_is_gone_and_nothing_else(self, talks: Conversations, team: SharedMemoryStore) -> None:
        await talks.append("a", [1, 2], tags={"user": "u", "agent": "x"}, state={"n": 1})
        await talks.append("b", [1], tags={"user": "u"})
        await talks.append("kept", [1], tags={"user": "other"})
        await talks.fork("a", "of-u")
        await talks.fork("a", "of-other", tags={"user": "other"})
        assert (await talks.erase(user="u", agent="x", dry_run=True)).conversations == 2

        erased = await talks.erase(user="u")

        assert (erased.conversations, erased.entries) == (3, 5)
        assert sorted(found.key[-4:] for found in (await talks.list()).conversations) == ["kept", "ther"]
        assert await read_all(talks, "of-other") == [1, 2]
        assert (await talks.erase(user="u")).conversations == 0
        assert (await team.conversations.erase(scope="ada")).conversations == 2
        assert await self.leftovers(team) == []

    async def test_nothing_of_others_is_erased(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        await ada.conversations.append("a", [1], tags={"user": "u"})

        with pytest.raises(AccessDeniedError):
            await bob.conversations.erase(user="u")

        assert await read_all(ada.conversations, "a") == [1]

    # -- rights and the feed

    async def test_an_actor_reads_all_conversations_and_writes_its_own(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        await ada.conversations.append("c", ["hers"])
        key = (await bob.conversations.list()).conversations[0].key

        assert await read_all(bob.conversations, key) == ["hers"]
        assert await read_all(bob.conversations, "c") == []
        for call in (
            bob.conversations.append(key, ["x"]),
            bob.conversations.pop(key),
            bob.conversations.clear(key),
            bob.conversations.delete(key),
            bob.conversations.fork(key, key + "2"),
            bob.conversations.patch_state(key, {"a": 1}),
            bob.conversations.expire(key, 60),
        ):
            with pytest.raises(AccessDeniedError):
                await call
        await bob.conversations.fork(key, "mine")
        assert await read_all(bob.conversations, "mine") == ["hers"]

    async def test_each_change_is_on_the_feed(self, talks: Conversations, team: SharedMemoryStore) -> None:
        await talks.append("c", ["a", "b"])
        await talks.patch_state("c", {"n": 1})
        await talks.pop("c")
        await talks.fork("c", "d")
        await talks.clear("c")
        await talks.expire("c", None)
        await talks.delete("c")

        wanted = ["append", "state", "pop", "fork", "clear", "expire", "delete"]
        changes = team.watch("c", since=0)
        seen = [await anext(changes) for name in wanted if name != "fork"]
        forked = await anext(team.watch("d", since=0))
        assert [change.operation for change in seen] == [f"conversation.{name}" for name in wanted if name != "fork"]
        assert forked.operation == "conversation.fork"
        assert {change.actor for change in seen} == {"ada"}

    # -- bad input

    @pytest.mark.parametrize(
        "call",
        [
            lambda c: c.append("", ["x"]),
            lambda c: c.append("a{b}", ["x"]),
            lambda c: c.append("c", "text"),
            lambda c: c.append("c", {"a": 1}),
            lambda c: c.append("c", [object()]),
            lambda c: c.append("c", ["ok", float("nan")]),
            lambda c: c.patch_state("c", {"a": "x" * 300_000}),
            lambda c: c.append("c", [1] * 1001),
            lambda c: c.append("c", [1, 2], entry_ids=["a"]),
            lambda c: c.append("c", [1, 2], entry_ids="ab"),
            lambda c: c.append("c", [1], entry_ids=[""]),
            lambda c: c.append("c", [1], entry_ids=["a\nb"]),
            lambda c: c.append("c", [1], entry_ids=["a\ud800"]),
            lambda c: c.append("c", [1], entry_ids=["x" * 129]),
            lambda c: c.append("c", [1], entry_ids=[7]),
            lambda c: c.append("c", [1], if_revision=-1),
            lambda c: c.append("c", [1], if_revision="1"),
            lambda c: c.append("c", [1], state=[1]),
            lambda c: c.append("c", [1], state={"": 1}),
            lambda c: c.append("c", [1], state={"a": object()}),
            lambda c: c.append("c", [1], ttl=0),
            lambda c: c.append("c", [1], ttl="1"),
            lambda c: c.append("c", [1], tags={"who": "x"}),
            lambda c: c.append("c", [1], tags={"user": ""}),
            lambda c: c.append("c", [1], tags={"user": "a\nb"}),
            lambda c: c.append("c", [1], tags={"user": "x" * 129}),
            lambda c: c.patch_state("c", {}),
            lambda c: c.read("c", last=0),
            lambda c: c.read("c", last=10_001),
            lambda c: c.read("c", last=True),
            lambda c: c.read("c", last=1, after="1"),
            lambda c: c.read("c", after=""),
            lambda c: c.pop("c", 0),
            lambda c: c.pop("c", 101),
            lambda c: c.fork("c", "global:space:d"),
            lambda c: c.list(order="best"),
            lambda c: c.list(cursor="x"),
            lambda c: c.list(limit=501),
            lambda c: c.list(user=7),
            lambda c: c.erase(),
            lambda c: c.erase(user=""),
        ],
    )
    async def test_bad_input_is_refused_and_changes_nothing(
        self, team: SharedMemoryStore, call: Callable[[Conversations], Awaitable[object]]
    ) -> None:
        with pytest.raises(InvalidError):
            await call(team.conversations)
        assert (await team.conversations.list()).conversations == []
