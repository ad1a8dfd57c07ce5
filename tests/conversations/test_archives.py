"""Archives, `clear`, `usage` and `doctor` know conversations, with a durable tier and without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import fakeredis
import pytest
from conformance.conversations import read_all
from support import embedded_fixtures

from sharedmem import Hub, InvalidError, Settings
from sharedmem.clock import new_id
from sharedmem.conversations.conversations import Conversations
from sharedmem.models import Conversation, ConversationPage, ConversationState
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir
LARGE = {"text": "x" * 5_000, "of": {1, 2}}
IDS = ["6f1e2d3c-0a1b-4c2d-8e3f-123456789abc", "plain ✓", "1795000000000000"]
KINDS = ["without a tier", "with a tier"]
Told = list[tuple[ConversationPage, ConversationState, Conversation | None]]


def settings_of(folder: Path, kind: str) -> Settings:
    folder.mkdir(exist_ok=True)
    found = Settings(data_dir=folder, blob_threshold_bytes=1_000, prefix=f"t{new_id(6)}")
    return found if kind == "without a tier" else found.replace(durable_url=f"sqlite://{folder}/durable.sqlite3")


@pytest.fixture(params=KINDS)
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hub]:
    async with fake_hub(settings=settings_of(tmp_path / "data", request.param)) as hub:
        yield hub


async def talks_of(hub: Hub) -> Conversations:
    """Conversations with all that they can have."""
    talks = hub.store("n", actor="ada").conversations
    for number in range(3):
        await talks.append("plain", [number], entry_ids=[f"e{number}"])
    await talks.append("c", [LARGE, {"n": 2**70}, b"\x00\nraw"], entry_ids=IDS, state={"a": [1], "b": {2}})
    await talks.append("c", ["no id"], tags={"user": 'u"\\1', "app": "a"})
    await talks.fork("c", "f", at=IDS[1])
    await talks.append("f", ["f", LARGE])
    await talks.append("n:ada:over", [1], ttl=5_000, renew=True)
    await hub.store("n").conversations.patch_state("none", {"n": 1})
    return talks


async def everything(talks: Conversations) -> Told:
    names = [found.key for found in (await talks.list()).conversations]
    assert names == ["n:shared:none", "n:ada:over", "n:ada:f", "n:ada:c", "n:ada:plain"]
    told = [(await talks.read(name), await talks.state(name), await talks.get(name)) for name in names]
    return [(page, state, head and head.model_copy(update={"ttl": None})) for page, state, head in told]


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst"])
async def test_conversations_come_back_as_they_were(hub: Hub, tmp_path: Path, target: str, suffix: str) -> None:
    talks = await talks_of(hub)
    if hub.settings.durable_url is not None:
        await hub.durable.drain("n")
    before, file = await everything(talks), tmp_path / f"a.{suffix}"
    exported = await hub.archive.export("n", file)

    async with fake_hub(settings=settings_of(tmp_path / "other", target), server=fakeredis.FakeServer()) as other:
        imported = await other.archive.import_(file)
        again = await other.archive.import_(file)
        back = other.store("n", actor="ada").conversations

        assert exported.left_out.count == imported.left_out.count == 0
        assert (imported.imported, again.imported + again.older) == (exported.documents, exported.documents)
        assert await everything(back) == before
        assert 4_900 < ((await back.get("over")) or before[0][2]).ttl <= 5_000  # type: ignore[union-attr,operator]
        change = await back.append("c", [1, "new"], entry_ids=[IDS[0], "new"], if_revision=before[3][0].revision)
        assert (change.added, change.revision > before[3][0].revision) == (1, True)
        assert await back.delete("c")
        assert (await read_all(back, "f"))[0] == LARGE


async def test_an_archive_has_the_bytes_of_large_entries_and_is_plain(hub: Hub, tmp_path: Path) -> None:
    await hub.store("n").conversations.append("c", ["y" * 5_000], entry_ids=["e"])
    if hub.settings.durable_url is not None:
        await hub.durable.drain("n")
    await hub.archive.export("n", tmp_path / "a.jsonl")

    documents = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    (entry,) = [one for one in documents if one.get("type") == "entry"]
    body = entry["body"] if isinstance(entry["body"], dict) else json.loads(entry["body"])
    assert body == {"id": "e", "actor": "shared", "value": "y" * 5_000}


async def test_what_was_changed_since_stays(hub: Hub, tmp_path: Path) -> None:
    talks = hub.store("n").conversations
    await talks.append("c", [0])
    await talks.append("gone", [0])
    await hub.archive.export("n", tmp_path / "a.jsonl")
    await talks.append("c", [1])
    await talks.delete("gone")

    await hub.archive.import_(tmp_path / "a.jsonl")

    assert await read_all(talks, "c") == [0, 1]
    assert await read_all(talks, "gone") == [0]
    assert not await hub.store("n").damaged_keys()


async def test_a_document_that_is_no_conversation_is_refused(tmp_path: Path) -> None:
    async with fake_hub(settings=settings_of(tmp_path, "without a tier")) as hub:
        await hub.store("n").conversations.append("c", [0])
        await hub.archive.export("n", tmp_path / "a.jsonl")
        await hub.store("n").clear()
        text = (tmp_path / "a.jsonl").read_text(encoding="utf-8").replace('\\"actor\\"', '\\"nobody\\"')
        assert '\\"nobody\\"' in text
        (tmp_path / "b.jsonl").write_text(text, encoding="utf-8")

        with pytest.raises(InvalidError):
            await hub.archive.import_(tmp_path / "b.jsonl")

        assert (await hub.store("n").conversations.list()).conversations == []


@pytest.fixture
async def durable_hub(data_dir: Path) -> AsyncIterator[Hub]:
    """A hub on a server of its own, with a durable tier."""
    async with Hub.open(settings=Settings(data_dir=data_dir, blob_threshold_bytes=1_000)) as hub:
        yield hub


async def test_usage_counts_conversations_and_clear_deletes_them(durable_hub: Hub) -> None:
    talks, store = await talks_of(durable_hub), durable_hub.store("n")
    before = await store.usage()
    assert before.types["list"].keys == 4
    assert before.keys >= 10
    assert not await store.damaged_keys()

    assert await store.clear() == before.keys

    assert (await store.usage()).keys == 0
    assert (await talks.list()).conversations == []
    assert await read_all(talks, "c") == []
    await durable_hub.durable.drain("n")
    assert not (await durable_hub.durable.verify("n")).differences
    assert (await talks.append("c", ["new"], if_revision=0)).length == 1
