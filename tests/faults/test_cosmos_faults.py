"""Cosmos DB that throttles, fails, is slow, cuts connections, refuses us or is another one than we need."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from pydantic import SecretStr
from support import cosmos_fixtures
from support.cosmos_emulator import SHORT_RETRIES, EmulatedDatabase

from sharedmem import (
    AccessDeniedError,
    ConfigError,
    InvalidError,
    LimitedError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from sharedmem.durable.cosmos.endpoint import CosmosTimeouts
from sharedmem.durable.cosmos.layout import memories_layout
from sharedmem.durable.cosmos.store import CosmosDurable
from sharedmem.models import DurableRecord, Outcome

KEY = "research:shared:note"
SEED = 11
pytestmark = cosmos_fixtures.allow_large_bodies
room = cosmos_fixtures.room

Call = Callable[[CosmosDurable], Awaitable[object]]


def value(stamp: int, key: str = KEY, **fields: Any) -> DurableRecord:
    moment = {"version": stamp, "stamp": stamp, "created": stamp, "body": f"{stamp}"}
    return DurableRecord.model_validate({"key": key, "type": "value", "kind": "knowledge"} | moment | fields)


@pytest.fixture
async def store(room: EmulatedDatabase) -> AsyncIterator[CosmosDurable]:
    async with room.opened() as store:
        await room.forget()
        yield store


@pytest.fixture
async def client(room: EmulatedDatabase) -> AsyncIterator[CosmosClient]:
    async with room.client() as client:
        yield client


CALLS: dict[str, tuple[str, Call]] = {
    "create": ("create", lambda store: store.put([value(9, "research:shared:other")])),
    "replace": ("replace", lambda store: store.put([value(9, created=1)])),
    "read": ("read", lambda store: store.get(KEY)),
    "records": ("query", lambda store: store.records(KEY)),
    "query": ("query", lambda store: store.query("research", of_type="value")),
    "highest": ("query", lambda store: store.highest("research")),
    "namespaces": ("query", lambda store: store.namespaces()),
    "purge": ("delete", lambda store: store.purge("research", now_ms=0, tombstones_before=10)),
}
every_call = pytest.mark.parametrize("name", CALLS)


@pytest.fixture
async def filled(store: CosmosDurable, room: EmulatedDatabase) -> CosmosDurable:
    """One value, and a tombstone that has done its work."""
    await store.put([value(1), value(2, element="gone", deleted=True, body="")])
    await room.forget()
    return store


# -- asked to wait -------------------------------------------------------------------------------


@every_call
async def test_a_throttled_request_is_repeated_when_the_service_says(
    filled: CosmosDurable, room: EmulatedDatabase, name: str
) -> None:
    call, act = CALLS[name]
    expected = await act(filled) if call in {"read", "query"} else None
    await room.fault(call, status=429, retryAfterMs=20, times=3)

    answer = await act(filled)

    assert filled.charges().throttled == 3
    assert expected in (None, answer)


async def test_a_service_that_is_throttled_for_long_says_when_to_come_back(
    store: CosmosDurable, room: EmulatedDatabase
) -> None:
    await room.fault("create", status=429, retryAfterMs=60_000, times=99)

    with pytest.raises(LimitedError, match=r"out of request units.*'records'.*try again") as caught:
        await store.put([value(1), value(2, element="x")])

    assert caught.value.retry_after == 60
    assert await store.get(KEY) is None


# -- failing for a while -------------------------------------------------------------------------


@every_call
@pytest.mark.parametrize("status", [408, 410, 449, 500, 503])
async def test_a_failure_that_passes_is_not_noticed(
    filled: CosmosDurable, room: EmulatedDatabase, name: str, status: int
) -> None:
    call, act = CALLS[name]
    await room.fault(call, status=status, times=2)

    await act(filled)

    assert [code for what, code in await room.calls() if what == call].count(status) == 2


@every_call
async def test_a_failure_that_stays_is_told(filled: CosmosDurable, room: EmulatedDatabase, name: str) -> None:
    call, act = CALLS[name]
    await room.fault(call, status=503, times=999)

    with pytest.raises(UnavailableError, match=r"Cosmos DB.*replied 503"):
        await act(filled)


async def test_a_failing_service_does_not_get_every_record_of_a_batch(
    store: CosmosDurable, room: EmulatedDatabase
) -> None:
    await room.fault("create", status=503, times=9999)

    with pytest.raises(UnavailableError):
        await store.put([value(number, f"research:shared:{number}") for number in range(1, 400)])

    asked = len(await room.calls())
    await room.forget()
    assert asked < 32 * 30
    assert await store.highest("research") == 0


async def test_an_account_that_does_not_respond_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        store = CosmosDurable(f"cosmos+http://127.0.0.1:{free.getsockname()[1]}", patience=SHORT_RETRIES)

        with pytest.raises(UnavailableError, match="Cosmos DB"):
            await store.open()


# -- slow, and cut connections -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["create", "read", "records"])
async def test_a_slow_answer_is_asked_for_again(filled: CosmosDurable, room: EmulatedDatabase, name: str) -> None:
    call, act = CALLS[name]
    # So long that it has not answered when the calls are counted, however busy the machine is.
    await room.fault(call, delayMs=60_000)

    await act(filled)

    codes = [code for what, code in await room.calls() if what == call]
    slow = codes.index(None)
    assert codes[slow + 1] in {200, 201}


async def test_a_service_that_stays_slow_is_unavailable(room: EmulatedDatabase) -> None:
    async with room.opened(patience=CosmosTimeouts(request_s=1.0, total_s=0.01)) as store:
        await room.fault("create", delayMs=5000)

        with pytest.raises(UnavailableError, match=r"no answer within 1 s"):
            await store.put([value(1)])


@every_call
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_connection_cut_before_or_after_the_work_is_not_noticed(
    filled: CosmosDurable, room: EmulatedDatabase, name: str, *, after: bool
) -> None:
    call, act = CALLS[name]
    await room.fault(call, drop=True, after=after, times=2)

    await act(filled)

    assert [code for what, code in await room.calls() if what == call][:2] == [None, None]


async def test_a_write_knows_its_own_document_after_a_lost_reply(store: CosmosDurable, room: EmulatedDatabase) -> None:
    await room.fault("create", drop=True, after=True)
    created = await store.put([value(1)])
    await room.fault("replace", drop=True, after=True)
    replaced = await store.put([value(2)])

    assert [put.outcome for put in created + replaced] == [Outcome.STORED] * 2
    assert await store.records(KEY) == [value(2)]
    assert [call for call, _ in await room.calls()] == [
        "create",
        "create",
        "read",
        "create",
        "read",
        "replace",
        "replace",
        "read",
        "query",
    ]


# -- another writer was faster --------------------------------------------------------------------


async def test_a_conflict_with_a_document_that_is_gone_again_is_tried_anew(
    store: CosmosDurable, room: EmulatedDatabase
) -> None:
    await room.fault("create", status=409, times=3)

    (put,) = await store.put([value(1)])

    assert put.outcome is Outcome.STORED
    assert await store.get(KEY) == value(1)


async def test_a_document_that_changed_meanwhile_is_read_anew(store: CosmosDurable, room: EmulatedDatabase) -> None:
    await store.put([value(1)])
    await room.fault("replace", status=412, times=3)

    (put,) = await store.put([value(2)])

    assert put.outcome is Outcome.STORED
    assert await store.get(KEY) == value(2)


async def test_a_document_that_never_stops_changing_is_given_up(store: CosmosDurable, room: EmulatedDatabase) -> None:
    await store.put([value(1)])
    await room.fault("replace", status=412, times=999)

    with pytest.raises(UnavailableError, match="other writers changed 'research:shared:note'"):
        await store.put([value(2)])


async def test_an_expired_key_that_was_renewed_meanwhile_is_not_purged(
    store: CosmosDurable, room: EmulatedDatabase
) -> None:
    head, item = value(2, type="list", expires=1, size=1), value(1, element="1", type="list")
    await store.put([head, item])
    await room.fault("delete", status=412)

    purged = await store.purge("research", now_ms=2, tombstones_before=0)

    assert purged == 0
    assert await store.records(KEY) == [head, item]


# -- refused for good ----------------------------------------------------------------------------


async def test_a_document_over_two_megabytes_is_refused_with_its_size_and_the_others_are_kept(
    store: CosmosDurable,
) -> None:
    huge, small = value(1, body='"' + "x" * 2_200_000 + '"'), value(2, "research:shared:small")

    refused, stored = await store.put([huge, small])

    assert refused.outcome is Outcome.REFUSED
    assert "up to 2 MB" in refused.reason
    assert "2,200," in refused.reason
    assert stored.outcome is Outcome.STORED
    assert await store.get(small.key) == small


async def test_a_document_that_the_service_does_not_take_is_refused_with_its_words(
    store: CosmosDurable, room: EmulatedDatabase
) -> None:
    await room.fault("create", status=400)

    (put,) = await store.put([value(1)])

    assert put.outcome is Outcome.REFUSED
    assert "injected" in put.reason


# -- not let in ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "advice"), [(401, "cosmos_key is wrong or was rotated"), (403, "disableLocalAuth")])
async def test_a_login_that_is_refused_says_which_setting_to_correct(
    room: EmulatedDatabase, status: int, advice: str
) -> None:
    await room.fault(status=status, times=9)
    store = room.durable(key=SecretStr("c2VjcmV0"))

    with pytest.raises(ConfigError, match=f"'cosmos_key'.*{advice}") as caught:
        await store.open()

    assert "c2VjcmV0" not in f"{caught.value}{caught.value.__cause__}{store!r}"


@pytest.mark.parametrize("status", [401, 403])
@every_call
async def test_a_right_that_is_withdrawn_is_told(
    filled: CosmosDurable, room: EmulatedDatabase, name: str, status: int
) -> None:
    call, act = CALLS[name]
    await room.fault(call, status=status, times=9)

    with pytest.raises(AccessDeniedError, match=r"actor 'account key' may not read and write .*records"):
        await act(filled)


def test_what_cannot_be_a_key_is_refused_and_not_quoted(room: EmulatedDatabase) -> None:
    with pytest.raises(ConfigError, match="not an account key") as caught:
        room.durable(key=SecretStr("not base64!"))

    assert "not base64!" not in str(caught.value)


async def test_without_a_key_entra_id_logs_in_and_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    store = CosmosDurable("cosmos://127.0.0.1:9")

    with pytest.raises(ConfigError, match=r"'cosmos_key' \(from not set, hence Entra ID\).*EnvironmentCredential"):
        await store.open()


# -- another container than ours -----------------------------------------------------------------


async def test_a_missing_container_is_told_when_it_is_not_to_be_made(room: EmulatedDatabase) -> None:
    with pytest.raises(NotFoundError, match=rf"container '{room.database}/records'.*cosmos\.bicep"):
        await room.durable().open(create=False)


@every_call
async def test_a_container_that_was_removed_is_told(
    filled: CosmosDurable, room: EmulatedDatabase, client: CosmosClient, name: str
) -> None:
    await client.get_database_client(room.database).delete_container("records")

    with pytest.raises(NotFoundError, match=rf"container '{room.database}/records'"):
        await CALLS[name][1](filled)


async def test_a_container_partitioned_otherwise_is_refused_and_both_layouts_are_named(
    room: EmulatedDatabase, client: CosmosClient
) -> None:
    database = await client.create_database(room.database)
    await database.create_container("records", PartitionKey(path="/tenant"))

    with pytest.raises(ConfigError, match=r"partitioned by \[/tenant\], not by \[/namespace, /scope, /key\]"):
        await room.durable().open()


async def test_a_container_with_another_policy_is_used_and_the_check_names_what_differs(
    room: EmulatedDatabase, client: CosmosClient
) -> None:
    database = await client.create_database(room.database)
    paths = ["/namespace", "/scope", "/key"]
    await database.create_container("records", PartitionKey(path=paths, kind="MultiHash"))

    async with room.opened() as store:
        wrong = await store.check()

    assert "has no default TTL" in wrong[0]
    assert [sentence.partition("[")[2].partition("]")[0] for sentence in wrong[1:]] == [
        "/namespace, /key, /element",
        "/namespace, /stamp",
        "/namespace, /type, /stamp",
    ]


async def test_a_container_of_a_newer_layout_is_left_alone(room: EmulatedDatabase, client: CosmosClient) -> None:
    async with room.opened():
        container = client.get_database_client(room.database).get_container_client("records")
        (identity,) = [one async for one in container.query_items("SELECT * FROM c")]
    await container.replace_item(identity["id"], identity | {"layout": 2})

    with pytest.raises(ConfigError, match=r"newer sharedmem \(layout 2\)"):
        await room.durable().open()


async def test_a_foreign_document_is_named(store: CosmosDurable, room: EmulatedDatabase, client: CosmosClient) -> None:
    container = client.get_database_client(room.database).get_container_client("records")
    await container.create_item({"id": "theirs", "namespace": "research", "scope": "shared", "key": KEY, "element": ""})

    with pytest.raises(InvalidError, match=r"document 'theirs'.*sharedmem did not write it"):
        await store.records(KEY)


async def test_an_account_without_vector_search_says_how_to_get_it(room: EmulatedDatabase) -> None:
    async with room.opened():
        pass
    await room.fault("other", status=400, method="POST")

    with pytest.raises(UnsupportedError, match="EnableNoSQLVectorSearch"):
        await room.durable(memories=memories_layout(256)).open()


# -- storms --------------------------------------------------------------------------------------


async def test_a_walk_through_failing_pages_misses_nothing(store: CosmosDurable, room: EmulatedDatabase) -> None:
    records = [value(number, f"research:shared:{number:03}") for number in range(1, 451)]
    await store.put(records)
    found: list[DurableRecord] = []

    async for page in store.iterate("research"):
        found += page
        await room.fault("query", drop=True, times=2)

    assert found == records


async def test_in_a_storm_the_newest_record_of_each_document_wins(store: CosmosDurable, room: EmulatedDatabase) -> None:
    luck = random.Random(SEED)
    faults: list[dict[str, Any]] = [
        {"status": 429, "retryAfterMs": 5},
        {"status": 503},
        {"status": 449},
        {"status": 412},
        {"status": 409},
        {"drop": True},
        {"drop": True, "after": True},
    ]
    records = [value(stamp, f"research:shared:{number}") for stamp in range(1, 25) for number in range(4)]
    luck.shuffle(records)
    for _ in range(60):
        await room.fault(luck.choice(["create", "replace"]), **luck.choice(faults))

    puts = await asyncio.gather(*(store.put([record]) for record in records))

    await room.forget()
    assert {put.outcome for (put,) in puts} <= {Outcome.STORED, Outcome.OLDER}
    assert [await store.get(f"research:shared:{number}") for number in range(4)] == [
        value(24, f"research:shared:{number}") for number in range(4)
    ]
