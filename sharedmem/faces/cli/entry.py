"""The way in and the way out: words put in order, mistakes told in one sentence, an exit code for each outcome."""

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
from sharedmem.faces.cli import (
    archives,
    cache,
    calibrating,
    doctor,
    durable,
    embed,
    graph,
    graph_asking,
    indexes,
    installation,
    keys,
    leases,
    limits,
    live,
    memories,
    metrics,
    notes,
    plans,
    presence,
    queues,
    raw,
    serve,
    serve_rest,
    server,
    structures,
    tasks,
    tokens,
    whole,
)
from sharedmem.faces.cli.app import ORDER, app, arranged
from sharedmem.faces.cli.completion import joined_at_colons

INTERRUPTED, BROKEN_PIPE, SYSTEM = 130, 1, 74
_PUT_THEMSELVES_ON_THE_TREE = (
    keys,
    structures,
    leases,
    live,
    plans,
    queues,
    presence,
    limits,
    whole,
    durable,
    archives,
    memories,
    graph,
    graph_asking,
    notes,
    tasks,
    cache,
    calibrating,
    embed,
    indexes,
    server,
    serve,
    serve_rest,
    tokens,
    metrics,
    raw,
    installation,
    doctor,
)
app.registered_commands.sort(key=lambda found: ORDER.index(str(found.name)))


def main() -> None:
    """Run the command line of this process and leave it with the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: the command leaves the embedded server, which would else run on without users.
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    _prepare_output()
    joined_at_colons(os.environ)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code, which is that of the error table where there was an error."""
    try:
        code = app(args=arranged(arguments) or ["--help"], prog_name="sharedmem", standalone_mode=False)
        sys.stdout.flush()
    except SharedMemoryError as error:
        return _complain(error.message_for("flags"), error.codes.exit_code)
    except typer.TyperException as error:
        return _complain(_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has left; what is still buffered must not fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _complain(f"{error.strerror or error}: {error.filename or 'output'}", SYSTEM)
    return code if isinstance(code, int) else 0


def _prepare_output() -> None:
    """Let no locale and no missing stream come between an answer and its reader."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # JSON is UTF-8 whatever the locale says; a terminal knows better what it can show.
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="backslashreplace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the words, and where to read on."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "sharedmem")
    hint = "; put -- before a value that begins with a dash" if message.startswith("No such option") else ""
    return f"{message[:1].lower()}{message[1:]}{hint}; see {path} --help" if message else f"see {path} --help"


def _complain(sentence: str, code: int) -> int:
    sys.stderr.write(f"sharedmem: {sentence}\n")
    return code
