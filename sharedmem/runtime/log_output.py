"""The log: the library's logger, how its lines look, and where a process writes them."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal
from weakref import WeakSet

import orjson

logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

# A record has these first; then those of `extra`, and what formatters of others keep there.
_FIRST_RECORD = logging.makeLogRecord({})
_STANDARD_ATTRIBUTES = len(vars(_FIRST_RECORD))
_LOGGING_BEGAN = _FIRST_RECORD.created - _FIRST_RECORD.relativeCreated / 1000
_OF_FORMATTERS = frozenset({"message", "asctime", "taskName"})


def get_logger(part: str) -> logging.Logger:
    """Return the logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that a log record has from `extra`."""
    own = dict(islice(vars(record).items(), _STANDARD_ATTRIBUTES, None))
    if not own.keys().isdisjoint(_OF_FORMATTERS):
        own = {name: value for name, value in own.items() if name not in _OF_FORMATTERS}
    return own


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def time_text(record: logging.LogRecord) -> str:
    """Return when a log record was made, in UTC to the millisecond."""
    second = int(record.created)
    return f"{_second_text(second)}.{int((record.created - second) * 1000):03d}+00:00"


def elapsed_ms(began: float, ended: float | None = None) -> float:
    """Return the milliseconds between values of `time.perf_counter` (now, if it has not ended), as log lines show."""
    return round(((time.perf_counter() if ended is None else ended) - began) * 1000, 3)


Fields = Callable[[], dict[str, object]]
"""Returns the fields of an event: ids and numbers, never content."""


def log_event(target: logging.Logger, message: str, fields: Fields) -> None:
    """Log at INFO what was done, as `target.info(message, extra=fields())` does.

    Where `LogOutput` writes to a file, it takes a fraction of the time: the handlers of the logger get several events
    at once, a moment later, and their records lack code, thread and process.

    Args:
        target: a logger of `get_logger`, which is enabled for INFO.
        message: what was done; the same text for each event of a kind.
        fields: called once, perhaps later and by another thread; what it refers to stays in memory until then.
    """
    gather = _gather_event
    if gather is None:
        target.info(message, extra=fields())
    else:
        gather((time.time(), target, message, fields))


_Event = tuple[float, logging.Logger, str, Fields]
"""When it was, in seconds since 1970, and the arguments of `log_event`."""
_gather_event: Callable[[_Event], None] | None = None
"""Takes the events while this process logs to a file."""


def _set_gather(gather: Callable[[_Event], None] | None) -> None:
    global _gather_event  # noqa: PLW0603  # as the logger, one for each process
    _gather_event = gather


def _handle_event(event: _Event) -> None:
    """Pass an event to the handlers of its logger, as a record that has neither code nor thread nor process."""
    created, target, message, fields = event
    times = {
        "created": created,
        "msecs": float(int(created % 1 * 1000)),
        "relativeCreated": (created - _LOGGING_BEGAN) * 1000,
    }
    record = _new_record(logging.LogRecord)
    record.__dict__ = {**_blank_fields(target.name, message), **times, **fields()}
    target.handle(record)


_new_record = logging.LogRecord.__new__


@lru_cache(maxsize=64)
def _blank_fields(name: str, message: str) -> dict[str, object]:
    """Return the fields of a record, in their order, with a time that is to be replaced."""
    record = logging.LogRecord(name, logging.INFO, "(unknown file)", 0, message, (), None, "(unknown function)")
    return vars(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of `extra`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line."""
        first: dict[str, object] = {
            "at": time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = first | extra_fields(record) | first
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(fields, default=str).decode()
        except TypeError:  # an integer beyond 64 bits, or half of a surrogate pair
            return json.dumps(fields, default=str)


_LOOK_EVERY_S = 1.0
_GATHER_S = 0.25
_MOST_WAITING = 256
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
    """Appends lines to a file, each with a call of the system, so that several processes can share the file.

    Events (`log_event`) that follow each other within a fraction of a second share a call. If the process is killed,
    the file lacks at most the events of that fraction; nothing is lost when the handler is closed or the interpreter
    ends. Any other record is written before the call that logged it returns, and the events before it too.

    From time to time it looks whether another program has moved or deleted the file, and then creates it again.

    Args:
        path: the file.
        look_every_s: seconds between two looks.
        gather_s: longest time that an event waits, in seconds.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, look_every_s: float = _LOOK_EVERY_S, gather_s: float = _GATHER_S) -> None:
        super().__init__()
        self._path = path
        self._look_every_s = look_every_s
        self._gather_s = gather_s
        self._descriptor = self._opened()
        self._look_at = 0.0
        self._closing = threading.Event()
        # Any thread may append at any time, without the handler's lock; with it one thread at a time takes and writes.
        self._waiting: deque[_Event] = deque()
        self._lines: list[str] | None = None
        self._gathers_until = 0.0
        self._is_watched = False
        self._watcher: threading.Thread | None = None
        self._wakes = threading.Event()
        _file_handlers.add(self)

    def gather(self, event: _Event) -> None:
        """Pass an event to the handlers of its logger, this one too: at once if there was none for a while."""
        waiting = self._waiting
        waiting.append(event)
        if event[0] >= self._gathers_until or len(waiting) >= _MOST_WAITING:
            self.flush()
        elif not self._is_watched:
            self._watch()

    def emit(self, record: logging.LogRecord) -> None:
        """Append a log record; a failure is reported to standard error, as all handlers of Python do."""
        if self._lines is None:
            self._drain(record)
        else:
            self._add_line(self._lines, record)

    def flush(self) -> None:
        """Write the events that wait."""
        self.acquire()
        try:
            self._drain()
        finally:
            self.release()

    def close(self) -> None:
        """Write the events that wait, and close the file."""
        self.acquire()
        try:
            if not self._closing.is_set():
                self._drain()
                self._closing.set()
                os.close(self._descriptor)
        finally:
            self.release()
        self._wakes.set()
        super().close()

    def forget(self) -> None:
        """Drop the events that wait: in a process that was forked, as its parent writes them."""
        self._waiting.clear()
        self._lines = None
        self._is_watched, self._watcher, self._wakes = False, None, threading.Event()

    def _drain(self, last: logging.LogRecord | None = None) -> None:
        """Write the events that wait, then a record."""
        if self._closing.is_set() or self._lines is not None:
            return
        lines = self._lines = list[str]()
        try:
            for _ in range(len(self._waiting)):
                self._handle(self._waiting.popleft())
        finally:
            self._lines = None
            if last is not None:
                self._add_line(lines, last)
            self._gathers_until = time.time() + self._gather_s
            if lines:
                self._write("".join(lines).encode(errors="backslashreplace"))

    def _handle(self, event: _Event) -> None:
        try:
            _handle_event(event)
        except Exception:  # noqa: BLE001  # a filter of the application may fail; logging must not
            self.handleError(_FIRST_RECORD)

    def _add_line(self, lines: list[str], record: logging.LogRecord) -> None:
        try:
            lines.append(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001  # the formatter may meet any object of a caller; logging must not fail
            self.handleError(record)

    def _write(self, text: bytes) -> None:
        try:
            if (now := time.monotonic()) >= self._look_at:
                self._look_at = now + self._look_every_s
                self._follow_rotation()
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError:
            self.handleError(_FIRST_RECORD)

    def _watch(self) -> None:
        """Let a thread write what waits: after this event there may be none for hours."""
        self.acquire()
        try:
            self._is_watched = True
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._write_in_time, args=(self._wakes,), name="sharedmem log", daemon=True
                )
                self._watcher.start()
            self._wakes.set()
        finally:
            self.release()

    def _write_in_time(self, wakes: threading.Event) -> None:
        while wakes.wait() and not self._closing.wait(self._gather_s):
            wakes.clear()
            # Cleared before the look: an event that comes after the look wakes this thread again.
            self._is_watched = False
            if self._waiting:
                self.flush()
                self._is_watched = True
                wakes.set()

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


_file_handlers: WeakSet[FileHandler] = WeakSet()


def _forget_in_fork() -> None:
    for handler in _file_handlers:
        handler.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_fork)


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
        file_handler = None if file is None else FileHandler(file)
        self._handler: logging.Handler = file_handler or logging.StreamHandler()
        self._handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        self._handler.setLevel(level.upper())
        self._level_before = logger.level
        # No line shows these; to find them for each line takes longer than to write it.
        self._found_before = {name: getattr(logging, name) for name in _UNUSED}
        for name, value in _UNUSED.items():
            setattr(logging, name, value)
        logger.addHandler(self._handler)
        logger.setLevel(level.upper())
        self._gather_before = _gather_event
        if file_handler is not None:
            _set_gather(file_handler.gather)

    def close(self) -> None:
        """Stop writing; the logger is as it was before."""
        _set_gather(self._gather_before)
        self._handler.flush()
        logger.removeHandler(self._handler)
        logger.setLevel(self._level_before)
        for name, value in self._found_before.items():
            setattr(logging, name, value)
        self._handler.close()
