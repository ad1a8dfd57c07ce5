"""`sharedmem presence` and `sharedmem limits`: what programs and people are told."""

from __future__ import annotations

import asyncio

import pytest
from support.shell import Shell, several_on_a_terminal

from sharedmem import Hub, Settings


def come(shell: Shell, actor: str, role: str, info: object) -> None:
    """What an agent does meanwhile."""

    async def in_a_hub() -> None:
        async with Hub.open(settings=Settings(data_dir=shell.data_dir)) as hub:
            await hub.store(shell.namespace, actor=actor).presence.announce(role=role, info=info, ttl=600)

    asyncio.run(in_a_hub())


def test_presence_shows_who_is_here(shell: Shell) -> None:
    assert shell("presence").data == []
    come(shell, "ada", "planner", {"pid": 7})
    come(shell, "bob", "executor", None)

    everybody = shell("presence").data

    assert [(one["actor"], one["role"], one["info"]) for one in everybody] == [
        ("ada", "planner", {"pid": 7}),
        ("bob", "executor", None),
    ]
    assert [one["actor"] for one in shell("presence", "--role", "executor").data] == ["bob"]


def test_a_limit_is_shown_and_taken_of(shell: Shell) -> None:
    words = ("limits", "api", "--limit", "2", "--per", "60")

    assert shell(*words).data["remaining"] == 2
    assert shell(*words, "--take").data == {"allowed": True, "remaining": 1, "retry_after": 0.0}
    assert shell(*words, "--take", "--cost", "2").code == 6
    assert shell(*words, "--take").data["remaining"] == 0
    refused = shell(*words, "--take")

    assert refused.code == 6
    assert '"allowed": false' in refused.out
    assert 0 < shell(*words).data["retry_after"] <= 60


def test_a_token_bucket_is_asked_for_by_name(shell: Shell) -> None:
    words = ("limits", "tokens", "--limit", "1", "--per", "600", "--algorithm", "token_bucket", "--burst", "3")

    assert [shell(*words, "--take").code for _ in range(4)] == [0, 0, 0, 6]
    assert shell(*words).data["burst"] == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("limits", "api", "--limit", "0", "--per", "60"), "limit 0"),
        (("limits", "api", "--limit", "1", "--per", "0"), "per 0"),
        (("limits", "api", "--limit", "1", "--per", "1", "--burst", "2"), "burst 2"),
        (("limits", "api", "--limit", "1", "--per", "1", "--take", "--cost", "5"), "cost 5"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2(shell: Shell, words: tuple[str, ...], told: str) -> None:
    done = shell(*words)

    assert done.code == 2
    assert told in done.err
    assert not done.out


def test_people_see_tables_and_sentences(shell: Shell) -> None:
    come(shell, "ada", "planner", {"pid": 7})
    place = ("--data-dir", str(shell.data_dir), "--namespace", shell.namespace)
    limit = (*place, "limits", "api", "--limit", "1", "--per", "60")

    screen = several_on_a_terminal(
        (*place, "presence"), limit, (*limit, "--take"), (*limit, "--take"), (*place, "presence", "--role", "nobody")
    ).out

    assert "planner" in screen
    assert "1 in 60 s (sliding window)" in screen
    assert "taken, 0 left" in screen
    assert "refused, 0 left; try again in" in screen


@pytest.mark.parametrize("name", ["presence", "limits"])
def test_a_help_text_ends_with_a_line_to_paste(shell: Shell, name: str) -> None:
    assert f"Try:  sharedmem {name} " in shell(name, "--help").out
