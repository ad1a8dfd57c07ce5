"""Archives over HTTP: a namespace out and in again, damage that changes nothing, and no other namespace."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import NamedTuple

import pytest
from backports import zstd
from support import backends
from support.asgi_client import AsgiCaller
from support.contexts import client_of

from sharedmem import Hub
from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.rest import RestApplication, RestOptions, create_app
from sharedmem.faces.rest.archives import ArchiveEndpoints, ArchiveOptions

EXPORT, IMPORT = "/namespace/export", "/namespace/import"


class Room(NamedTuple):
    """A service, and who asks it."""

    hub: Hub
    app: RestApplication
    owner: AsgiCaller
    """Speaks for the namespace `desk` itself."""
    actor: AsgiCaller
    other: AsgiCaller
    """Speaks for the namespace `lobby`."""


hub = backends.hub_on_fakeredis


@pytest.fixture
def room(hub: Hub) -> Room:
    made = [new_token(bearer) for bearer in (Bearer.of("desk"), Bearer.of("desk", actor="ada"), Bearer.of("lobby"))]
    small = [
        replace(endpoint, path=f"/small{endpoint.path}", name=f"small.{endpoint.name}")
        for endpoint in ArchiveEndpoints(ArchiveOptions(most_import_bytes=100_000, most_each=1)).endpoints()
    ]
    admission = TokenFile(entry for _, entry in made)
    app = create_app(hub, admission=admission, endpoints=small, terms=RestOptions(body_patience_s=0.2))
    return Room(hub, app, *(AsgiCaller(app, token) for token, _ in made))


async def filled(hub: Hub) -> None:
    store = hub.store("desk", actor="ada")
    await store.write("topic", {"name": "news", "more": [1, 2.5, None, "ü"]})
    await store.hset("facts", mapping={"a": 1})
    await store.append("list", "x")
    await store.sadd("members", "m", "n")
    await store.incr("count", 41)
    await hub.store("lobby").write("lobby-secret", "not yours")


async def content(hub: Hub) -> object:
    store = hub.store("desk", actor="ada")
    return (
        await store.entry("topic"),
        await store.hgetall("facts"),
        await store.read_list("list"),
        await store.smembers("members"),
        await store.incr("count", 0),
    )


def archive(*records: dict[str, object], namespace: str = "desk") -> bytes:
    """An archive as anybody can write one by hand."""
    digest = hashlib.sha256().hexdigest()
    lines = [json.dumps(record).encode() for record in records]
    for line in lines:
        digest = hashlib.sha256(digest.encode() + line).hexdigest()
    head = {"sharedmem": "archive", "format": 1, "version": "1", "namespace": namespace, "exported": "", "source": ""}
    end = {"sharedmem": "end", "documents": len(records), "keys": len(records), "highest": 1, "digest": digest}
    compact = {"separators": (",", ":")}
    first, last = (json.dumps(line, **compact).encode() for line in (head, end))  # type: ignore[arg-type]  # as json has it
    return b"".join(line + b"\n" for line in (first, *lines, last))


def value(key: str, body: str = '"planted"') -> dict[str, object]:
    version = 1_800_000_000_000_000
    return {"key": key, "type": "value", "kind": "session", "version": version, "stamp": version, "body": body}


# -- out and in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", ["true", "false"])
async def test_a_namespace_goes_out_and_comes_in_again(room: Room, compressed: str) -> None:
    await filled(room.hub)
    before = await content(room.hub)

    out = await room.owner("GET", f"{EXPORT}?compressed={compressed}")
    await room.hub.store("desk").clear()
    back = await room.owner("POST", IMPORT, out.body)

    assert out.status == 200
    assert (out.headers["content-type"], out.body[:4] == b"\x28\xb5\x2f\xfd") == (
        ("application/zstd", True) if compressed == "true" else ("application/x-ndjson", False)
    )
    assert "desk.jsonl" in out.headers["content-disposition"]
    assert b"lobby-secret" not in (zstd.decompress(out.body) if compressed == "true" else out.body)
    assert (back.status, back.data["namespace"], back.data["imported"]) == (200, "desk", back.data["documents"])
    assert "file" not in back.data
    assert await content(room.hub) == before


async def test_importing_twice_changes_nothing(room: Room) -> None:
    await filled(room.hub)
    out = await room.owner("GET", EXPORT)
    await room.hub.store("desk", actor="ada").write("topic", "newer")

    back = await room.owner("POST", IMPORT, out.body)

    assert (back.status, back.data["imported"]) == (200, 0)
    assert await room.hub.store("desk", actor="ada").read("topic") == "newer"


async def test_a_long_archive_comes_in_pieces(room: Room) -> None:
    store = room.hub.store("desk")
    await store.write_many({f"k{number}": "x" * 50_000 for number in range(200)})

    async with room.owner.asking("GET", f"{EXPORT}?compressed=false") as asked:
        sizes = []
        while (chunk := await asked.chunks.get()) is not None:
            sizes.append(len(chunk))

    assert len(sizes) >= 3
    assert max(sizes) < 8 << 20
    assert sum(sizes) > 10_000_000


async def test_who_leaves_an_export_ends_it(room: Room) -> None:
    await filled(room.hub)
    async with room.owner.asking("GET", EXPORT) as asked:
        asked.takes.clear()
        asked.gone.set()
        async with asyncio.timeout(60):
            await asked.ended.wait()


# -- who may --------------------------------------------------------------------------------------


async def test_an_actor_carries_no_namespace(room: Room) -> None:
    await filled(room.hub)

    answers = [await room.actor("GET", EXPORT), await room.actor("POST", IMPORT, archive(value("desk:ada:x")))]

    for answer in answers:
        assert (answer.status, answer.data["code"]) == (403, "access_denied")
        assert "--whole-namespace" in answer.data["detail"]
    assert await room.hub.store("desk").exists("desk:ada:x") is False


@pytest.mark.parametrize(
    ("key", "header", "kind"),
    [
        ("desk:ada:x", "desk", "value"),
        ("desk:ada:x", "lobby", "value"),
        ("lobby:$tokens", "lobby", "value"),
        ("lobby:$clock", "lobby", "value"),
        ("lobby}:x:y", "lobby", "value"),
        ("lobby:{x}:y", "lobby", "value"),
        ("desk:$memory:x", "lobby", "memory"),
        ("lobby:$memory:x}:{desk", "lobby", "memory"),
        ("lobby:$plan:x}:{desk", "lobby", "plan"),
    ],
)
async def test_an_archive_lands_nowhere_but_in_the_namespace_of_its_bearer(
    room: Room, key: str, header: str, kind: str
) -> None:
    await filled(room.hub)

    answer = await room.other("POST", IMPORT, archive(value(key) | {"type": kind}, namespace=header))

    assert (answer.status, answer.data["code"]) == (400, "invalid")
    assert not await room.hub.store("desk").exists("desk:ada:x")
    assert b"sharedmem-" not in answer.body, "the folder of this machine is told"


async def test_a_reference_to_a_foreign_blob_returns_nothing(room: Room) -> None:
    large = "secret " * 60_000
    await room.hub.store("desk", actor="ada").write("large", large)
    held = await client_of(room.hub).call("GET", b"sm:{desk}:ada:large")
    assert isinstance(held, bytes)
    reference = held.partition(b"\n")[2].decode()
    assert "path" in json.loads(reference)
    forged = value("lobby:shared:stolen", reference) | {"codec": "blob"}

    await room.other("POST", IMPORT, archive(forged, namespace="lobby"))

    answer = await room.other("GET", "/store/values/lobby%3Ashared%3Astolen/value")
    assert answer.status >= 400
    assert b"secret secret" not in answer.body


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["cut", "changed", "nothing", "noise", "one long line"])
async def test_a_damaged_archive_changes_nothing(room: Room, spoil: str) -> None:
    whole = archive(value("desk:ada:x"), value("desk:ada:y"))
    body = {
        "cut": whole[:-40],
        "changed": whole.replace(b"planted", b"another"),
        "nothing": b"",
        "noise": b"\x28\xb5\x2f\xfd" + b"\x00" * 100,
        "one long line": zstd.compress(b"x" * (80 << 20)),
    }[spoil]

    answer = await room.owner("POST", IMPORT, body)

    assert (answer.status, answer.data["code"]) == (400, "invalid")
    assert b"sharedmem-" not in answer.body
    assert await room.hub.store("desk").read_many(["desk:ada:x", "desk:ada:y"]) == {}


async def test_a_namespace_that_was_never_written_has_no_archive(room: Room) -> None:
    answer = await room.owner("GET", EXPORT)

    assert (answer.status, answer.data["code"]) == (404, "not_found")


async def test_what_is_too_long_or_too_slow_or_unknown_is_refused(room: Room) -> None:
    await filled(room.hub)
    answers = [
        await room.owner("POST", "/small/namespace/import", b"x" * 200_000),
        await room.owner("POST", f"{IMPORT}?replace=perhaps", b""),
        await room.owner("GET", f"{EXPORT}?namespace=lobby"),
    ]

    assert [answer.status for answer in answers] == [413, 400, 400]
    assert await slowly(room) == 408


async def slowly(room: Room) -> int:
    """The status that a caller gets who sends the head of an archive and then nothing more."""
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}])
    statuses: list[int] = []

    async def receive() -> dict[str, object]:
        piece = next(pieces, None)
        if piece is None:
            await asyncio.Event().wait()
        assert piece is not None
        return dict(piece)

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(int(str(message["status"])))

    await room.app(room.owner.scope("POST", IMPORT, b"{"), receive, send)  # type: ignore[arg-type]  # as ASGI has it
    return statuses[0]


async def test_so_many_archives_are_carried_at_once_and_no_more(room: Room) -> None:
    await filled(room.hub)
    async with room.owner.asking("GET", "/small/namespace/export") as first:
        first.takes.clear()
        second = await room.owner("GET", "/small/namespace/export")
        first.takes.set()
        while await first.chunks.get() is not None:
            pass
    third = await room.owner("GET", "/small/namespace/export")

    assert (second.status, second.headers["retry-after"]) == (429, "5")
    assert third.status == 200


async def test_a_head_tells_of_an_archive_without_one(room: Room) -> None:
    await filled(room.hub)

    answer = await room.owner("HEAD", EXPORT)

    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/zstd", b"")
