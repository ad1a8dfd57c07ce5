"""Conformance tests of embedders (`providers.protocol.Embedder`); a test class inherits them.

    class TestMyEmbedder(EmbedderSuite):
        @pytest.fixture
        async def embedder(self):
            embedder = MyEmbedder()
            yield embedder
            await embedder.close()

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`.
"""

from __future__ import annotations

import asyncio

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Matrix
from sharedmem.testing.pytest_required import pytest

_SENTENCE = "Mary fixed the deploy pipeline on Tuesday."
_MEGABYTE = 1_000_000
# Half precision, in which some caches store them.
_NEARLY = 2e-3
_STRANGE = [
    *("🎉🎊", "👩‍👩‍👧‍👦 at 🏖️", "漢字かな交じり文", "مرحبا بالعالم", "שלום", "ﷺ", "e\u0301", "\u202eabc"),
    *("?!…", "the and of", "half a pair \ud83d", "nul \0 inside", "line\nbreak\ttab", "x"),
]
_BLANK = ["", " ", "\n\t", "\u3000"]
_CALLERS = 8
_THINGS = ["cats", "dogs", "bread", "rivers", "music", "trains", "paper", "stones", "winter", "gardens", "iron"]


def _lengths(vectors: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(vectors, axis=1)
    return lengths


class _EmbedderTests:
    """Tests of any embedder."""

    async def test_it_says_who_it_is_and_how_long_its_vectors_are(self, embedder: Embedder) -> None:
        provider, separator, model = embedder.name.partition(":")

        assert provider
        assert separator
        assert model
        assert embedder.dimension > 0

    async def test_vectors_have_the_reported_dimension_and_unit_length(self, embedder: Embedder) -> None:
        vectors, tokens = await embedder.embed([_SENTENCE, "a", "42"])

        assert vectors.shape == (3, embedder.dimension)
        assert vectors.dtype == np.float32
        assert _lengths(vectors) == pytest.approx(1, abs=_NEARLY)
        assert tokens >= 0

    async def test_nothing_gives_no_vectors(self, embedder: Embedder) -> None:
        vectors, tokens = await embedder.embed([])

        assert vectors.shape == (0, embedder.dimension)
        assert tokens == 0

    async def test_vectors_come_in_the_order_of_their_texts(self, embedder: Embedder) -> None:
        # Words, since some models ignore the order of digits.
        texts = [f"they talked about {thing}" for thing in _THINGS]
        together, _ = await embedder.embed(texts)

        backwards, _ = await embedder.embed(texts[::-1])

        assert np.allclose(together, backwards[::-1], atol=_NEARLY)
        assert len({row.tobytes() for row in together}) == len(texts)

    async def test_the_same_text_has_the_same_vector_in_any_company(self, embedder: Embedder) -> None:
        first, _ = await embedder.embed([_SENTENCE])

        again, _ = await embedder.embed(["before it", _SENTENCE, "", _SENTENCE, "and a longer one after it " * 20])

        assert np.allclose(again[1], first[0], atol=_NEARLY)
        assert np.array_equal(again[1], again[3])

    async def test_a_text_without_a_meaning_has_a_row_of_zeros(self, embedder: Embedder) -> None:
        vectors, _ = await embedder.embed([*_BLANK, _SENTENCE])

        assert not vectors[:-1].any()
        assert _lengths(vectors)[-1] == pytest.approx(1, abs=_NEARLY)

    async def test_only_blanks_cost_nothing(self, embedder: Embedder) -> None:
        vectors, tokens = await embedder.embed(_BLANK)

        assert vectors.shape == (len(_BLANK), embedder.dimension)
        assert tokens == 0

    @pytest.mark.parametrize("text", _STRANGE, ids=ascii)
    async def test_any_script_and_sign_has_a_vector(self, embedder: Embedder, text: str) -> None:
        vectors, _ = await embedder.embed([text])

        assert np.isfinite(vectors).all()
        assert _lengths(vectors) == pytest.approx(1, abs=_NEARLY)

    @pytest.mark.parametrize("piece", ["word and other ", "x", "漢字"], ids=["words", "letters", "ideographs"])
    async def test_a_text_of_a_megabyte_has_a_vector_and_others_go_on_meanwhile(
        self, embedder: Embedder, piece: str
    ) -> None:
        long = piece * (_MEGABYTE // len(piece.encode()))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        vectors, _ = await embedder.embed([long, _SENTENCE])
        ticking.cancel()

        assert _lengths(vectors) == pytest.approx(1, abs=_NEARLY)
        assert ticks > 1

    async def test_it_finds_what_resembles(self, embedder: Embedder) -> None:
        texts = ["Mary fixed the deploy pipeline on a Tuesday", "bananas ripen in warm cellars"]
        documents, _ = await embedder.embed(texts, purpose="document")

        query, _ = await embedder.embed(["who fixed the deploy pipeline"], purpose="query")

        near, far = documents @ query[0]
        assert near > far

    async def test_callers_at_the_same_time_do_not_disturb_each_other(self, embedder: Embedder) -> None:
        texts = [f"caller {number} wants this" for number in range(_CALLERS)]

        answers = await asyncio.gather(*(embedder.embed([_SENTENCE, text]) for text in texts))

        alone = await embedder.embed(texts)
        assert np.allclose(np.stack([answer.vectors[1] for answer in answers]), alone.vectors, atol=_NEARLY)

    async def test_one_text_instead_of_a_list_is_refused(self, embedder: Embedder) -> None:
        with pytest.raises(InvalidError, match="give a list"):
            await embedder.embed(_SENTENCE)

    async def test_what_is_no_text_is_refused(self, embedder: Embedder) -> None:
        with pytest.raises(InvalidError, match="give texts"):
            await embedder.embed([_SENTENCE, 42])  # type: ignore[list-item]  # on purpose

    async def test_it_may_be_closed_again(self, embedder: Embedder) -> None:
        await embedder.embed([_SENTENCE])

        await embedder.close()
        await embedder.close()


class EmbedderSuite(_EmbedderTests):
    """All tests of an embedder, which the fixture `embedder` provides."""
