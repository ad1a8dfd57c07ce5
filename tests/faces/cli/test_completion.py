"""Completion by the shell, through the protocol that the scripts of bash and zsh speak."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from support.shell import finish, start, started_data_dir

from sharedmem import Hub, Settings

_PATIENCE_S = 60
_END = "-- end of an answer --"
_AS_IT_IS = "from sharedmem.faces.cli import main; main()"
# People are not kept waiting by a completion; on a busy machine these tests wait for it.
_PATIENT = f"from sharedmem.faces.cli import completion, main; completion.PATIENCE_S = {_PATIENCE_S}; main()"
_ONE_BY_ONE = f"""
import json, os, sys
from sharedmem.faces.cli import completion, main
completion.PATIENCE_S = {_PATIENCE_S}
asked, sys.argv[1:] = sys.argv[1:], []
for variables in map(json.loads, asked):
    os.environ |= variables
    try:
        main()
    except SystemExit as end:
        assert not end.code
    print({_END!r}, flush=True)
"""


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with started_data_dir() as path:
        asyncio.run(_filled(path))
        yield path


async def _filled(data_dir: Path) -> None:
    async with Hub.open(settings=Settings(data_dir=data_dir)) as hub:
        store = hub.store("desk")
        for key in ("plan", "planet", "desk:ada:private", "chat:team-alpha", "chat:team-beta"):
            await hub.store(key.partition(":")[0] if ":" in key else "desk").write(key, 1)
        await store.hset("plane", "wings", 2)
        await store.queue("jobs").put("a")
        await store.queue("desk:ada:journeys").put("b")
        await hub.store("research").write("topic", 1)


def variables(words: tuple[str, ...]) -> dict[str, str]:
    """How bash asks for what the last word may become."""
    asked = {"_SHAREDMEM_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("sharedmem", *words))}
    return asked | {"COMP_CWORD": str(len(words)), "SHAREDMEM_NAMESPACE": "desk"}


def completed(*words: str, data_dir: Path | None = None, program: str = _PATIENT, **environment: str) -> list[str]:
    """What the last word may become, as bash is told it."""
    place = {} if data_dir is None else {"SHAREDMEM_DATA_DIR": str(data_dir)}
    done = finish(start(environment=variables(words) | place | environment, program=program))
    assert (done.code, done.err) == (0, "")
    return done.out.split()


def completed_in_one_process(*lines: tuple[str, ...], data_dir: Path) -> dict[tuple[str, ...], list[str]]:
    """What the last word of each of several lines may become: a process takes longer to start than to answer."""
    asked = [json.dumps(variables(words)) for words in lines]
    done = finish(start(*asked, environment={"SHAREDMEM_DATA_DIR": str(data_dir)}, program=_ONE_BY_ONE))
    assert (done.code, done.err) == (0, "")
    return dict(zip(lines, map(str.split, done.out.split(_END)[:-1]), strict=True))


def test_keys_are_completed(data_dir: Path) -> None:
    names = {
        ("get", "pl"): ["plan", "plane", "planet"],
        ("hash", "pl"): ["plan", "plane", "planet"],
        ("delete", "plan", "plane"): ["plane", "planet"],
        ("get", "--actor", "ada", "p"): ["private"],
        ("--namespace", "research", "get", ""): ["topic"],
        ("get", "--namespace", "research", ""): ["topic"],
        ("get", "chat:team-a"): ["chat:team-alpha"],
        ("get", "chat", ":", "te"): ["team-alpha", "team-beta"],
        ("get", "chat", ":"): ["team-alpha", "team-beta"],
        ("get", "nothing-begins-so"): [],
    }

    assert completed_in_one_process(*names, data_dir=data_dir) == names


def test_namespaces_are_completed(data_dir: Path) -> None:
    lines = [("--namespace", "re"), ("get", "-n", "re"), ("export", "re"), ("copy", "re")]

    assert completed_in_one_process(*lines, data_dir=data_dir) == {key: ["research"] for key in lines}


def test_queues_are_completed(data_dir: Path) -> None:
    lines = [("queue", "jo"), ("queue", "put", "jo"), ("queue", "dead", "jo")]

    assert completed_in_one_process(*lines, data_dir=data_dir) == {key: ["jobs"] for key in lines}


def test_behind_a_group_come_its_commands_and_names(data_dir: Path) -> None:
    found = completed("queue", "", data_dir=data_dir)

    assert {"put", "claim", "jobs", "desk:ada:journeys"} <= set(found)


def test_zsh_is_told_the_same(data_dir: Path) -> None:
    asked = {"_SHAREDMEM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "sharedmem get planet"}

    place = {"SHAREDMEM_DATA_DIR": str(data_dir), "SHAREDMEM_NAMESPACE": "desk"}
    done = finish(start(environment=asked | place, program=_PATIENT))

    assert '"planet"' in done.out


@pytest.mark.parametrize(
    "asked",
    [
        {"_SHAREDMEM_COMPLETE": "complete_bash", "COMP_WORDS": "sharedmem --json get plan", "COMP_CWORD": "3"},
        {"_SHAREDMEM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "sharedmem --json get plan"},
    ],
)
def test_the_words_of_a_command_are_completed_without_the_other_commands(asked: dict[str, str], data_dir: Path) -> None:
    code = (
        "import sys\nfrom sharedmem.faces.cli import completion, run\n"
        f"completion.PATIENCE_S = {_PATIENCE_S}\ntry: run([])\nfinally: print(*sys.modules)"
    )
    place = {"SHAREDMEM_DATA_DIR": str(data_dir), "SHAREDMEM_NAMESPACE": "desk"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | place | asked, capture_output=True, text=True, check=True
    )
    *found, loaded = done.stdout.splitlines()

    assert any("planet" in line for line in found)
    assert "sharedmem.faces.cli.graph" not in loaded.split()


def test_the_shell_itself_completes_a_key_with_a_colon(data_dir: Path) -> None:
    script = (
        f"sharedmem() {{ {sys.executable} -c '{_PATIENT}' \"$@\"; }}\n"
        "export -f sharedmem\n"
        "COMP_WORDS=(sharedmem get chat : team-a) COMP_CWORD=4\n"
        "IFS=$'\\n' COMPREPLY=( $( COMP_WORDS=\"${COMP_WORDS[*]}\" COMP_CWORD=$COMP_CWORD"
        " _SHAREDMEM_COMPLETE=complete_bash sharedmem ) )\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        env={"PATH": "/usr/bin:/bin", "SHAREDMEM_DATA_DIR": str(data_dir), "SHAREDMEM_NAMESPACE": "desk"},
    )

    assert done.stdout.strip() == "team-alpha", done.stderr


def test_completion_starts_no_server_and_makes_no_folder(tmp_path: Path) -> None:
    assert completed("get", "pl", data_dir=tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_a_server_that_is_not_there_completes_nothing() -> None:
    assert completed("get", "pl", SHAREDMEM_REDIS_URL="redis://127.0.0.1:1") == []
    assert completed("get", "pl", SHAREDMEM_REDIS_URL="no url at all") == []


def test_a_server_that_does_not_respond_does_not_block_the_shell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"redis://127.0.0.1:{port}"
        assert completed("get", "pl", program=_AS_IT_IS, SHAREDMEM_REDIS_URL=url) == []


def test_completion_changes_nothing_on_the_server(redis_url: str) -> None:
    with Redis.from_url(redis_url) as raw:
        before = raw.dbsize()
        assert completed("get", "nothing-begins-so", SHAREDMEM_REDIS_URL=redis_url) == []
        assert raw.dbsize() <= before  # keys of other tests may expire meanwhile
