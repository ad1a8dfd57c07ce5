"""Notes are kept all or nothing, each app for itself, on a server and without."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import numpy as np
import orjson
import pytest
from support.backends import OnFakeredis
from support.contexts import client_of, knowledge_of
from support.notes import BEGAN, make_fresh_note, make_note, open_note_repository, put_notes, vector
from support.redis_graph_fixtures import keys_left

from sharedmem import Hub, InvalidError, UnavailableError
from sharedmem.clock import new_id
from sharedmem.models import Note, NoteLink, NoteStatus, SynthesisMessage
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.protocol import (
    CommittedNotes,
    NewNote,
    NoteChange,
    NoteRepository,
    StaleNotes,
    UserNotesVersion,
)

ODD = ("app/1", "app%2F1", "*", "a b", "ünï😀", 'it\'s "so" | @x', "-")

NEW_FIELDS = {"consolidation", "conversation_complexity", "embedding_dimensions"}
"""Fields that notes of earlier versions do not have."""


class NoteRepositorySuite:
    """What a repository does, with every search backend."""

    @pytest.fixture
    async def namespace(self, hub: Hub) -> AsyncIterator[str]:
        name = f"test-{new_id(8)}"
        yield name
        await hub.store(name).clear()

    @pytest.fixture
    def repository(self, hub: Hub, namespace: str) -> RedisNoteRepository:
        return open_note_repository(hub, namespace)

    async def test_what_was_committed_is_there_as_it_was(self, repository: RedisNoteRepository) -> None:
        said = SynthesisMessage(role="user", content="Où? 日本 “quoted” \\ \x1f", timestamp=BEGAN)
        told = make_note("n1", messages=(said,), tags=("a", "b"), session_id="s", interaction_quality="high")

        done = await repository.commit("desk", fresh=[NewNote(told, vector(1))])

        assert isinstance(done, CommittedNotes)
        assert done.is_new
        assert done.notes["n1"].version > 0
        stored = {"version": done.notes["n1"].version, "embedding_dimensions": len(vector(1))}
        assert done.notes["n1"] == told.model_copy(update=stored)
        assert await repository.get("desk", ["n1", "none"]) == dict(done.notes)

    async def test_a_note_of_an_earlier_version_is_read_with_links_that_are_bare_ids(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        link = NoteLink(memory_id="old", similarity_score=0.8, composite_score=0.9, link_strength=0.9)
        await put_notes(repository, make_fresh_note("n1", 1, links=(link,)))
        key = knowledge_of(hub).keyspace.record("note", namespace, "desk/n1")
        client = client_of(hub)
        body = orjson.loads(cast("bytes", await client.call("HGET", key, "body")))
        assert body["links"][0]["link_strength"] == 0.9
        earlier = {name: value for name, value in body.items() if name not in NEW_FIELDS} | {"links": ["old", "older"]}
        await client.call("HSET", key, "body", orjson.dumps(earlier))

        note = (await repository.get("desk", ["n1"]))["n1"]

        assert note.links == (NoteLink(memory_id="old"), NoteLink(memory_id="older"))
        assert (note.consolidation, note.conversation_complexity, note.embedding_dimensions) == (None, None, None)

    async def test_a_shelf_is_what_the_protocol_says(self, repository: RedisNoteRepository) -> None:
        protocol: NoteRepository = repository

        assert isinstance(await protocol.commit("desk"), CommittedNotes)
        assert await protocol.get("desk", []) == {}
        assert (await protocol.page("desk"), await protocol.apps()) == ([], [])
        assert (await protocol.near("desk", vector(1), user_id="ada")) == ([], UserNotesVersion("desk", "ada", 0))

    async def test_a_change_keeps_what_it_does_not_name(self, repository: RedisNoteRepository) -> None:
        before = await put_notes(repository, make_fresh_note("old", 1, tags=("x",)), make_fresh_note("other", 1))
        new = make_note("new", sources=("old",))

        done = await repository.commit(
            "desk",
            fresh=[NewNote(new, vector(1))],
            changes=[
                NoteChange(before["old"], status="updated", reason="consolidated", next_id="new", chain_id="c"),
                NoteChange(before["other"]),
            ],
        )

        assert isinstance(done, CommittedNotes)
        found = await repository.get("desk", ["old", "other", "new"])
        assert found == dict(done.notes)
        old, other = found["old"], found["other"]
        assert (old.status, old.status_reason, old.next_id, old.chain_id) == ("updated", "consolidated", "new", "c")
        assert (old.tags, old.memory_note, old.created_at) == (("x",), "What old says.", BEGAN)
        assert old.updated_at > BEGAN
        assert other.updated_at > BEGAN
        assert other.version > before["other"].version
        restored = await repository.commit("desk", changes=[NoteChange(old, status="active", clears_next=True)])
        assert isinstance(restored, CommittedNotes)
        assert restored.notes["old"].next_id is None

    async def test_one_stale_version_stops_all(self, repository: RedisNoteRepository) -> None:
        before = await put_notes(repository, make_fresh_note("a", 1), make_fresh_note("b", 1))
        await repository.commit("desk", changes=[NoteChange(before["b"])])
        now = await repository.get("desk", ["a", "b"])

        done = await repository.commit(
            "desk",
            fresh=[make_fresh_note("c", 1)],
            changes=[NoteChange(before["a"], status="deleted"), NoteChange(before["b"], status="deleted")],
        )

        assert done == StaleNotes(("b",))
        assert await repository.get("desk", ["a", "b", "c"]) == now

    async def test_a_note_that_has_gone_is_named(self, repository: RedisNoteRepository) -> None:
        before = await put_notes(repository, make_fresh_note("a", 1))
        await repository.erase("desk", ["a"])

        assert await repository.commit("desk", changes=[NoteChange(before["a"])]) == StaleNotes(("a",))

    async def test_a_repeat_answers_what_is_there_and_changes_nothing(self, repository: RedisNoteRepository) -> None:
        before = await put_notes(repository, make_fresh_note("old", 1))
        step: dict[str, Any] = {
            "fresh": [make_fresh_note("new", 1)],
            "changes": [NoteChange(before["old"], status="updated", next_id="new")],
        }
        first = await repository.commit("desk", **step)
        assert isinstance(first, CommittedNotes)

        again = await repository.commit("desk", **step)

        assert again == CommittedNotes(dict(first.notes), is_new=False)
        other = make_note("new", task_id="another")
        assert await repository.commit("desk", fresh=[NewNote(other, None)]) == StaleNotes(("new",))
        nameless = make_note("new", task_id=None)
        assert await repository.commit("desk", fresh=[NewNote(nameless, None)]) == StaleNotes(("new",))

    async def test_what_is_less_similar_than_asked_for_is_not_near(self, repository: RedisNoteRepository) -> None:
        await put_notes(
            repository, make_fresh_note("same", 1), make_fresh_note("half", 1, 1), make_fresh_note("no", 0, 1)
        )

        hits, seen = await repository.near("desk", vector(1), user_id="ada", least_similarity=0.6)

        assert [hit.note.id for hit in hits] == ["same", "half"]
        none, same = await repository.near("desk", vector(0, 0, 1), user_id="ada", least_similarity=0.6)
        assert none == []
        assert same == seen

    async def test_who_has_not_seen_the_newest_note_of_a_user_is_behind(self, repository: RedisNoteRepository) -> None:
        _, seen = await repository.near("desk", vector(1), user_id="ada")
        await put_notes(repository, make_fresh_note("theirs", 1, user="bob"))
        assert isinstance(
            await repository.commit("desk", fresh=[make_fresh_note("first", 1)], seen=seen), CommittedNotes
        )

        assert await repository.commit("desk", fresh=[make_fresh_note("second", 1)], seen=seen) == StaleNotes(())

        hits, seen = await repository.near("desk", vector(1), user_id="ada")
        assert [hit.note.id for hit in hits] == ["first"]
        assert isinstance(
            await repository.commit("desk", fresh=[make_fresh_note("second", 1)], seen=seen), CommittedNotes
        )

    @pytest.mark.parametrize(
        ("status", "counts"), [("conflict_pending", True), ("updated", False), ("archived", False)]
    )
    async def test_only_what_is_searched_for_makes_others_search_again(
        self, repository: RedisNoteRepository, status: NoteStatus, counts: bool
    ) -> None:
        _, seen = await repository.near("desk", vector(1), user_id="ada")
        await put_notes(repository, make_fresh_note("a", 1, status=status))

        done = await repository.commit("desk", fresh=[make_fresh_note("b", 1)], seen=seen)

        assert isinstance(done, StaleNotes if counts else CommittedNotes)

    async def test_a_note_that_retires_makes_others_search_again(self, repository: RedisNoteRepository) -> None:
        before = await put_notes(repository, make_fresh_note("a", 1))
        _, seen = await repository.near("desk", vector(1), user_id="ada")
        await repository.commit("desk", changes=[NoteChange(before["a"], status="deleted")])

        assert await repository.commit("desk", fresh=[make_fresh_note("b", 1)], seen=seen) == StaleNotes(())

    async def test_of_two_who_have_seen_the_same_one_wins(self, repository: RedisNoteRepository) -> None:
        _, seen = await repository.near("desk", vector(1), user_id="ada")

        done = await asyncio.gather(
            *(repository.commit("desk", fresh=[make_fresh_note(f"n{i}", 1)], seen=seen) for i in range(8))
        )

        assert sorted(type(one).__name__ for one in done) == ["CommittedNotes"] + ["StaleNotes"] * 7
        assert len(await repository.page("desk")) == 1

    async def test_erasing_the_newest_note_blocks_no_other_call(self, repository: RedisNoteRepository) -> None:
        await put_notes(repository, make_fresh_note("a", 1))
        await put_notes(repository, make_fresh_note("b", 1), make_fresh_note("c", 1, user="bob"))
        await repository.erase("desk", ["b"])
        _, seen = await repository.near("desk", vector(1), user_id="ada")

        assert isinstance(await repository.commit("desk", fresh=[make_fresh_note("d", 1)], seen=seen), CommittedNotes)
        await repository.erase("desk", ["a", "c", "d"])
        _, seen = await repository.near("desk", vector(1), user_id="ada")
        assert isinstance(await repository.commit("desk", fresh=[make_fresh_note("e", 1)], seen=seen), CommittedNotes)

    async def test_a_lower_token_of_a_chain_is_behind(self, repository: RedisNoteRepository) -> None:
        before = await put_notes(
            repository, make_fresh_note("a", 1, chain_id="one"), make_fresh_note("b", 1, chain_id="two")
        )
        done = await repository.commit("desk", changes=[NoteChange(before["a"])], fences={"one": 7, "two": 9})
        assert isinstance(done, CommittedNotes)

        late = await repository.commit("desk", changes=[NoteChange(before["b"])], fences={"one": 7, "two": 8})
        same = await repository.commit("desk", changes=[NoteChange(before["b"])], fences={"one": 8, "two": 9})

        assert late == StaleNotes(("two",))
        assert isinstance(same, CommittedNotes)

    async def test_tokens_go_with_the_last_note_of_their_chain(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        before = await put_notes(repository, make_fresh_note("a", 1), make_fresh_note("b", 1, chain_id="a"))
        await repository.commit(
            "desk", changes=[NoteChange(before["b"], chain_id="z")], fences={"a": 3, "z": 4, "none": 5}
        )

        async def chains() -> object:
            context = knowledge_of(hub)
            key = context.keyspace.record_item("note", namespace, "chains", "desk")
            found = await context.client.call("HGETALL", key)
            return sorted(zip(found[::2], found[1::2], strict=True)) if isinstance(found, list) else found

        assert await chains() == [(b"a", b"1 3"), (b"z", b"1 4")]
        await repository.erase("desk", ["a", "b", "never"])
        assert await chains() == []

    async def test_the_nearest_come_first_with_their_similarity(self, repository: RedisNoteRepository) -> None:
        await put_notes(
            repository,
            make_fresh_note("half", 1, 1),
            make_fresh_note("same", 2),
            make_fresh_note("across", 0, 1),
            make_fresh_note("back", -1),
            make_fresh_note("bare"),
        )

        hits, _ = await repository.near("desk", vector(1))

        assert [hit.note.id for hit in hits][:2] == ["same", "half"]
        assert {hit.note.id for hit in hits} == {"same", "half", "across", "back"}
        assert [round(hit.similarity, 2) for hit in hits] == [1.0, 0.71, 0.0, 0.0]
        assert [hit.note.id for hit in (await repository.near("desk", vector(1), k=1))[0]] == ["same"]

    async def test_notes_are_found_by_status_user_and_session(self, repository: RedisNoteRepository) -> None:
        for number, status in enumerate(("active", "conflict_pending", "updated", "deleted", "archived")):
            await put_notes(repository, make_fresh_note(status, 1, status=status, session_id=f"s{number % 2}"))
        await put_notes(repository, make_fresh_note("theirs", 1, user="bob"))

        async def ids(**how: Any) -> set[str]:
            return {hit.note.id for hit in (await repository.near("desk", vector(1), **how))[0]}

        assert await ids() == {"active", "theirs"}
        assert await ids(user_id="ada", statuses=("active", "conflict_pending")) == {"active", "conflict_pending"}
        assert await ids(user_id="ada", statuses=("active", "updated", "deleted"), session_id="s0") == {
            "active",
            "updated",
        }
        assert await ids(user_id="nobody") == await ids(user_id="a*") == await ids(user_id="ada|bob") == set()

    async def test_an_archived_note_loses_text_and_vector_and_gets_them_back(
        self, repository: RedisNoteRepository
    ) -> None:
        said = SynthesisMessage(role="user", content="where?")
        before = (await put_notes(repository, make_fresh_note("a", 1, messages=(said,), tags=("t",))))["a"]

        away = await repository.commit(
            "desk",
            changes=[
                NoteChange(
                    before,
                    status="archived",
                    reason="age_decay",
                    drops_body=True,
                    archived_at=BEGAN,
                    archival_location="x",
                )
            ],
        )

        assert isinstance(away, CommittedNotes)
        bare = away.notes["a"]
        assert (bare.memory_note, bare.messages, bare.tags) == ("", (), ("t",))
        assert (bare.status, bare.archived_at, bare.archival_location) == ("archived", BEGAN, "x")
        assert (await repository.get("desk", ["a"]))["a"] == bare
        every: tuple[NoteStatus, ...] = ("active", "archived")
        assert (await repository.near("desk", vector(1), statuses=every))[0] == []

        back = await repository.commit(
            "desk", changes=[NoteChange(bare, status="active", body=before, vector=vector(1))]
        )

        assert isinstance(back, CommittedNotes)
        assert (back.notes["a"].memory_note, back.notes["a"].messages) == (before.memory_note, (said,))
        assert (back.notes["a"].archived_at, back.notes["a"].archival_location) == (None, None)
        assert [hit.note for hit in (await repository.near("desk", vector(1)))[0]] == [back.notes["a"]]

    async def test_each_app_user_and_namespace_keeps_to_itself(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        for name in ODD:
            await put_notes(repository, make_fresh_note(name, 1, app=name, user=name, session_id=name), app=name)
        other = open_note_repository(hub, f"{namespace}-other")
        await put_notes(other, make_fresh_note("far", 1, app="*"), app="*")

        assert await repository.apps() == sorted(ODD)
        for name in ODD:
            hits, _ = await repository.near(name, vector(1), user_id=name, session_id=name)
            assert [hit.note.id for hit in hits] == [one.id for one in await repository.page(name)] == [name]
            assert (await repository.get(name, ODD)).keys() == {name}
            for stranger in ODD:
                found, _ = await repository.near(name, vector(1), user_id=stranger)
                assert bool(found) == (stranger == name)
        assert await repository.erase("*", ODD) == 1
        assert [one.id for one in await other.page("*")] == ["far"]
        assert await repository.apps() == sorted({*ODD} - {"*"})
        await hub.store(f"{namespace}-other").clear()

    @pytest.mark.parametrize("bad", ["", " ", "a{b}", "a\nb", "a\x00", "x" * 257, "\ud800"])
    async def test_what_can_be_no_name_is_refused(self, repository: RedisNoteRepository, bad: str) -> None:
        with pytest.raises(InvalidError):
            await repository.page(bad)
        with pytest.raises(InvalidError):
            await repository.get("desk", [bad])
        with pytest.raises(InvalidError):
            await repository.remembered("desk", [bad])
        if bad != "a{b}" and "\n" not in bad and "\x00" not in bad:
            with pytest.raises(InvalidError):
                await repository.near("desk", vector(1), user_id=bad)

    async def test_what_does_not_belong_together_is_refused(self, repository: RedisNoteRepository) -> None:
        kept = (await put_notes(repository, make_fresh_note("a", 1)))["a"]
        refusals: tuple[dict[str, Any], ...] = (
            {"fresh": [make_fresh_note("b", app="else")]},
            {"fresh": [make_fresh_note("b"), make_fresh_note("b")]},
            {"fresh": [make_fresh_note("a{")]},
            {"fresh": [make_fresh_note("b", user="")]},
            {"fresh": [NewNote(make_note("b"), np.ones(3, dtype=np.float32))]},
            {"changes": [NoteChange(make_note("a"))]},
            {"changes": [NoteChange(kept, drops_body=True, vector=vector(1))]},
            {"changes": [NoteChange(kept, clears_next=True, next_id="b")]},
            {"changes": [NoteChange(kept, body=make_note("b"))]},
            {"changes": [NoteChange(kept, body=kept, archival_location="x")]},
            {"fresh": [make_fresh_note("b")], "seen": UserNotesVersion("else", "ada", 0)},
        )
        for refused in refusals:
            with pytest.raises(InvalidError):
                await repository.commit("desk", **refused)
        with pytest.raises(InvalidError):
            await repository.near("desk", vector(1), statuses=())
        with pytest.raises(InvalidError):
            await repository.page("desk", limit=0)
        assert await repository.page("desk") == [kept]

    async def test_the_whole_app_comes_page_by_page(self, repository: RedisNoteRepository) -> None:
        ids = sorted(f"n{number:02}" for number in range(11))
        await put_notes(
            repository, *(make_fresh_note(id_, messages=(SynthesisMessage(role="user", content=id_),)) for id_ in ids)
        )

        found: list[Note] = []
        while page := await repository.page("desk", after=found[-1].id if found else "", limit=4):
            found += page

        assert [one.id for one in found] == ids
        assert [one.messages[0].content for one in found] == ids

    async def test_what_was_erased_leaves_nothing(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        await put_notes(repository, make_fresh_note("a", 1), make_fresh_note("b", 1, user="bob"))

        assert await repository.erase("desk", ["a", "a", "never"]) == 1
        assert [one.id for one in await repository.page("desk")] == ["b"]
        assert await repository.erase("desk", ["a", "b"]) == 1

        assert (await repository.near("desk", vector(1)))[0] == []
        assert await repository.apps() == []
        assert [key for key in await keys_left(hub, namespace) if b"$note" in key] == []

    async def test_what_lies_beside_notes_follows_them_whatever_happens(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        chance, context = random.Random(7), knowledge_of(hub)
        for number in range(60):
            known = {one.id: one for one in await repository.page("desk")}
            some = chance.sample(sorted(known), min(len(known), chance.randrange(3)))
            if number % 5 == 4:
                await repository.erase("desk", some)
                continue
            statuses: list[NoteStatus] = chance.choices(("active", "updated", "conflict_pending"), k=3)
            changes = [
                NoteChange(known[id_], status=statuses[at], chain_id=chance.choice("xyz"))
                for at, id_ in enumerate(some)
            ]
            new = make_fresh_note(
                f"n{number}", 1, user=chance.choice("ab"), chain_id=chance.choice("xyz"), status=statuses[2]
            )
            fences = dict.fromkeys(chance.sample("xyz", 2), number)
            assert isinstance(
                await repository.commit("desk", fresh=[new], changes=changes, fences=fences), CommittedNotes
            )

        async def beside(part: str) -> dict[str, int]:
            key = context.keyspace.record_item("note", namespace, part, "desk")
            found = await context.client.call("HGETALL", key)
            words = [one.decode() for one in found if isinstance(one, bytes)] if isinstance(found, list) else []
            return {field: int(value.split()[0]) for field, value in zip(words[::2], words[1::2], strict=True)}

        notes = await repository.page("desk")
        assert len(notes) > 5
        assert await beside("users") == Counter(one.user_id for one in notes)
        assert await beside("chains") == Counter(one.chain_id for one in notes)
        log = await context.client.call("ZCARD", context.keyspace.record_log("note", namespace))
        assert log == len(notes)
        found, _ = await repository.near("desk", vector(1), k=100)
        assert {hit.note.id for hit in found} == {one.id for one in notes if one.status == "active"}

    async def test_while_the_namespace_is_being_cleared_nothing_is_written(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        context = knowledge_of(hub)
        await put_notes(repository, make_fresh_note("a", 1))
        clock = context.keyspace.space(namespace).clock
        last = await context.client.call("GET", clock)
        assert isinstance(last, bytes)
        await context.client.call("SET", clock, last + b" 9999999999999999")

        with pytest.raises(UnavailableError, match="being cleared"):
            await repository.commit("desk", fresh=[make_fresh_note("b", 1)])
        with pytest.raises(UnavailableError, match="being cleared"):
            await repository.erase("desk", ["a"])

        await context.client.call("SET", clock, last)
        assert [one.id for one in await repository.page("desk")] == ["a"]

    async def test_answers_are_remembered_for_a_while(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        await repository.remember("desk", {"d1": b"\x00yes", "d2": b""}, ttl_s=60)

        assert await repository.remembered("desk", ["d1", "d2", "d3"]) == {"d1": b"\x00yes", "d2": b""}
        assert await repository.remembered("other", ["d1"]) == await repository.remembered("desk", []) == {}
        (key, _) = sorted(key for key in await keys_left(hub, namespace) if b"$note.answer" in key)
        left_ms = await knowledge_of(hub).client.call("PTTL", key)
        assert isinstance(left_ms, int)
        assert 0 < left_ms <= 60_000
        with pytest.raises(InvalidError):
            await repository.remember("desk", {"d1": b""}, ttl_s=0)

    async def test_answers_of_one_app_can_be_dropped(self, repository: RedisNoteRepository) -> None:
        for app in ODD:
            await repository.remember(app, {"d": app.encode(), "e": b""}, ttl_s=60)

        assert await repository.clear_answers("*") == 2

        assert [await repository.remembered(app, ["d"]) for app in ODD if app != "*"] == [
            {"d": app.encode()} for app in ODD if app != "*"
        ]
        assert await repository.remembered("*", ["d", "e"]) == {}

    async def test_each_note_is_told_of_on_the_change_stream(
        self, repository: RedisNoteRepository, hub: Hub, namespace: str
    ) -> None:
        made = await put_notes(repository, make_fresh_note("a", 1, status="conflict_pending"))
        done = await repository.commit("desk", changes=[NoteChange(made["a"], status="active")])
        assert isinstance(done, CommittedNotes)
        await repository.commit("desk", changes=[NoteChange(done.notes["a"], links=(NoteLink(memory_id="x"),))])
        await repository.erase("desk", ["a"])

        feed = hub.store(namespace).watch(f"{namespace}:*", since=0)
        changes = [await anext(feed) for _ in range(4)]

        assert [change.operation for change in changes] == [
            "note.created",
            "note.active",
            "note.changed",
            "note.erased",
        ]
        assert {change.key for change in changes} == {f"{namespace}:$note:desk/a"}
        assert changes[0].version == made["a"].version


class TestNotesOnFakeredis(OnFakeredis, NoteRepositorySuite):
    """Every promise, on fakeredis."""


class TestNotesOnARealServer(NoteRepositorySuite):
    """Every promise, on a real server."""
