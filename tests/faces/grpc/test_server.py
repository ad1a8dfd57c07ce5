"""The gRPC server, as any client sees it: who may come in, what is told of errors, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.chaos_proxy import ChaosProxy
from support.contexts import context_of, scope_of
from support.faulty_hubs import impatient_settings, persistent_settings
from support.grpc_calls import GrpcCaller, bare_caller, trailer
from support.waiting import wait_until

from sharedmem import AccessDeniedError, ConfigError, Hub, InvalidError, Settings
from sharedmem.clock import new_id
from sharedmem.faces.auth import Bearer, TokenEntry, TokenFile, new_token
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer
from sharedmem.faces.grpc.contract import SERVICE
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.testing import fake_hub

ANYWHERE = GrpcAddress(port=0)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def plan(session: str = "btc", reasoning: str = "up") -> pb.SavePlanRequest:
    return pb.SavePlanRequest(session_id=session, symbol="BTC", action="BUY", confidence=0.5, reasoning=reasoning)


def health_stub(caller: GrpcCaller) -> Any:
    return health_pb2_grpc.HealthStub(caller.channel)


@pytest.fixture
async def server(fake: Hub) -> AsyncIterator[MemoryServer]:
    async with MemoryServer(fake, ANYWHERE, everyone=Bearer.of("desk", actor="ada"), grace_s=2) as server:
        yield server


@pytest.fixture
async def call(server: MemoryServer) -> AsyncIterator[GrpcCaller]:
    async with bare_caller(server.target) as caller:
        yield caller


async def test_every_call_is_timed_and_counted_by_its_status(fake: Hub, call: GrpcCaller) -> None:
    await call("SavePlan", plan())
    await call.refused("SavePlan", pb.SavePlanRequest(session_id="btc", action="BUY", reasoning="up"))
    await call.refused("Call", pb.CallRequest(operation="no.such", request_json="{}"))
    watching = call("Watch", pb.WatchRequest(pattern="*"))
    await watching.read()
    watching.cancel()

    def counted(method: str, status: str) -> float:
        return fake.counters.read("grpc_requests", method=method, status=status)

    await wait_until(lambda: counted("Watch", "CANCELLED") == 1, description="the end of the watch is counted")
    assert counted("SavePlan", "OK") == 1
    assert counted("SavePlan", "INVALID_ARGUMENT") == 1
    assert sum(value for name, labels, value in fake.counters.snapshot() if ("method", "Call") in labels) == 1
    timed = {dict(one.labels)["method"]: one.calls for one in fake.counters.timings() if "grpc" in one.name}
    assert timed == {"SavePlan": 2, "Call": 1, "Watch": 1}


# -- tokens ---------------------------------------------------------------------------------------


@pytest.fixture
def known() -> dict[str, tuple[str, TokenEntry]]:
    return {
        "ada": new_token(Bearer.of("desk", actor="ada")),
        "bob": new_token(Bearer.of("other", actor="bob", grants=["desk:shared:hall"])),
    }


@pytest.fixture
async def guarded(fake: Hub, known: dict[str, tuple[str, TokenEntry]]) -> AsyncIterator[GrpcCaller]:
    """Calls to a server that asks for tokens."""
    tokens = TokenFile(entry for _, entry in known.values())
    async with MemoryServer(fake, ANYWHERE, tokens=tokens, grace_s=2) as server, bare_caller(server.target) as caller:
        yield caller


@pytest.mark.parametrize("token", [None, "smt_wrong", "x" * 2000])
async def test_strangers_are_unauthenticated(
    guarded: GrpcCaller, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    for name, request in (
        ("SavePlan", plan()),
        ("ListSessions", pb.ListSessionsRequest()),
        ("Watch", pb.WatchRequest()),
    ):
        refused = await guarded.refused(name, request, token=token)

        assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
        assert trailer(refused, "sharedmem-code") == "unauthenticated"
        assert "wrong" not in f"{refused.details()}{caplog.text}"
        assert "a caller at ipv4:127.0.0.1" in caplog.text


async def test_a_namespace_is_all_that_a_token_sees(
    guarded: GrpcCaller, known: dict[str, tuple[str, TokenEntry]]
) -> None:
    ada, bob = known["ada"][0], known["bob"][0]
    saved = await guarded("SavePlan", plan(), token=ada)

    look = pb.CheckExecutedRequest(session_id="btc", plan_hash=saved.plan_hash)
    assert (await guarded("ListSessions", pb.ListSessionsRequest(), token=ada)).session_ids == ["btc"]
    assert not (await guarded("ListSessions", pb.ListSessionsRequest(), token=bob)).session_ids
    assert (await guarded.refused("CheckExecuted", look, token=bob)).code() is grpc.StatusCode.NOT_FOUND
    watched = await guarded.refused("Watch", pb.WatchRequest(pattern="desk:*"), token=bob)
    assert watched.code() is grpc.StatusCode.PERMISSION_DENIED
    for channel in ("other:shared:news", "third:x"):
        spoken = await guarded.refused("Publish", pb.PublishRequest(channel=channel, message_json="1"), token=ada)
        assert spoken.code() is grpc.StatusCode.PERMISSION_DENIED
        assert trailer(spoken, "sharedmem-code") == "access_denied"


async def test_a_grant_goes_with_its_token(guarded: GrpcCaller, known: dict[str, tuple[str, TokenEntry]]) -> None:
    request = pb.PublishRequest(channel="desk:shared:hall", message_json='"hello"')

    assert (await guarded("Publish", request, token=known["bob"][0])).receivers == 0


async def test_health_and_reflection_ask_for_no_token(guarded: GrpcCaller) -> None:
    stub = health_stub(guarded)

    assert (await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))).status == SERVING


async def test_what_is_done_bears_the_name_of_the_token(
    guarded: GrpcCaller, known: dict[str, tuple[str, TokenEntry]]
) -> None:
    await guarded("SavePlan", plan(), token=known["ada"][0])

    stream = guarded("Watch", pb.WatchRequest(cursor="0"), token=known["ada"][0])
    _, change = await stream.read(), await stream.read()
    stream.cancel()

    assert (change.change.operation, change.change.actor) == ("plan.saved", "ada")


async def test_tokens_need_a_policy_that_keeps_them_apart(known: dict[str, tuple[str, TokenEntry]]) -> None:
    async with fake_hub(settings=Settings(access="open")) as hub:
        with pytest.raises(ConfigError, match=r"'access' .* tokens would separate no callers"):
            await MemoryServer(hub, ANYWHERE, tokens=TokenFile([known["ada"][1]])).start()


# -- errors and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "request_", "status", "code"),
    [
        ("SavePlan", pb.SavePlanRequest(), "INVALID_ARGUMENT", "invalid"),
        ("SaveIfNew", pb.SaveIfNewRequest(plan=plan(), time_window_sec=0), "INVALID_ARGUMENT", "invalid"),
        ("CheckExecuted", pb.CheckExecutedRequest(session_id="btc", plan_hash="x"), "NOT_FOUND", "not_found"),
        ("Store", pb.StoreRequest(session_id="btc", event_json="{"), "INVALID_ARGUMENT", "invalid"),
        ("Retrieve", pb.RetrieveRequest(filters_json="[]"), "INVALID_ARGUMENT", "invalid"),
        ("Publish", pb.PublishRequest(channel="a::b", message_json="1"), "INVALID_ARGUMENT", "invalid"),
        ("Watch", pb.WatchRequest(cursor="soon"), "INVALID_ARGUMENT", "invalid"),
        ("Watch", pb.WatchRequest(pattern="elsewhere:*"), "PERMISSION_DENIED", "access_denied"),
    ],
)
async def test_a_refusal_has_a_status_and_a_code(
    call: GrpcCaller, name: str, request_: object, status: str, code: str
) -> None:
    refused = await call.refused(name, request_)  # type: ignore[arg-type]  # requests of several types

    assert (refused.code().name, trailer(refused, "sharedmem-code")) == (status, code)
    assert refused.details()


async def test_a_method_that_is_none_is_unimplemented(call: GrpcCaller) -> None:
    refused = await call.refused("SavePlan", plan(), path=f"/{SERVICE}/SavePlane")

    assert refused.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_request_that_is_no_message_does_no_harm(call: GrpcCaller) -> None:
    garbage: Any = call.channel.unary_unary(f"/{SERVICE}/SavePlan")

    with pytest.raises(grpc.aio.AioRpcError):
        await garbage(b"\xff\xff\xff")

    assert (await call("SavePlan", plan())).plan_hash


async def test_absent_fields_have_the_defaults_of_the_library(call: GrpcCaller) -> None:
    for number in range(12):
        await call("SavePlan", plan(reasoning=str(number)))

    found = await call("GetRecentPlans", pb.GetRecentPlansRequest(session_id="btc"))
    again = await call("SaveIfNew", pb.SaveIfNewRequest(plan=plan(reasoning="0")))

    assert [one.reasoning for one in found.plans] == [str(number) for number in range(11, 1, -1)]
    assert not again.saved


async def test_a_mebibyte_of_reasoning_fits(call: GrpcCaller) -> None:
    assert (await call("SavePlan", plan(reasoning="x" * 2**20))).plan_hash


async def test_a_request_too_long_is_refused(fake: Hub) -> None:
    async with (
        MemoryServer(fake, GrpcAddress(port=0, max_message_bytes=2048)) as server,
        bare_caller(server.target) as call,
        MemoryClient(server.target) as memory,
    ):
        refused = await call.refused("SavePlan", plan(reasoning="x" * 3000))
        with pytest.raises(InvalidError, match="max_message_bytes"):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "x" * 3000)

    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_packed_request_counts_by_what_it_stands_for(fake: Hub) -> None:
    async with (
        MemoryServer(fake, GrpcAddress(port=0, max_message_bytes=1 << 20)) as server,
        grpc.aio.insecure_channel(server.target, compression=grpc.Compression.Gzip) as channel,
    ):
        publish = channel.unary_unary(f"/{SERVICE}/Publish", request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.aio.AioRpcError, match="larger than max"):
            await publish(b"\n" * (50 << 20))


async def test_reflection_tells_what_there_is(call: GrpcCaller) -> None:
    channel: Any = call.channel  # the types know the channels of threads only
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    questions = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]

    listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(questions))]

    names = {service.name for service in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    assert b"SavePlanRequest" in described.file_descriptor_response.file_descriptor_proto[0]


# -- Redis under it -------------------------------------------------------------------------------


async def test_a_call_ends_at_its_deadline_and_its_work_with_it(redis_url: str) -> None:
    async with (
        ChaosProxy(redis_url) as proxy,
        Hub.open(settings=persistent_settings(proxy.url)) as hub,
        MemoryServer(hub, ANYWHERE, health_every_s=60) as server,
        bare_caller(server.target) as call,
    ):
        await call("ListSessions", pb.ListSessionsRequest())
        idle = len(asyncio.all_tasks())
        with proxy.black_hole():
            refused = await call.refused("ListSessions", pb.ListSessionsRequest(), timeout=0.2)
            await wait_until(lambda: len(asyncio.all_tasks()) <= idle, description="the server has dropped the call")

    assert refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_that_the_server_comes_to_after_its_deadline_does_nothing(call: GrpcCaller) -> None:
    await call("ListSessions", pb.ListSessionsRequest())

    late = call("SavePlan", plan(), timeout=0.05)
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251  # the server, in the same loop, is busy for longer than the caller would wait
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await late

    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not (await call("ListSessions", pb.ListSessionsRequest())).session_ids


async def test_health_follows_redis(redis_url: str) -> None:
    async with (
        ChaosProxy(redis_url) as proxy,
        Hub.open(settings=impatient_settings(proxy.url)) as hub,
        MemoryServer(hub, ANYWHERE, health_every_s=0.02) as server,
        bare_caller(server.target) as call,
    ):
        stub = health_stub(call)
        told = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        statuses = [(await told.read()).status]
        with proxy.refusing():
            proxy.reset_all()
            statuses.append((await told.read()).status)
            refused = await call.refused("ListSessions", pb.ListSessionsRequest())
        statuses.append((await told.read()).status)
        told.cancel()

    assert statuses == [SERVING, NOT_SERVING, SERVING]
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert trailer(refused, "retry-after-ms")


# -- the feed -------------------------------------------------------------------------------------


async def test_a_watcher_goes_on_from_its_cursor(call: GrpcCaller, fake: Hub) -> None:
    store = fake.store("desk")
    stream = call("Watch", pb.WatchRequest(pattern="*"))
    started = await stream.read()
    stream.cancel()
    for number in range(3):
        await store.write(f"k{number}", number)

    first = call("Watch", pb.WatchRequest(cursor=started.cursor))
    _, one = await first.read(), await first.read()
    first.cancel()
    second = call("Watch", pb.WatchRequest(cursor=one.cursor))
    _, two, three = await second.read(), await second.read(), await second.read()
    second.cancel()

    assert started.HasField("started")
    keys = [step.change.key for step in (one, two, three)]
    assert keys == [f"desk:shared:k{number}" for number in range(3)]
    assert one.change.version < two.change.version < three.change.version


async def test_a_watcher_is_told_of_a_gap(call: GrpcCaller, fake: Hub) -> None:
    store = fake.store("desk")
    for number in range(4):
        await store.write(f"k{number}", number)
    space = scope_of(store).home
    await context_of(store).client.call("XTRIM", space.changes, "MAXLEN", 1)

    stream = call("Watch", pb.WatchRequest(cursor="1"))
    _, gap, last = await stream.read(), await stream.read(), await stream.read()
    stream.cancel()

    assert (gap.WhichOneof("step"), gap.gap.namespace) == ("gap", "desk")
    assert gap.gap.next_version == last.change.version
    assert last.change.key == "desk:shared:k3"


async def test_only_what_matches_is_told(call: GrpcCaller, fake: Hub) -> None:
    store = fake.store("desk")
    await store.write("noise", 1)
    await store.write("signal", 1)

    stream = call("Watch", pb.WatchRequest(pattern="sig*", cursor="0"))
    _, change = await stream.read(), await stream.read()
    stream.cancel()

    assert change.change.key == "desk:shared:signal"


# -- the end --------------------------------------------------------------------------------------


async def test_at_the_end_watchers_are_told_to_come_back(fake: Hub) -> None:
    server = MemoryServer(fake, ANYWHERE, grace_s=5)
    await server.start()
    async with bare_caller(server.target) as call:
        stream = call("Watch", pb.WatchRequest(cursor="0"))
        await stream.read()
        health = health_stub(call).Watch(health_pb2.HealthCheckRequest())
        assert (await health.read()).status == SERVING

        stopping = asyncio.create_task(server.stop())
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        told = await health.read()
        health.cancel()
        await stopping

    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert trailer(ended.value, "retry-after-ms") == "500"
    assert told.status == NOT_SERVING


async def test_a_call_under_way_may_end(redis_url: str) -> None:
    namespace = f"test-{new_id(8)}"
    async with ChaosProxy(redis_url) as proxy, Hub.open(settings=persistent_settings(proxy.url)) as hub:
        server = MemoryServer(hub, ANYWHERE, everyone=Bearer.of(namespace), grace_s=10, health_every_s=60)
        await server.start()
        async with bare_caller(server.target) as call:
            with proxy.black_hole():
                saving = call("SavePlan", plan())
                await proxy.held.wait()
                stopping = asyncio.create_task(server.stop())
                await wait_until(lambda: not listens(server), description="the server takes no more calls")
            saved = await saving
            await stopping
        await hub.store(namespace).clear()

    assert saved.plan_hash


def listens(server: MemoryServer) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((server.endpoint.host, server.endpoint.port)) == 0


async def test_a_port_can_be_taken_again_at_once(fake: Hub) -> None:
    async with MemoryServer(fake, ANYWHERE) as server, MemoryClient(server.target) as memory:
        await memory.decisions.sessions()
        port = server.endpoint.port

    async with MemoryServer(fake, GrpcAddress(port=port)) as server, MemoryClient(server.target) as memory:
        assert await memory.decisions.sessions() == []


async def test_stopping_twice_is_no_mistake(fake: Hub) -> None:
    async with MemoryServer(fake, ANYWHERE) as server:
        await server.stop()
    await server.wait()


async def test_a_wrong_token_is_an_access_error_at_the_client(fake: Hub) -> None:
    tokens = TokenFile([new_token(Bearer.of("desk"))[1]])
    async with MemoryServer(fake, ANYWHERE, tokens=tokens) as server:
        async with MemoryClient(server.target, token="smt_wrong") as memory:
            with pytest.raises(AccessDeniedError, match="not known here"):
                await memory.decisions.sessions()
        async with MemoryClient(server.target) as memory:
            with pytest.raises(AccessDeniedError, match="carries no token"):
                await memory.decisions.sessions()
