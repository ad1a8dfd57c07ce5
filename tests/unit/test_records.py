"""Records whose validator is built at their first use."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pydantic import ValidationError

from sharedmem.models.record import Record

THREADS = 8


def in_many_threads_at_once(action: Callable[[int], object]) -> list[object]:
    start = Barrier(THREADS)

    def begin_together(number: int) -> object:
        start.wait(timeout=30)
        return action(number)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(begin_together, range(THREADS)))


@pytest.mark.parametrize("repetition", range(20))
def test_the_first_use_of_a_record_may_be_in_many_threads_at_once(repetition: int) -> None:
    class Part(Record):
        name: str

    class Whole(Record):
        number: int
        parts: tuple[Part, ...]

    def make(number: int) -> Whole:
        return Whole.model_validate({"number": number, "parts": [{"name": f"part {repetition}"}]})

    made = in_many_threads_at_once(make)

    assert made == [Whole(number=number, parts=(Part(name=f"part {repetition}"),)) for number in range(THREADS)]


def test_a_bad_field_is_refused_at_the_first_use_too() -> None:
    class Reading(Record):
        celsius: float

    with pytest.raises(ValidationError, match="kelvin"):
        Reading.model_validate({"celsius": 20.5, "kelvin": 293.65})
