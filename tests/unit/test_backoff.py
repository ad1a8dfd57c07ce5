"""Pauses between tries double up to a longest one, and are spread."""

from __future__ import annotations

from itertools import islice

import pytest

from sharedmem.runtime.concurrency import backoff, backoff_pause


def test_the_upper_bound_doubles_and_stays_at_the_longest() -> None:
    pauses = list(islice(backoff(0.5, 4.0, least=1.0), 6))

    assert pauses == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(("least", "lowest"), [(0.0, 0.0), (0.5, 1.0)])
def test_a_pause_is_spread_between_its_bounds(least: float, lowest: float) -> None:
    pauses = {backoff_pause(2, 0.5, 60.0, least=least) for _ in range(50)}

    assert len(pauses) > 1
    assert all(lowest <= pause <= 2.0 for pause in pauses)


def test_a_late_attempt_does_not_overflow() -> None:
    assert backoff_pause(10_000, 0.5, 60.0, least=1.0) == 60.0
