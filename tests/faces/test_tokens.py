"""The registry of tokens: made, listed and taken back while servers run, and never told."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.tokens import bearer_header

from sharedmem import Grant, Hub, InvalidError, NotFoundError
from sharedmem.errors import InternalError
from sharedmem.faces.auth import (
    AnyOf,
    Bearer,
    Rate,
    TokenEntry,
    TokenFile,
    TokenRefusedError,
    add_entry,
    new_token,
    read_entries,
    remove_entry,
)
from sharedmem.faces.token_registry import CACHED_S, TokenRegistry, admission_of
from sharedmem.hub.hub import token_storage_of
from sharedmem.testing import ManualClock, fake_hub

if TYPE_CHECKING:
    from fakeredis import FakeServer

PLANNER = Bearer.of(
    "desk", actor="planner", subscribe=["news"], grants=["chat:team*", Grant(pattern="x:y", writes=False)]
)


@pytest.fixture
def server() -> FakeServer:
    fakeredis = pytest.importorskip("fakeredis")
    made: FakeServer = fakeredis.FakeServer()
    return made


@pytest.fixture
async def hub(server: FakeServer, clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(server=server, clock=clock) as hub:
        yield hub


@pytest.fixture
def registry(hub: Hub, clock: ManualClock) -> TokenRegistry:
    return TokenRegistry(hub, clock=clock)


# -- letting in -----------------------------------------------------------------------------------


async def test_a_token_stands_for_its_actor_and_rights(registry: TokenRegistry) -> None:
    token, entry = await registry.create(PLANNER, label="of the day shift", rate=Rate.of("100/s"))

    admitted = await registry.admit(bearer_header(token))

    assert admitted == entry
    assert (admitted.namespace, admitted.actor, admitted.subscribe) == ("desk", "planner", ("news",))
    assert admitted.grants == PLANNER.grants


async def test_a_token_is_known_to_every_process_of_the_server(registry: TokenRegistry, server: FakeServer) -> None:
    token, entry = await registry.create(PLANNER)

    async with fake_hub(server=server) as other:
        assert (await TokenRegistry(other).admit(bearer_header(token))) == entry


@pytest.mark.parametrize(
    ("authorization", "says", "challenge"),
    [
        (None, "carries no token", 'Bearer realm="sharedmem"'),
        ("Bearer", "not of the form", 'Bearer realm="sharedmem", error="invalid_token"'),
        ("Bearer smt_guessed", "not known", 'Bearer realm="sharedmem", error="invalid_token"'),
    ],
)
async def test_who_shows_no_known_token_is_refused(
    registry: TokenRegistry, authorization: str | None, says: str, challenge: str
) -> None:
    await registry.create(PLANNER)

    with pytest.raises(TokenRefusedError, match=says) as refused:
        await registry.admit(authorization)

    assert refused.value.challenge == challenge
    assert "guessed" not in str(refused.value)


async def test_a_digest_is_no_token(registry: TokenRegistry) -> None:
    _, entry = await registry.create(PLANNER)

    for guess in (entry.sha256, entry.id):
        with pytest.raises(TokenRefusedError):
            await registry.admit(bearer_header(guess))


async def test_a_token_is_refused_from_the_moment_it_expires(registry: TokenRegistry, clock: ManualClock) -> None:
    token, _ = await registry.create(PLANNER, expires=clock.now() + timedelta(seconds=60))

    clock.advance(59.9)
    await registry.admit(bearer_header(token))
    clock.advance(0.1)

    with pytest.raises(TokenRefusedError, match="has expired"):
        await registry.admit(bearer_header(token))


async def test_an_admission_costs_no_round_trip_for_a_while(
    registry: TokenRegistry, hub: Hub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, entry = await registry.create(PLANNER)
    await registry.admit(bearer_header(token))
    await token_storage_of(hub).remove(entry.sha256)  # as another process would

    clock.advance(CACHED_S - 0.1)
    assert await registry.admit(bearer_header(token)) == entry
    clock.advance(0.1)

    with pytest.raises(TokenRefusedError):
        await registry.admit(bearer_header(token))


# -- taking back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["by its id", "by itself"])
async def test_a_token_that_is_taken_back_is_refused_at_once_here(registry: TokenRegistry, named: str) -> None:
    token, entry = await registry.create(PLANNER)
    await registry.admit(bearer_header(token))

    gone = await registry.revoke(entry.id if named == "by its id" else token)

    assert gone == entry
    with pytest.raises(TokenRefusedError, match="not known"):
        await registry.admit(bearer_header(token))


async def test_a_token_that_is_taken_back_is_refused_within_two_seconds_elsewhere(
    registry: TokenRegistry, server: FakeServer, clock: ManualClock
) -> None:
    token, entry = await registry.create(PLANNER)
    async with fake_hub(server=server, clock=clock) as other:
        elsewhere = TokenRegistry(other, clock=clock)
        await elsewhere.admit(bearer_header(token))

        await registry.revoke(entry.id)
        clock.advance(2.0)

        with pytest.raises(TokenRefusedError):
            await elsewhere.admit(bearer_header(token))


async def test_taking_back_what_is_not_there_is_told(registry: TokenRegistry) -> None:
    _, entry = await registry.create(PLANNER)
    await registry.revoke(entry.id)

    for name in (entry.id, entry.id[:6], "", "smt_never"):
        with pytest.raises(NotFoundError, match="sharedmem token list"):
            await registry.revoke(name)


# -- looking --------------------------------------------------------------------------------------


async def test_tokens_are_listed_in_the_order_in_which_they_were_made(
    registry: TokenRegistry, clock: ManualClock
) -> None:
    made = []
    for name in ("ada", "bob", "cy"):
        made.append((await registry.create(Bearer.of("desk", actor=name), label=f"of {name}"))[1])
        clock.advance(1)

    assert [known.entry for known in await registry.listed()] == made


async def test_the_list_tells_when_a_token_was_used(registry: TokenRegistry, clock: ManualClock) -> None:
    token, _ = await registry.create(PLANNER)
    (before,) = await registry.listed()

    clock.advance(90)
    await registry.admit(bearer_header(token))
    (after,) = await registry.listed()

    assert before.used is None
    assert after.used is not None
    assert abs(after.used - clock.now()) < timedelta(seconds=1)


async def test_a_token_in_use_is_noted_once_a_minute(registry: TokenRegistry, clock: ManualClock) -> None:
    token, _ = await registry.create(PLANNER)
    seen = set[datetime | None]()
    for _ in range(6):
        await registry.admit(bearer_header(token))
        seen.add((await registry.listed())[0].used)
        clock.advance(15)

    assert len(seen) == 2


async def test_what_expired_long_ago_is_forgotten_when_the_next_is_made(
    registry: TokenRegistry, clock: ManualClock
) -> None:
    old, _ = await registry.create(PLANNER, expires=clock.now() + timedelta(days=1))
    clock.advance(2 * 86_400)
    await registry.create(PLANNER, label="the next")
    kept = len(await registry.listed())
    clock.advance(30 * 86_400)
    await registry.create(PLANNER, label="the last")

    assert kept == 2
    assert [known.entry.label for known in await registry.listed()] == ["the next", "the last"]
    with pytest.raises(TokenRefusedError, match="not known"):
        await registry.admit(bearer_header(old))


async def test_no_token_lies_on_the_server(registry: TokenRegistry, server: FakeServer) -> None:
    token, entry = await registry.create(PLANNER, label="secret?")
    await registry.admit(bearer_header(token))

    held = repr([dict(database) for database in server.dbs.values()])

    assert entry.sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert token not in held
    assert token not in repr(registry)


async def test_no_tenant_can_reach_the_tokens(registry: TokenRegistry, hub: Hub) -> None:
    await registry.create(PLANNER)
    store = hub.store("desk")

    assert [key async for key in store.keys("*")] == []
    for trick in ("desk:$tokens", "desk}:$tokens", ":$tokens", "sm:$tokens", "$tokens:x"):
        with pytest.raises(InvalidError):
            await store.hgetall(trick)
    assert await store.hgetall("$tokens") == {}  # a plain key of the namespace's own
    await store.clear()
    assert len(await registry.listed()) == 1


async def test_an_entry_that_cannot_be_read_admits_no_caller_and_is_not_quoted(
    registry: TokenRegistry, hub: Hub
) -> None:
    token, entry = await registry.create(PLANNER)
    await token_storage_of(hub).put(entry.sha256, b'{"namespace": "desk", "from_the_future": 1}')

    with pytest.raises(InternalError) as refused:
        await registry.admit(bearer_header(token))

    assert "future" not in f"{refused.value!r}{refused.value.__cause__!r}"


# -- what may be asked for ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "calls", "seconds"), [("100/s", 100, 1), ("600/min", 600, 60), ("5/h", 5, 3600), ("10/30s", 10, 30)]
)
def test_a_rate_is_written_as_people_do(text: str, calls: int, seconds: int) -> None:
    rate = Rate.of(text)

    assert (rate.limit, rate.per, rate.size) == (calls, seconds, calls)
    assert Rate.of(str(rate)) == rate


@pytest.mark.parametrize("text", ["", "100", "x/s", "0/s", "1/0s", "-1/s", "1/2day", "100001/s", "1/week", "1 /s"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="rate"):
        Rate.of(text)


async def test_a_token_that_has_expired_already_is_not_made(registry: TokenRegistry, clock: ManualClock) -> None:
    with pytest.raises(InvalidError, match="still to come"):
        await registry.create(PLANNER, expires=clock.now())

    assert await registry.listed() == []


# -- beside files ---------------------------------------------------------------------------------


async def test_a_server_knows_the_tokens_of_a_file_and_of_the_registry(
    registry: TokenRegistry, hub: Hub, tmp_path: Path
) -> None:
    of_file, entry = new_token(PLANNER)
    add_entry(tmp_path / "tokens.yaml", entry)
    of_registry, _ = await registry.create(Bearer.of("desk", actor="executor"))
    both = admission_of(hub, [str(tmp_path / "tokens.yaml"), "registry"])
    assert both is not None

    actors = [(await both.admit(bearer_header(token))).actor for token in (of_file, of_registry)]

    assert actors == ["planner", "executor"]
    with pytest.raises(TokenRefusedError, match="not known"):
        await both.admit(bearer_header("smt_other"))
    assert admission_of(hub, []) is None


async def test_of_several_refusals_the_one_that_knows_the_token_is_told() -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    token, entry = new_token(PLANNER, expires=past)
    _, other = new_token(PLANNER)

    with pytest.raises(TokenRefusedError, match="has expired"):
        await AnyOf(TokenFile([other]), TokenFile([entry]), TokenFile([other])).admit(bearer_header(token))


@pytest.mark.parametrize("name", ["tokens.yaml", "tokens.json"])
def test_an_entry_is_taken_out_of_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    made = [new_token(Bearer.of("desk", actor=actor), label=actor, rate=Rate.of("5/s")) for actor in ("a", "b", "c")]
    for _, entry in made:
        add_entry(path, entry)

    gone = [remove_entry(path, made[1][1].id), remove_entry(path, made[0][0])]

    assert [entry.label for entry in gone] == ["b", "a"]
    assert read_entries(path) == [made[2][1]]
    with pytest.raises(NotFoundError, match=str(path)):
        remove_entry(path, made[0][1].id)


def test_comments_stay_when_an_entry_is_taken_out(tmp_path: Path) -> None:
    path, made = tmp_path / "tokens.yaml", [new_token(PLANNER)[1] for _ in range(3)]
    path.write_text("# ours\n")
    for number, entry in enumerate(made):
        add_entry(path, entry)
        path.write_text(f"{path.read_text()}# after {number}\n")

    remove_entry(path, made[1].id)

    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert comments == ["# ours", "# after 0", "# after 1", "# after 2"]
    assert read_entries(path) == [made[0], made[2]]


def test_entries_say_only_what_is_said() -> None:
    _, entry = new_token(Bearer.of("desk"))

    assert entry.written() == {"namespace": "desk", "sha256": entry.sha256}
    assert TokenEntry.model_validate(entry.written()) == entry


async def test_hubs_come_and_go_while_a_registry_stays(server: FakeServer) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(fake_hub(server=server))
        token, _ = await TokenRegistry(first).create(PLANNER)
    async with fake_hub(server=server) as second:
        assert (await TokenRegistry(second).admit(bearer_header(token))).actor == "planner"
