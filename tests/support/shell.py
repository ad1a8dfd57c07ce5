"""The command line as tests use it: in this process, in another one, or on a terminal of its own."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from sharedmem.faces.cli import run

Launch: TypeAlias = Callable[..., "subprocess.Popen[str]"]
_COMMAND = "import sys; from sharedmem.faces.cli import main; main()"
_COMMANDS_SCRIPT = """
import json, sys
from sharedmem.faces.cli import run
for words in map(json.loads, sys.argv[1:]):
    code = run(words)
    print(f"\\n{words} left {code}", flush=True)
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATIENCE_S = 60


class ShellResult(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its output, as a program reads it."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """Runs `sharedmem` in this process, on one data directory and namespace, with a pipe for its output."""

    data_dir: Path
    namespace: str
    capture: pytest.CaptureFixture[bytes]
    patch: pytest.MonkeyPatch

    def __call__(self, *words: str, stdin: bytes = b"") -> ShellResult:
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self.capture.readouterr()
        code = run(["--data-dir", str(self.data_dir), "--namespace", self.namespace, *words])
        out, err = self.capture.readouterr()
        return ShellResult(code, out.decode(), err.decode())


def is_one_sentence(done: ShellResult, *words: str) -> bool:
    """Whether the command printed nothing but an error of one line that contains these words."""
    error = done.err.removesuffix("\n")
    prefixed = error.startswith("sharedmem: ") and "\n" not in error
    return not done.out and prefixed and all(word in error for word in words)


@contextmanager
def started_data_dir() -> Iterator[Path]:
    """Make a data directory, start its server, and stop it at the end."""
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    assert run(["--data-dir", str(base / "d"), "up"]) == 0
    yield base / "d"
    assert run(["--data-dir", str(base / "d"), "down"]) == 0
    shutil.rmtree(base)


def read_json_line(process: subprocess.Popen[str]) -> dict[str, object]:
    """Read the next line that a command prints."""
    assert process.stdout is not None
    line: dict[str, object] = json.loads(process.stdout.readline())
    return line


def start(
    *words: str, environment: dict[str, str] | None = None, program: str = _COMMAND, **streams: Any
) -> subprocess.Popen[str]:
    """Start `sharedmem` in a process of its own."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], env=os.environ | (environment or {}), text=True, **streams
    )


def finish(process: subprocess.Popen[str]) -> ShellResult:
    """Wait for its end."""
    out, err = process.communicate(timeout=_PATIENCE_S)
    return ShellResult(process.returncode, out or "", err or "")


def on_a_terminal(*words: str, typed: str = "", program: str = _COMMAND) -> ShellResult:
    """Run `sharedmem` with a terminal for all its streams; `out` is the whole screen without its colours."""
    master, slave = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    process = start(*words, environment=environment, program=program, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.write(master, typed.encode())
    screen = b""
    try:
        while chunk := os.read(master, 65_536):
            screen += chunk
    except OSError:
        pass  # how Linux reports that the other side is closed
    finally:
        os.close(master)
    process.wait(timeout=_PATIENCE_S)
    return ShellResult(process.returncode, _ESCAPES.sub("", screen.decode()).replace("\r\n", "\n"), "")


def several_on_a_terminal(*commands: Sequence[str]) -> ShellResult:
    """Run command lines one after the other in one process; after each stands `<words> left <code>`."""
    return on_a_terminal(*map(json.dumps, commands), program=_COMMANDS_SCRIPT)
