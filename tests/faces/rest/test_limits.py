"""Rate limits of tokens: no more than their rate through all workers together, and few round trips for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from support.asgi_client import AsgiCaller
from support.contexts import client_of

from sharedmem import Hub, LimitedError
from sharedmem.faces.auth import Bearer, Rate, TokenEntry, TokenFile, new_token
from sharedmem.faces.limits import TokenRateLimiter
from sharedmem.faces.rest import create_app
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.redis.replies import Command, Reply
from sharedmem.testing import ManualClock, fake_hub

if TYPE_CHECKING:
    from fakeredis import FakeServer


@pytest.fixture
def server() -> FakeServer:
    fakeredis = pytest.importorskip("fakeredis")
    made: FakeServer = fakeredis.FakeServer()
    return made


@pytest.fixture
async def hub(server: FakeServer, clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(server=server, clock=clock) as hub:
        yield hub


def entry(rate: str, *, burst: int | None = None) -> TokenEntry:
    return new_token(Bearer.of("desk", actor="ada"), rate=Rate.of(rate, burst=burst))[1]


async def admitted(allowances: TokenRateLimiter, whose: TokenEntry, tries: int) -> int:
    """How many of so many calls get in."""
    count = 0
    for _ in range(tries):
        try:
            await allowances.take(whose)
            count += 1
        except LimitedError:
            pass
    return count


async def test_a_token_calls_as_often_as_it_may_and_is_told_when_to_come_again(hub: Hub, clock: ManualClock) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("5/min")

    assert await admitted(allowances, whose, 5) == 5
    with pytest.raises(LimitedError, match="5/60s") as refused:
        await allowances.take(whose)

    assert refused.value.retry_after == pytest.approx(12, abs=0.1)
    clock.advance(12)
    assert await admitted(allowances, whose, 5) == 1


@pytest.mark.parametrize("rate", ["30/min", "100/s", "2000/s"])
async def test_all_workers_together_let_in_no_more_than_the_rate(
    server: FakeServer, clock: ManualClock, rate: str
) -> None:
    whose = entry(rate)
    assert whose.rate is not None
    async with fake_hub(server=server, clock=clock) as one, fake_hub(server=server, clock=clock) as two:
        workers = [TokenRateLimiter(one, clock=clock), TokenRateLimiter(two, clock=clock)]

        counts = await asyncio.gather(*(admitted(worker, whose, whose.rate.limit) for worker in workers))

    assert sum(counts) == whose.rate.limit


async def test_who_comes_as_often_as_it_may_is_never_refused(hub: Hub, clock: ManualClock) -> None:
    workers, whose = [TokenRateLimiter(hub, clock=clock) for _ in range(4)], entry("100/s")
    for number in range(500):
        await workers[number * 7 % 4].take(whose)
        clock.advance(0.0125)


async def test_a_pause_gives_back_as_much_as_the_burst_and_no_more(hub: Hub, clock: ManualClock) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("10/s", burst=30)

    first = await admitted(allowances, whose, 50)
    clock.advance(3600)
    second = await admitted(allowances, whose, 50)

    assert (first, second) == (30, 30)


async def test_calls_are_taken_in_blocks(hub: Hub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("1000/s")
    trips = counted_trips(hub, monkeypatch)

    await admitted(allowances, whose, 500)

    assert len(trips) == 10


async def test_many_calls_at_once_wait_for_one_block(
    hub: Hub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("1000/s")
    trips = counted_trips(hub, monkeypatch)

    await asyncio.gather(*(allowances.take(whose) for _ in range(50)))

    assert len(trips) == 1


async def test_who_was_refused_is_refused_again_without_asking(
    hub: Hub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("1/min")
    await admitted(allowances, whose, 2)
    trips = counted_trips(hub, monkeypatch)

    assert await admitted(allowances, whose, 100) == 0
    assert not trips


async def test_what_is_left_of_a_block_is_not_kept_for_later(hub: Hub, clock: ManualClock) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("100/s", burst=100)
    await allowances.take(whose)  # takes a block of five

    clock.advance(2)

    assert await admitted(allowances, whose, 200) == 100


async def test_a_token_without_a_rate_calls_as_often_as_it_likes(
    hub: Hub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowances, trips = TokenRateLimiter(hub, clock=clock), counted_trips(hub, monkeypatch)
    _, whose = new_token(Bearer.of("desk"))

    assert [await allowances.take(bearer) for bearer in (whose, Bearer.of("desk"))] == [None, None]
    assert not trips


async def test_clearing_the_namespace_gives_nothing_back(hub: Hub, clock: ManualClock) -> None:
    allowances, whose = TokenRateLimiter(hub, clock=clock), entry("3/min")
    await admitted(allowances, whose, 3)

    await hub.store("desk").clear()

    assert await admitted(TokenRateLimiter(hub, clock=clock), whose, 3) == 0


async def test_the_service_tells_how_a_caller_stands(hub: Hub) -> None:
    registry = TokenRegistry(hub)
    often, _ = await registry.create(Bearer.of("desk", actor="ada"), rate=Rate.of("2/h"))
    free, _ = await registry.create(Bearer.of("desk", actor="bob"))
    app = create_app(hub, admission=registry)
    ada, bob = AsgiCaller(app, often), AsgiCaller(app, free)

    answers = [await ada("GET", "/store/keys") for _ in range(3)]
    other = await bob("GET", "/store/keys")

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert [answer.headers["ratelimit"] for answer in answers] == [
        '"token";r=1;t=1800',
        '"token";r=0;t=3600',
        '"token";r=0;t=3600',
    ]
    assert answers[0].headers["ratelimit-policy"] == '"token";q=2;w=3600'
    refused = answers[2]
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) in range(1790, 1801)
    assert (refused.data["code"], refused.data["status"]) == ("limited", 429)
    assert other.status == 200
    assert "ratelimit" not in other.headers


async def test_the_tokens_of_a_file_have_rates_too(hub: Hub) -> None:
    token, kept = new_token(Bearer.of("desk", actor="ada"), rate=Rate.of("1/h"))
    ada = AsgiCaller(create_app(hub, admission=TokenFile([kept])), token)

    assert [(await ada("GET", "/store/keys")).status for _ in range(2)] == [200, 429]


def counted_trips(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Each command that the hub sends from now on."""
    line, trips = client_of(hub), list[Command]()
    send = line._send

    async def counted(args: Command) -> Reply:
        trips.append(args)
        return await send(args)

    monkeypatch.setattr(line, "_send", counted)
    return trips
