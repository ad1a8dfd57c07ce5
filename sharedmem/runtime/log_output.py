"""The log of a process: where the lines of the library go, and how they look."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Literal

from sharedmem.runtime.telemetry import JsonFormatter, extra_fields, logger


class TextFormatter(logging.Formatter):
    """One line: time, level, logger, message, then the fields of `extra` as `name=value`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line, and the traceback of its error on lines of its own."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = "".join(f" {name}={value!r}" for name, value in extra_fields(record).items())
        # A text of a caller must not look like another line of the log.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{at} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
        self._handler: logging.Handler = (
            logging.StreamHandler() if file is None else WatchedFileHandler(file, encoding="utf-8")
        )
        self._handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        self._handler.setLevel(level.upper())
        self._level_before = logger.level
        logger.addHandler(self._handler)
        logger.setLevel(level.upper())

    def close(self) -> None:
        """Stop writing; the logger is as it was before."""
        logger.removeHandler(self._handler)
        logger.setLevel(self._level_before)
        self._handler.close()
