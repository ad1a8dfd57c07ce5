"""Callers of the same work share one run, and each of them gets its outcome."""

from __future__ import annotations

import asyncio

import pytest

from sharedmem.errors import UnavailableError, UsageError
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import FAILURE_COUNTER, Background, SingleFlight


class Work:
    """Work that ends when it is let go.

    Args:
        failure: what it ends with instead of a result.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        self.runs = 0
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        self._failure = failure

    async def run(self) -> int:
        self.runs += 1
        self.begun.set()
        await self.released.wait()
        if self._failure is not None:
            raise self._failure
        return self.runs


@pytest.fixture(params=["background", "own task"])
def flights(request: pytest.FixtureRequest) -> SingleFlight[int]:
    return SingleFlight("count", Background(Counters()) if request.param == "background" else None)


async def test_callers_of_the_same_work_share_a_run_and_the_next_begins_another(flights: SingleFlight[int]) -> None:
    work = Work()
    callers = asyncio.gather(*(flights.share("sheep", work.run) for _ in range(3)))
    await work.begun.wait()
    work.released.set()

    assert await callers == [1, 1, 1]
    assert await flights.share("sheep", work.run) == 2


async def test_a_caller_who_gives_up_does_not_end_the_run_of_the_others(flights: SingleFlight[int]) -> None:
    work = Work()
    quitter = asyncio.ensure_future(flights.share("sheep", work.run))
    await work.begun.wait()
    patient = asyncio.ensure_future(flights.share("sheep", work.run))
    await asyncio.sleep(0)
    quitter.cancel()
    await asyncio.wait([quitter])
    work.released.set()

    assert await patient == 1


@pytest.mark.parametrize("failure", [UnavailableError("Redis", "it is away"), ValueError("a defect")])
async def test_every_caller_gets_the_failure_itself(flights: SingleFlight[int], failure: Exception) -> None:
    work = Work(failure)
    callers = [asyncio.ensure_future(flights.share("sheep", work.run)) for _ in range(2)]
    await work.begun.wait()
    work.released.set()

    assert await asyncio.gather(*callers, return_exceptions=True) == [failure, failure]


async def test_a_background_counts_defects_and_no_failures_that_callers_expect() -> None:
    counters = Counters()
    flights: SingleFlight[int] = SingleFlight("count", Background(counters))
    for failure in (UnavailableError("Redis", "it is away"), ValueError("a defect")):
        work = Work(failure)
        work.released.set()
        with pytest.raises(type(failure)):
            await flights.share("sheep", work.run)
    await asyncio.sleep(0)

    assert counters.read(FAILURE_COUNTER, work="count", error="ValueError") == 1
    assert counters.read(FAILURE_COUNTER, work="count", error="UnavailableError") == 0


async def test_callers_of_a_run_that_is_stopped_are_told_so() -> None:
    flights: SingleFlight[int] = SingleFlight("count", None)
    work = Work()
    caller = asyncio.ensure_future(flights.share("sheep", work.run))
    await work.begun.wait()
    await flights.stop()

    with pytest.raises(UsageError, match="closed before it could count sheep"):
        await caller
