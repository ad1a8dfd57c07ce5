"""docs/durable-format.md: notes outlive Redis, and are all there again before anything is asked of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis
from support import durable_hub_fixtures
from support.contexts import tier_of
from support.durable_graphs import drain_and_flush, reopen_sqlite
from support.notes import make_fresh_note, make_note, open_note_repository, put_notes, vector

from sharedmem import AccessDeniedError, Hub, Settings
from sharedmem.errors import DurabilityPendingError, UnavailableError
from sharedmem.models import DurableRecord, Put, SynthesisMessage
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.protocol import CommittedNotes, NewNote, NoteChange, StaleNotes
from sharedmem.testing import fake_hub

data_dir = durable_hub_fixtures.data_dir
settings = durable_hub_fixtures.settings
hub = durable_hub_fixtures.hub
Ask = Callable[[RedisNoteRepository], Awaitable[Any]]


@pytest.fixture
def repository(hub: Hub) -> RedisNoteRepository:
    return open_note_repository(hub, "research", "ada")


async def tell(repository: RedisNoteRepository, app: str = "a/b%") -> None:
    """A chain of two, a note that was archived, and one that was erased."""
    said = SynthesisMessage(role="user", content="Où? 日本 \\ “x”")
    made = await put_notes(
        repository,
        make_fresh_note("old", 1, app=app, messages=(said,), session_id="s 1"),
        make_fresh_note("gone", 1, app=app),
        make_fresh_note("kept away", 0, 1, app=app, user="b|b"),
        app=app,
    )
    done = await repository.commit(
        app,
        fresh=[make_fresh_note("new", 1, 0.5, app=app, sources=("old",), chain_id="old")],
        changes=[
            NoteChange(made["old"], status="updated", reason="consolidated", next_id="new"),
            NoteChange(made["kept away"], status="archived", drops_body=True, archival_location="x"),
        ],
        fences={"old": 7},
    )
    assert isinstance(done, CommittedNotes)
    await repository.erase(app, ["gone"])


async def answers(repository: RedisNoteRepository, app: str = "a/b%") -> dict[str, Any]:
    """All that can be asked of it."""
    hits, seen = await repository.near(app, vector(1), user_id="ada", statuses=("active", "updated"))
    return {"apps": await repository.apps(), "page": await repository.page(app), "hits": hits, "seen": seen}


@pytest.mark.parametrize(
    "ask",
    [
        answers,
        lambda repository: repository.get("a/b%", ["old", "gone"]),
        lambda repository: repository.near("a/b%", vector(0, 1)),
        lambda repository: repository.page("a/b%", after="new"),
        lambda repository: repository.apps(),
    ],
    ids=["all", "get", "near", "page", "apps"],
)
async def test_whatever_is_asked_first_after_a_loss_is_answered_as_before(
    hub: Hub, repository: RedisNoteRepository, ask: Ask
) -> None:
    await tell(repository)
    before = await ask(repository)
    await drain_and_flush(hub)

    assert await ask(repository) == before
    verified = await hub.durable.verify("research")
    assert (verified.differences, verified.waiting) == ([], 0)


async def test_after_a_loss_work_goes_on_where_it_stood(hub: Hub, repository: RedisNoteRepository) -> None:
    await tell(repository)
    _, seen = await repository.near("a/b%", vector(1), user_id="ada")
    read = (await repository.get("a/b%", ["new"]))["new"]
    await drain_and_flush(hub)

    again = await repository.commit("a/b%", fresh=[NewNote(make_note("new", app="a/b%"), vector(1))])
    late = await repository.commit(
        "a/b%", fresh=[make_fresh_note("next", 1, app="a/b%")], seen=seen._replace(version=1)
    )
    done = await repository.commit(
        "a/b%",
        fresh=[make_fresh_note("next", 1, app="a/b%")],
        changes=[NoteChange(read, status="updated", next_id="next")],
        seen=seen,
    )

    assert again == CommittedNotes({"new": read}, is_new=False)
    assert late == StaleNotes(())
    assert isinstance(done, CommittedNotes)
    assert await repository.erase("a/b%", ["old", "kept away"]) == 2
    before = await answers(repository)
    await drain_and_flush(hub)
    assert await answers(repository) == before
    assert [one.id for one in before["page"]] == ["new", "next"]


async def test_the_first_commit_after_a_loss_sees_what_there_was(hub: Hub, repository: RedisNoteRepository) -> None:
    await tell(repository)
    await drain_and_flush(hub)

    assert await repository.commit("a/b%", fresh=[make_fresh_note("old", app="a/b%", task_id="another")]) == StaleNotes(
        ("old",)
    )


async def test_vectors_come_back_as_they_were(hub: Hub, repository: RedisNoteRepository) -> None:
    await tell(repository)
    async with Redis.from_url(hub.url) as raw:

        async def vectors() -> dict[bytes, Any]:
            return {key: await raw.hget(key, "vector") async for key in raw.scan_iter(match="sm:$note:{research}:*")}

        before = await vectors()
        await drain_and_flush(hub)
        await repository.apps()

        assert await vectors() == before
    assert sum(one is not None for one in before.values()) == 2


async def test_an_archive_carries_notes_to_another_place(
    hub: Hub, repository: RedisNoteRepository, tmp_path: Path
) -> None:
    await tell(repository)
    await hub.durable.drain("research", timeout=60)
    before = await answers(repository)
    await hub.archive.export("research", tmp_path / "research.jsonl.gz")
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/other.db")
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as other:
        far = open_note_repository(other, "research")
        await put_notes(far, make_fresh_note("here", 1))

        await other.archive.import_(tmp_path / "research.jsonl.gz")

        assert await far.apps() == ["a/b%", "desk"]
        assert await far.page("a/b%") == before["page"]
        assert [hit.note.id for hit in (await far.near("a/b%", vector(1)))[0]] == ["new"]

    await hub.store("research").clear()
    assert await repository.apps() == []
    await hub.archive.import_(tmp_path / "research.jsonl.gz")
    assert (await answers(repository))["page"] == before["page"]


async def test_a_server_without_a_query_engine_has_them_back_too(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/tier.db")
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as hub:
        await tell(open_note_repository(hub, "research"))
        before = await answers(open_note_repository(hub, "research"))
        await hub.durable.drain("research", timeout=60)
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as anew:
        assert await answers(open_note_repository(anew, "research")) == before


async def test_a_server_that_was_set_back_in_time_gets_what_came_later(hub: Hub, settings: Settings) -> None:
    repository = open_note_repository(hub, "research")
    await put_notes(
        repository,
        make_fresh_note("early", 1, chain_id="c"),
        make_fresh_note("late", 1),
        make_fresh_note("erased", 1, user="bob"),
    )
    await hub.durable.drain("research", timeout=60)
    async with Redis.from_url(hub.url) as raw:
        keys = [key async for key in raw.scan_iter(match="*{research}*")]
        before = {key: await raw.dump(key) for key in keys}
        read = await repository.get("desk", ["early", "late"])
        await repository.commit("desk", changes=[NoteChange(read["early"], status="deleted", chain_id="late")])
        await repository.erase("desk", ["erased"])
        told = await answers(repository, "desk")
        await hub.durable.drain("research", timeout=60)
        now = [key async for key in raw.scan_iter(match="*{research}*")]
        async with raw.pipeline(transaction=True) as at_once:
            at_once.unlink(*now)
            for key, held in before.items():
                if held is not None:
                    at_once.restore(key, 0, held, replace=True)
            await at_once.execute()

        async with Hub.open(settings=settings, embedder=HashingEmbedder()) as later:
            found = await answers(open_note_repository(later, "research"), "desk")
            verified = await later.durable.verify("research")
        beside = [await raw.hgetall(f"sm:{{research}}:$note.{part}:desk") for part in ("users", "chains")]

    assert found == told
    assert verified.differences == []
    assert [{key: value.split()[0] for key, value in one.items()} for one in beside] == [
        {b"ada": b"2"},
        {b"late": b"2"},
    ]


async def test_a_note_that_was_changed_behind_the_back_of_the_tier_is_told(
    hub: Hub, repository: RedisNoteRepository
) -> None:
    await tell(repository)
    await hub.durable.drain("research", timeout=60)
    async with Redis.from_url(hub.url) as raw:
        await raw.hset("sm:$note:{research}:a%2Fb%25/new", "status", "deleted")

    (difference,) = (await hub.durable.verify("research")).differences

    assert (difference.key, difference.element) == ("research:$note:a%2Fb%25/new", "status")


async def test_each_note_is_a_document_that_other_programs_can_read(
    hub: Hub, repository: RedisNoteRepository, settings: Settings
) -> None:
    await tell(repository)
    await hub.durable.drain("research", timeout=60)

    async with reopen_sqlite(settings) as tier:
        (new,) = await tier.query("research", of_type="note", where={"id": "new", "app_id": "a/b%"}, limit=10)

    told = orjson.loads(new.body)
    assert (told["memory_note"], told["sources"], told["version"]) == ("What new says.", ["old"], new.version)
    assert told["embedding"]


async def test_a_tier_that_is_waited_for_and_away_is_told_and_nothing_is_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = settings.replace(log_durability="through")
    async with Hub.open(settings=through, embedder=HashingEmbedder()) as hub:
        repository = open_note_repository(hub, "research")
        await put_notes(repository, make_fresh_note("a", 1))

        async def away(records: list[DurableRecord]) -> list[Put]:
            raise UnavailableError("the tier", f"it is away, with {len(records)} documents for it")

        monkeypatch.setattr(tier_of(hub).store, "put", away)
        with pytest.raises(DurabilityPendingError):
            await repository.commit("desk", fresh=[make_fresh_note("b", 1)])
        with pytest.raises(DurabilityPendingError):
            await repository.erase("desk", ["a"])
        monkeypatch.undo()

        await drain_and_flush(hub)
        assert [one.id for one in await repository.page("desk")] == ["b"]


async def test_commits_while_notes_come_back_lose_nothing(hub: Hub, settings: Settings) -> None:
    repository = open_note_repository(hub, "research")
    await put_notes(repository, *(make_fresh_note(f"n{number:03}", 1) for number in range(100)))
    await drain_and_flush(hub)

    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as other:
        late = open_note_repository(other, "research")
        await asyncio.gather(
            *(late.commit("desk", fresh=[make_fresh_note(f"late{number}", 1)]) for number in range(10)),
            repository.page("desk"),
        )

        assert len(await late.page("desk")) == 110


async def test_an_index_that_is_built_anew_for_another_embedder_finds_notes_again(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/tier.db")
    embedder = HashingEmbedder(32)
    async with fake_hub(settings=settings, embedder=embedder) as hub:
        repository = open_note_repository(hub, "research")
        await repository.commit("desk", fresh=[make_fresh_note("bare"), make_fresh_note("gone", memory_note="")])
        (asked,) = (await embedder.embed(["What bare says."])).vectors
        assert (await repository.near("desk", asked))[0] == []

        await hub.index.rebuild("research", family="note")

        (hit,) = (await repository.near("desk", asked))[0]
        assert (hit.note.id, round(hit.similarity, 2)) == ("bare", 1.0)
        assert await hub.index.check("research") == []


async def test_a_redis_user_of_one_namespace_reaches_its_notes_and_no_others(hub: Hub, settings: Settings) -> None:
    await put_notes(open_note_repository(hub, "payroll"), make_fresh_note("theirs", 1))
    await put_notes(open_note_repository(hub, "research"), make_fresh_note("ours", 1))
    await hub.index.promote("research", family="note")
    await hub.store("research", actor="ada").access.apply("ada", password="correct horse")
    limited = settings.replace(redis_url=hub.url, redis_username="ada", redis_password="correct horse")
    async with Hub.open(settings=limited, embedder=HashingEmbedder()) as other:
        repository = open_note_repository(other, "research", "ada")
        hits, seen = await repository.near("desk", vector(1), user_id="ada")
        assert [hit.note.id for hit in hits] == ["ours"]
        done = await repository.commit(
            "desk", fresh=[make_fresh_note("new", 1)], changes=[NoteChange(hits[0].note)], seen=seen
        )
        assert isinstance(done, CommittedNotes)
        await repository.remember("desk", {"d": b"x"}, ttl_s=60)
        assert await repository.erase("desk", ["new"]) == 1

        theirs = open_note_repository(other, "payroll", "ada")
        for refused in (
            theirs.get("desk", ["theirs"]),
            theirs.page("desk"),
            theirs.near("desk", vector(1)),
            theirs.commit("desk", fresh=[make_fresh_note("mine", 1)]),
            theirs.erase("desk", ["theirs"]),
            theirs.remembered("desk", ["d"]),
        ):
            with pytest.raises(AccessDeniedError):
                await refused
