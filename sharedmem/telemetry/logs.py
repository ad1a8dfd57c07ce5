"""Log lines: silent until the application configures logging, and JSON for those who want to search them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def get_logger(part: str) -> logging.Logger:
    """The logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, whatever was given as `extra`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _USUAL and name not in told}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)
