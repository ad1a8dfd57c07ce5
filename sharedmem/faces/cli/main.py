"""Entry point of the command line: arrange arguments, print errors in one sentence, map outcomes to exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import typer

from sharedmem.errors import SharedMemoryError
from sharedmem.faces.cli.app import app, normalize_arguments
from sharedmem.faces.cli.completion import rejoin_words_at_colons
from sharedmem.faces.cli.process_log import stop_log

INTERRUPTED, BROKEN_PIPE, SYSTEM = 130, 1, 74


def main() -> None:
    """Run the command line of this process and leave it with the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: the command leaves the embedded server, which would else run on without users.
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    _prepare_output()
    rejoin_words_at_colons(os.environ)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code, which is that of the error table where there was an error."""
    try:
        code = app(args=normalize_arguments(arguments) or ["--help"], prog_name="sharedmem", standalone_mode=False)
        sys.stdout.flush()
    except SharedMemoryError as error:
        return _print_error(error.message_for("flags"), error.codes.exit_code)
    except typer.TyperException as error:
        return _print_error(_usage_message(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left; what is still buffered must not fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _print_error(f"{error.strerror or error}: {error.filename or 'output'}", SYSTEM)
    finally:
        stop_log()
    return code if isinstance(code, int) else 0


def _prepare_output() -> None:
    """Let no locale and no missing stream come between an answer and its reader."""
    sys.stdout, sys.stderr = sys.stdout or _open_null(), sys.stderr or _open_null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # JSON is UTF-8 whatever the locale says; a terminal knows better what it can show.
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="backslashreplace")


def _open_null() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _usage_message(error: typer.TyperException) -> str:
    """What is wrong with the words, and where to read on."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "sharedmem")
    hint = "; put -- before a value that begins with a dash" if message.startswith("No such option") else ""
    return f"{message[:1].lower()}{message[1:]}{hint}; see {path} --help" if message else f"see {path} --help"


def _print_error(sentence: str, code: int) -> int:
    sys.stderr.write(f"sharedmem: {sentence}\n")
    return code
