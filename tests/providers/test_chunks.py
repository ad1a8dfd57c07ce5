"""docs/providers.md: long texts are read in pieces; models of sentence-transformers, by a stand-in for that package.

The stand-in is called as the real package is, and has its names and shapes; that a real model gives good vectors is
not tested here, since it would bring torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stub_packages import SENTENCE_TRANSFORMERS, TIKTOKEN

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.errors import ConfigError, UnsupportedError
from sharedmem.providers import chunks
from sharedmem.providers import local_embedders as transformers_module
from sharedmem.providers.chunks import combine_chunk_vectors, count_tokens, split_into_chunks
from sharedmem.providers.factory import open_embedder
from sharedmem.providers.local_embedders import TransformerEmbedder
from sharedmem.providers.protocol import Embedder
from sharedmem.runtime import Counters
from sharedmem.testing.provider_suite import EmbedderSuite

# -- pieces ---------------------------------------------------------------------------------------


CL100K, O200K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "fb374d419588a4632f3f557e76b4b70aebbca790"
"""Names of the files of encodings."""


@pytest.fixture(autouse=True)
def _tokens_are_found_out_anew() -> Iterator[None]:
    chunks._tiktoken_starts.cache_clear()
    yield
    chunks._tiktoken_starts.cache_clear()


@given(st.lists(st.text(min_size=1, max_size=400), max_size=4), st.integers(1, 60))
def test_pieces_cover_their_text_and_none_is_too_long(texts: list[str], longest: int) -> None:
    pieces = split_into_chunks(texts, longest=longest)

    assert [piece.owner for piece in pieces] == sorted(piece.owner for piece in pieces)
    for owner, text in enumerate(texts):
        mine = [piece for piece in pieces if piece.owner == owner]
        assert all(1 <= piece.tokens <= longest for piece in mine)
        assert all(piece.text in text for piece in mine)
        signs = {sign for sign in text if not sign.isspace()}
        assert signs <= set("".join(piece.text for piece in mine)) | {"_"}


def test_a_short_text_is_one_piece() -> None:
    text = "word " * 500

    assert [piece.text for piece in split_into_chunks([text])] == [text]


def test_tokens_are_estimated_by_words_signs_and_ideographs() -> None:
    assert count_tokens("") == 0
    assert count_tokens(" ") == 1
    assert count_tokens("Mary fixed it.") == 4
    assert count_tokens("incomprehensibilities") == 4
    assert count_tokens("漢字かな") == 4


def test_pieces_of_one_text_are_weighted_by_their_tokens() -> None:
    words = " ".join(["word"] * 600)
    pieces = split_into_chunks([words, "other"])
    assert [(piece.owner, piece.tokens) for piece in pieces] == [(0, 500), (0, 150), (1, 1)]

    rows = combine_chunk_vectors(np.array([[1, 0], [0, 1], [0, -1]], dtype=np.float32), pieces, 2)

    assert rows[0] == pytest.approx(np.array([500, 150]) / np.hypot(500, 150))
    assert rows[1] == pytest.approx([0, -1])


@pytest.fixture
def tiktoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stand-in for tiktoken; the folder in which it keeps its files."""
    yield from stand_in("tiktoken", TIKTOKEN, tmp_path, monkeypatch)


def stand_in(name: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if name in sys.modules:
        pytest.skip(f"the real {name} is loaded already")
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop(name, None)


def test_tiktoken_counts_where_its_file_is_at_hand(tiktoken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tiktoken))
    (tiktoken / CL100K).write_bytes(b"")

    assert count_tokens("a" * 30) == 10
    assert [len(piece.text) for piece in split_into_chunks(["a" * 2_000])] == [1_500, 650]


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("openai:gpt-4o", 6),
        ("azure:gpt-4o", 6),
        ("openai:openai/gpt-4o", 6),
        ("gpt-4o", 6),
        ("openai:text-embedding-3-small@512", 10),
        ("openai:llama3", 10),
        ("openai:gpt2", 10),
        ("openai:davinci-codex", 10),
        ("", 10),
    ],
)
def test_tokens_are_those_of_the_model_and_of_cl100k_where_its_encoding_is_not_known_or_not_there(
    tiktoken: Path, monkeypatch: pytest.MonkeyPatch, model: str, tokens: int
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tiktoken))
    for file in (CL100K, O200K):
        (tiktoken / file).write_bytes(b"")

    assert count_tokens("a" * 30, model=model) == tokens
    assert [piece.tokens for piece in split_into_chunks(["a" * 300], model=model)] == [tokens * 10]


def test_without_the_usual_file_models_of_other_encodings_are_estimated(
    tiktoken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tiktoken))
    (tiktoken / O200K).write_bytes(b"")

    assert count_tokens("a" * 30, model="openai:gpt-4o") == 6
    assert count_tokens("a" * 30, model="openai:text-embedding-3-small") == 5
    assert count_tokens("a" * 30) == 5


def test_tiktoken_is_not_made_to_download_its_file(tiktoken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tiktoken))

    assert count_tokens("a" * 30) == 5
    assert "tiktoken" not in sys.modules


# -- sentence-transformers ------------------------------------------------------------------------


@pytest.fixture
def transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stand-in for sentence-transformers."""
    yield from stand_in("sentence_transformers", SENTENCE_TRANSFORMERS, tmp_path, monkeypatch)


def package() -> ModuleType:
    return sys.modules["sentence_transformers"]


class TestTransformerEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self, transformers: Path) -> Embedder:  # noqa: ARG002  asked for its effect
        return TransformerEmbedder("all-MiniLM-L6-v2")


async def test_queries_and_documents_are_encoded_in_their_own_ways(transformers: Path) -> None:
    embedder = TransformerEmbedder("sentence-transformers/all-MiniLM-L6-v2", batch=7)

    await embedder.embed(["one"])
    await embedder.embed(["two"], purpose="query")

    assert embedder.name == "sentence-transformers:all-MiniLM-L6-v2"
    assert package().SentenceTransformer.seen == [("document", ["one"], 7), ("query", ["two"], 7)]


async def test_no_piece_is_longer_than_the_model_reads(transformers: Path) -> None:
    await TransformerEmbedder("all-MiniLM-L6-v2").embed(["word " * 200])

    ((_, pieces, _),) = package().SentenceTransformer.seen
    assert max(len(piece.split()) for piece in pieces) <= 0.8 * 64


def test_the_settings_choose_the_model_and_nothing_is_loaded_before_the_first_text(transformers: Path) -> None:
    settings = Settings(embedder="sentence-transformers:some/model", embedding_dimension=384)

    embedder = open_embedder(settings, SystemClock(), Counters())

    assert embedder is not None
    assert (embedder.name, embedder.dimension, embedder.is_remote) == (
        "sentence-transformers:some/model",
        384,
        False,
    )
    assert "sentence_transformers" not in sys.modules


def test_a_model_of_unknown_dimension_asks_for_it(transformers: Path) -> None:
    with pytest.raises(ConfigError, match=r"embedding_dimension.*'some/model'"):
        open_embedder(Settings(embedder="sentence-transformers:some/model"), SystemClock(), Counters())


async def test_another_dimension_than_expected_names_both(transformers: Path) -> None:
    with pytest.raises(ConfigError, match="vectors of 384 numbers, expected 100"):
        await TransformerEmbedder("some/model", dimension=100).embed(["one"])


async def test_a_model_that_cannot_be_loaded_is_named(transformers: Path) -> None:
    with pytest.raises(UnsupportedError, match="'missing' is not available here: it cannot be loaded"):
        await TransformerEmbedder("missing", dimension=384).embed(["one"])


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_module, "find_spec", lambda _: None)

    with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[sentence-transformers\]'"):
        TransformerEmbedder("all-MiniLM-L6-v2")
