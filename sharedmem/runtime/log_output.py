"""The log: the library's logger, how its lines look, and where a process writes them."""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

import orjson

logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

# A record has these first; then those of `extra`, and what formatters of others keep there.
_STANDARD_ATTRIBUTES = len(vars(logging.makeLogRecord({})))
_OF_FORMATTERS = frozenset({"message", "asctime", "taskName"})


def get_logger(part: str) -> logging.Logger:
    """Return the logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that a log record has from `extra`."""
    own = islice(vars(record).items(), _STANDARD_ATTRIBUTES, None)
    return {name: value for name, value in own if name not in _OF_FORMATTERS}


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def time_text(record: logging.LogRecord) -> str:
    """Return when a log record was made, in UTC to the millisecond."""
    second, part = divmod(record.created, 1)
    return f"{_second_text(int(second))}.{int(part * 1000):03d}+00:00"


def elapsed_ms(began: float) -> float:
    """Return the milliseconds since a value of `time.perf_counter`, as log lines show them."""
    return round((time.perf_counter() - began) * 1000, 3)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of `extra`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line."""
        fields: dict[str, object] = {
            "at": time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in extra_fields(record).items() if name not in fields}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(fields, default=str).decode()
        except TypeError:  # an integer beyond 64 bits, or half of a surrogate pair
            return json.dumps(fields, default=str)


_LOOK_EVERY_S = 1.0
_UNUSED = {
    name: value
    for name, value in {
        **dict.fromkeys(("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"), False),
        "_srcfile": None,
    }.items()
    if hasattr(logging, name)
}
"""What `logging` finds out for each record, unless a process sets these: the Logging HOWTO, "Optimization"."""


class TextFormatter(logging.Formatter):
    """One line: time, level, logger, message, then the fields of `extra` as `name=value`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line, and the traceback of its error on lines of its own."""
        fields = "".join(f" {name}={value!r}" for name, value in extra_fields(record).items())
        # A text of a caller must not look like another line of the log.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{time_text(record)} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class FileHandler(logging.Handler):
    """Appends each line to a file with one call of the system, so that several processes can share the file.

    From time to time it looks whether another program has moved or deleted the file, and then creates it again.

    Args:
        path: the file.
        look_every_s: seconds between two looks.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, look_every_s: float = _LOOK_EVERY_S) -> None:
        super().__init__()
        self._path = path
        self._look_every_s = look_every_s
        self._descriptor = self._opened()
        self._look_at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Append a log record; a failure is reported to standard error, as all handlers of Python do."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            if (now := time.monotonic()) >= self._look_at:
                self._look_at = now + self._look_every_s
                self._follow_rotation()
            os.write(self._descriptor, line)
        except Exception:  # noqa: BLE001  # the formatter may meet any object of a caller; logging must not fail
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        self.acquire()
        try:
            os.close(self._descriptor)
        finally:
            self.release()
        super().close()

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _follow_rotation(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            found = None
        if found is None or not os.path.samestat(found, os.fstat(self._descriptor)):
            former, self._descriptor = self._descriptor, self._opened()
            os.close(former)


class LogOutput:
    """Writes the log of the library to standard error or a file, until it is closed.

    Args:
        level: least level of a line.
        form: text or JSON lines.
        file: file to append to, also after a rotation by another program; None: standard error.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, level: str, form: Literal["text", "json"], file: Path | None) -> None:
        self._handler: logging.Handler = logging.StreamHandler() if file is None else FileHandler(file)
        self._handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        self._handler.setLevel(level.upper())
        self._level_before = logger.level
        # No line shows these; to find them for each line takes longer than to write it.
        self._found_before = {name: getattr(logging, name) for name in _UNUSED}
        for name, value in _UNUSED.items():
            setattr(logging, name, value)
        logger.addHandler(self._handler)
        logger.setLevel(level.upper())

    def close(self) -> None:
        """Stop writing; the logger is as it was before."""
        logger.removeHandler(self._handler)
        logger.setLevel(self._level_before)
        for name, value in self._found_before.items():
            setattr(logging, name, value)
        self._handler.close()
