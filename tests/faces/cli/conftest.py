"""What the tests of the command line share: a data directory whose server is up, and a shell on it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.shell import Shell, start, started_data_dir

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """A data directory whose server runs for all tests of the module."""
    with started_data_dir() as path:
        yield path


@pytest.fixture
def shell(data_dir: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A command line in a namespace of its own."""
    return Shell(data_dir, f"n{next(_numbers)}", capfdbinary, monkeypatch)


@pytest.fixture
def hashing_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line embeds texts with the embedder that needs no model."""
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "hashing")


@pytest.fixture
def place(shell: Shell) -> tuple[str, ...]:
    """The options with which another process uses the same namespace."""
    return ("--data-dir", str(shell.data_dir), "--namespace", shell.namespace)


@pytest.fixture
def launch() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start command lines in processes of their own; each process ends with the test."""
    with ExitStack() as processes:

        def launched(*words: str) -> subprocess.Popen[str]:
            process = processes.enter_context(start(*words))
            processes.callback(process.kill)
            return process

        yield launched
