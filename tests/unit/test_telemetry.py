"""Telemetry: counters that only go up, and log lines that wait for the application to ask for them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sharedmem.runtime import Count, Counters, JsonFormatter, get_logger, log_event, logger
from sharedmem.runtime.log_output import FileHandler, LogOutput, TextFormatter


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


def record_of(message: str, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "sharedmem.memory", "levelname": "INFO", "msg": message, **extra})


def test_a_text_line_shows_its_fields_and_stays_one_line() -> None:
    line = TextFormatter().format(record_of("added\nERROR all is lost", memory_id="m1\n", latency_ms=1.5))

    assert line.endswith("INFO sharedmem.memory: added\\nERROR all is lost memory_id='m1\\n' latency_ms=1.5")
    assert "\n" not in line


@pytest.mark.parametrize("value", [1 << 70, "half \ud800", {1, 2}, float("nan")])
def test_a_json_line_takes_any_value(value: object) -> None:
    assert json.loads(JsonFormatter().format(record_of("added", value=value)))["message"] == "added"


def test_a_log_file_is_appended_to_and_made_again_when_it_was_moved_away(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("before\n")
    handler = FileHandler(file, look_every_s=0.0)
    handler.handle(record_of("one"))
    file.rename(tmp_path / "a.log.1")
    handler.handle(record_of("two"))
    handler.close()

    assert (tmp_path / "a.log.1").read_text() == "before\none\n"
    assert file.read_text() == "two\n"


def test_a_log_that_is_closed_leaves_the_logger_as_it_was(tmp_path: Path) -> None:
    before = logger.level, list(logger.handlers)
    output = LogOutput("info", "json", tmp_path / "a.log")
    get_logger("memory").info("added", extra={"memory_id": "m1"})
    get_logger("memory").debug("unseen")
    output.close()
    get_logger("memory").info("too late")

    (line,) = (tmp_path / "a.log").read_text().splitlines()
    assert json.loads(line)["memory_id"] == "m1"
    assert (logger.level, list(logger.handlers)) == before


def log_numbers(*numbers: int) -> None:
    for number in numbers:
        log_event(get_logger("memory"), "memory added", partial(dict, number=number))


def numbers_in(lines: str) -> list[int]:
    return [json.loads(line)["number"] for line in lines.splitlines()]


def test_events_are_in_the_file_in_their_order_when_the_log_is_closed(tmp_path: Path) -> None:
    output = LogOutput("info", "json", tmp_path / "a.log")
    log_numbers(*range(1_000))
    output.close()

    lines = (tmp_path / "a.log").read_text()
    first = json.loads(lines.splitlines()[0])
    assert numbers_in(lines) == list(range(1_000))
    assert (first["level"], first["logger"], first["message"]) == ("info", "sharedmem.memory", "memory added")


def test_a_warning_is_written_at_once_and_so_are_the_events_before_it(tmp_path: Path) -> None:
    output = LogOutput("info", "text", tmp_path / "a.log")
    log_numbers(1, 2, 3)
    get_logger("memory").warning("careful")
    written = (tmp_path / "a.log").read_text().splitlines()
    output.close()

    assert [line.split(": ", 1)[1] for line in written] == [*(f"memory added number={n}" for n in (1, 2, 3)), "careful"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the test reads the lines from a named pipe")
def test_events_are_written_soon_although_nothing_follows_them(tmp_path: Path) -> None:
    pipe = tmp_path / "a.log"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reading:
        output = LogOutput("info", "json", pipe)
        os.set_blocking(reading.fileno(), True)
        try:
            for number in (1, 2, 3, 4):
                log_numbers(number)
                if number % 2 == 0:
                    assert numbers_in(reading.readline() + reading.readline()) == [number - 1, number]
        finally:
            output.close()


class ListHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


def test_other_handlers_get_each_event_too(tmp_path: Path) -> None:
    other = ListHandler()
    output = LogOutput("info", "json", tmp_path / "a.log")
    logger.addHandler(other)
    log_numbers(1, 2)
    output.close()
    logger.removeHandler(other)

    assert [(record.getMessage(), vars(record)["number"]) for record in other.seen] == [
        ("memory added", 1),
        ("memory added", 2),
    ]
    assert other.seen[0].levelno == logging.INFO
    assert other.seen[0].created <= other.seen[1].created


LOGGING = """
import os, sys
from functools import partial
from pathlib import Path
from sharedmem.runtime import get_logger, log_event
from sharedmem.runtime.log_output import LogOutput

output = LogOutput("info", "json", Path(sys.argv[1]))

def log(*numbers):
    for number in numbers:
        log_event(get_logger("memory"), "memory added", partial(dict, number=number))

"""


def run_logging(code: str, file: Path) -> list[int]:
    subprocess.run([sys.executable, "-c", LOGGING + code, str(file)], check=True, timeout=60)
    return numbers_in(file.read_text())


def test_no_event_is_lost_when_the_interpreter_ends(tmp_path: Path) -> None:
    assert run_logging("log(1, 2, 3)", tmp_path / "a.log") == [1, 2, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork no process inherits events")
def test_a_forked_process_does_not_write_the_events_of_its_parent_again(tmp_path: Path) -> None:
    code = """
log(1, 2)
if os.fork():
    assert os.wait()[1] == 0
else:
    log(3)
"""

    assert sorted(run_logging(code, tmp_path / "a.log")) == [1, 2, 3]


def test_no_span_is_made_until_the_application_sets_a_tracer_provider() -> None:
    code = (
        "from opentelemetry import trace; from sharedmem.runtime import span\n"
        "with span('a'): assert trace.get_current_span() is trace.INVALID_SPAN"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
