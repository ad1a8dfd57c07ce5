"""The log of a command or service: as the settings `log_level`, `log_format` and `log_file` say."""

from __future__ import annotations

from sharedmem.config import Settings
from sharedmem.errors import ConfigError
from sharedmem.runtime.log_output import LogOutput

_opened: list[LogOutput] = []
"""The log of this process, if it has one."""


def start_log(settings: Settings, *, is_service: bool = False) -> None:
    """Write the log of the library until `stop_log`; does nothing if it is written already, or nothing asks for it.

    Args:
        settings: level, form and file.
        is_service: whether warnings are written if the settings say nothing.

    Raises:
        ConfigError: the file cannot be opened.
    """
    file = settings.log_file
    level = settings.log_level or ("warning" if is_service or file is not None else None)
    if level is None or _opened:
        return
    try:
        _opened.append(LogOutput(level, settings.log_format, file))
    except OSError as error:
        problem = f"{str(file)!r} cannot be opened: {error.strerror}; create its folder, or name another file"
        raise ConfigError("log_file", settings.origin("log_file"), problem) from error


def stop_log() -> None:
    """Stop to write the log."""
    while _opened:
        _opened.pop().close()
