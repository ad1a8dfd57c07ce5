"""Reads as a type: pydantic validates the value, and a value that does not fit is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict  # pydantic cannot use that of typing before Python 3.12

from sharedmem.errors import InvalidError, WrongTypeError
from sharedmem.hub import Hub
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures


class Side(StrEnum):
    BUY = "buy"
    SELL = "sell"


class Line(BaseModel):
    text: str
    tags: set[str] = set()


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    side: Side
    price: Decimal = Field(alias="limitPrice")
    at: datetime
    lines: tuple[Line, ...] = ()


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str


ORDER = Order(side=Side.BUY, limitPrice=Decimal("1.50"), at=datetime(2026, 1, 2, tzinfo=UTC), lines=(Line(text="a"),))

_FITTING: list[tuple[object, Any]] = [
    (Point(1, 2), Point),
    ({"name": "ann"}, Row),
    ([1, 2], list[int]),
    ([1, 2], tuple[int, int]),
    (7, int | None),
    (None, int | None),
    ("buy", Side),
    ("a", Literal["a", "b"]),
    (5, Annotated[int, Field(gt=3)]),
    ([1], Annotated[list[int], ["a list is no hashable annotation"]]),
    (b"\x00", bytes),
]


class TypedReadTests(StoreFixtures):
    """`read` and `read_many` with `as_`."""

    async def test_a_model_is_read_as_it_was_written(self, ada: SharedMemoryStore) -> None:
        await ada.write("order", ORDER)

        assert await ada.read("order", as_=Order) == ORDER

    async def test_a_value_with_the_aliases_of_a_model_fits_it(self, ada: SharedMemoryStore) -> None:
        await ada.write("order", ORDER.model_dump(mode="json", by_alias=True))

        assert await ada.read("order", as_=Order) == ORDER

    @pytest.mark.parametrize(("value", "as_"), _FITTING, ids=str)
    async def test_a_value_is_read_as_any_type_that_pydantic_validates(
        self, ada: SharedMemoryStore, value: object, as_: Any
    ) -> None:
        await ada.write("value", value)

        found = await ada.read("value", as_=as_)

        assert found == (tuple(value) if isinstance(found, tuple) and isinstance(value, list) else value)
        assert await ada.read_many(["value", "missing"], as_=as_) == {"value": found}

    async def test_the_members_of_a_union_count_in_their_order(self, ada: SharedMemoryStore) -> None:
        class Other(BaseModel):
            text: str

        await ada.write("line", {"text": "a"})

        assert type(await ada.read("line", as_=Line | Other)) is Line
        assert type(await ada.read("line", as_=Other | Line)) is Other

    async def test_a_key_without_a_value_reads_as_the_default_of_any_type(self, ada: SharedMemoryStore) -> None:
        assert await ada.read("missing", as_=Order) is None
        assert await ada.read("missing", "none yet", as_=Order) == "none yet"
        assert await ada.read_many(["missing"], as_=Order) == {}

    async def test_a_value_that_does_not_fit_is_refused_with_what_did_not_fit(
        self, ada: SharedMemoryStore, namespace: str
    ) -> None:
        await ada.write("point", {"x": "hunter2"})

        for reading in (ada.read("point", as_=Point), ada.read_many(["point"], as_=Point)):
            with pytest.raises(WrongTypeError) as caught:
                await reading

            message = str(caught.value)
            assert f"'{namespace}:ada:point'" in message
            assert "value that does not fit (x: Input should be a valid integer" in message
            assert "this call needs a Point; read it without as_" in message
            assert "hunter2" not in message  # the message may be logged
            assert isinstance(caught.value.__cause__, ValidationError)
            assert str(pickle.loads(pickle.dumps(caught.value))) == message  # our own error

    async def test_a_stored_none_does_not_fit_a_model(self, ada: SharedMemoryStore) -> None:
        await ada.write("nothing", None)

        with pytest.raises(WrongTypeError, match="needs a Point"):
            await ada.read("nothing", Point(1), as_=Point)

    async def test_many_problems_of_a_value_are_counted(self, ada: SharedMemoryStore) -> None:
        await ada.write("numbers", ["a", "b", "c", "d", "e"])

        with pytest.raises(WrongTypeError, match=r"0: .*; 1: .*; 2: .*; 2 more\), this call needs a list\[int\]"):
            await ada.read("numbers", as_=list[int])

    async def test_a_list_key_is_refused_as_without_a_type(self, ada: SharedMemoryStore) -> None:
        await ada.append("list", 1)

        with pytest.raises(WrongTypeError, match="it holds a list, this call needs a value"):
            await ada.read("list", as_=list[int])

    async def test_a_large_value_is_read_as_its_type(self, hub: Hub, ada: SharedMemoryStore) -> None:
        line = Line(text="x" * (hub.settings.blob_threshold_bytes + 1))
        await ada.write("large", line)

        assert await ada.read("large", as_=Line) == line

    @pytest.mark.parametrize(
        "as_", [pytest.param(object(), id="an object"), 5, "NoSuchType", "list[", "dict[str, NoSuchType]"], ids=str
    )
    async def test_what_pydantic_cannot_validate_is_refused(self, ada: SharedMemoryStore, as_: Any) -> None:
        await ada.write("value", 1)

        with pytest.raises(InvalidError, match=r"(?s)as_ .* is refused: give a type that pydantic's TypeAdapter takes"):
            await ada.read("value", as_=as_)
