"""Telemetry: counters that only go up, and log lines that wait for the application to ask for them."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharedmem.runtime import Count, Counters, get_logger


def test_a_counter_starts_at_zero_and_counts_each_set_of_labels_for_itself() -> None:
    counters = Counters()

    counters.increment("retries")
    counters.increment("calls", call="read", outcome="ok")
    counters.increment("calls", outcome="ok", call="read")
    counters.increment("calls", call="write", outcome="ok")

    assert counters.read("retries") == 1
    assert counters.read("calls", outcome="ok", call="read") == 2
    assert counters.read("calls") == 0
    assert counters.read("never") == 0


def test_a_label_may_have_any_name() -> None:
    counters = Counters()

    counters.increment("failures", name="a")

    assert counters.read("failures", name="a") == 1


def test_a_snapshot_is_sorted_prefixed_and_stays_as_it_was() -> None:
    counters = Counters()
    counters.increment("writes", kind="session")
    counters.increment("reads")

    before = counters.snapshot()
    counters.increment("reads")

    assert before == [
        Count("sharedmem_reads", (), 1),
        Count("sharedmem_writes", (("kind", "session"),), 1),
    ]
    assert repr(counters) == "<Counters with 2 names and labels>"


def test_no_count_is_lost_between_threads() -> None:
    counters = Counters()

    def count(_: int) -> None:
        for _ in range(2_000):
            counters.increment("calls", call="read")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))

    assert counters.read("calls", call="read") == 8_000


def test_every_part_logs_below_the_one_logger_that_applications_configure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sharedmem"):
        get_logger("redis").info("connected")

    assert caplog.record_tuples == [("sharedmem.redis", logging.INFO, "connected")]


def test_without_configured_logging_nothing_is_printed() -> None:
    code = "from sharedmem.runtime import get_logger; get_logger('tasks').error('lost')"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert (done.stdout, done.stderr) == ("", "")
