"""A filter lets through what it says, exactly: no value means anything else than itself."""
# ruff: noqa: D102  # a test's name is its sentence

from __future__ import annotations

import pytest

from sharedmem.errors import InvalidError
from sharedmem.search.filters import ALL, Between, Condition, Every, Tagged
from sharedmem.search.protocol import Index, Query
from sharedmem.testing.index_suite.base import IndexFixtures, Shelf, by_meaning, by_words, direction

_VALUES = (
    *("alice", "Alice", "ALICE", "alices", "alic", "alice ", " alice", "alice\n", "\talice", "ali ce", "a", "b", "the"),
    *("a,b", "a|b", "a b", "a-b", "a:b", "a.b", "{a}", "a}", "(a", "[a]", "*", "a*", "?", "%", "%a", "%a%", "%20a"),
    *("$f0", "$v", "@user:{alice}", "~a", "-a", "!a", "\\", "\\a", "a\\", "\\ alice", "'", '"', "=>[KNN 1 @vector $v]"),
    *(
        "1",
        "10",
        "-1",
        "inf",
        "ü",
        "u\u0308",
        "é",
        "ß",
        "SS",
        "日本",
        "👩‍💻",
        "\u200b",
        "\ufeffa",
        "\u00a0a",
        "a\u00a0",
        "",
        " ",
        "  ",
    ),
    *("a\x00b", "a\x00c", "\x1f", "a\x1fb", "\x7f", "secret) | (@ns:{victim}", "x" * 3000),
)


class FilterTests(IndexFixtures):
    """What filters let through."""

    async def test_each_value_is_found_by_itself_alone(self, index: Index, shelf: Shelf) -> None:
        for number, value in enumerate(_VALUES):
            await shelf.put(f"n{number}", "apple", user=value, tags=("x", value), vector=direction(1))

        for number, value in enumerate(_VALUES):
            for field in ("user", "tags"):
                only = Every((Tagged(field, (value,)),))
                assert await by_words(index, shelf, "apple", only) == [f"n{number}"], (field, value)
                assert await by_meaning(index, shelf, direction(1), only) == [f"n{number}"], (field, value)
                assert (await index.matching(shelf.namespace, only)).ids == [f"n{number}"], (field, value)

    @pytest.mark.parametrize(
        ("conditions", "passing"),
        [
            ((), "abcd"),
            ((Tagged("user", ("x",)),), "ab"),
            ((Tagged("user", ("x", "y")),), "abc"),
            ((Tagged("user", ("x", "nobody")),), "ab"),
            ((Tagged("user", ()),), ""),
            ((Tagged("user", ("nobody",)),), ""),
            ((Tagged("tags", ("red",)),), "ac"),
            ((Tagged("tags", ("red",)), Tagged("tags", ("big",))), "a"),
            ((Tagged("user", ("x",)), Tagged("tags", ("red",))), "a"),
            ((Between("at", 2, 3),), "bc"),
            ((Between("at", None, 2),), "ab"),
            ((Between("at", 2, None),), "bc"),
            ((Between("at", 3, 2),), ""),
            ((Between("at"),), "abc"),
            ((Between("at", 1.5, 2.5),), "b"),
            ((Between("at", -1e30, 1e30),), "abc"),
            ((Between("size", 1, None),), ""),
            ((Every(),), "abcd"),
            ((Every((Every((Tagged("user", ("x",)),)),)), Between("at", 2, None)), "b"),
        ],
    )
    async def test_all_conditions_hold_of_what_is_found(
        self, index: Index, shelf: Shelf, conditions: tuple[Condition, ...], passing: str
    ) -> None:
        await shelf.put("a", "apple pie", user="x", tags=("red", "big"), at=1, vector=direction(1))
        await shelf.put("b", "apple", user="x", tags=("green",), at=2, vector=direction(1))
        await shelf.put("c", "apple", user="y", tags=("red",), at=3, vector=direction(1))
        await shelf.put("d", "apple", vector=direction(1))
        filters = ALL.also(*conditions)

        assert sorted(await by_words(index, shelf, "apple pie", filters)) == list(passing)
        assert sorted(await by_meaning(index, shelf, direction(1), filters)) == list(passing)
        assert sorted((await index.matching(shelf.namespace, filters)).ids) == list(passing)

    @pytest.mark.parametrize(
        "condition",
        [
            Tagged("nothing", ("x",)),
            Tagged("at", ("1",)),
            Between("user", 1, 2),
            Between("nothing"),
            Tagged("", ("x",)),
        ],
    )
    async def test_a_field_that_is_none_is_refused_by_name(
        self, index: Index, shelf: Shelf, condition: Condition
    ) -> None:
        wrong = Every((Every((condition,)),))

        with pytest.raises(InvalidError, match=r"filter|tags|numbers"):
            await index.search(shelf.namespace, Query(("appl",), filters=wrong))
        with pytest.raises(InvalidError, match=r"filter|tags|numbers"):
            await index.search(shelf.namespace, Query(filters=wrong))
        with pytest.raises(InvalidError, match=r"filter|tags|numbers"):
            await index.matching(shelf.namespace, wrong)

    async def test_a_bound_that_is_no_number_is_refused(self, index: Index, shelf: Shelf) -> None:
        with pytest.raises(InvalidError, match="number"):
            await index.matching(shelf.namespace, Every((Between("at", float("nan"), None),)))
