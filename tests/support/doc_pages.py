"""Documentation pages as programs: finds their fenced blocks, and runs the ones that are meant to run.

`python -m support.doc_pages docs/page.md` runs one page: its ```python blocks share a namespace and an event loop
and run in order; lines of ```bash and ```console blocks that begin with `$ sharedmem` run in between. A ```text
output block shows what the Python block before it prints; `...` matches text of a line that varies. A block
whose info string says `no-run <reason>` is left out. The namespaces that the page says to clear before it is run
again (`sharedmem clear -n NAME --yes`, in its text) are cleared first. A command that needs no shell is run in the
process of its page: a process for each would spend most of its time on imports.
"""

from __future__ import annotations

import ast
import asyncio
import faulthandler
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sharedmem.faces.cli import run as sharedmem

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^ *(?P=fence)`* *$", re.MULTILINE | re.DOTALL
)
_NO_RUN = re.compile(r"\bno-run\b[\s:]*(?P<reason>.*)")
_COMMAND = re.compile(r"^\$ (sharedmem\b(?:.*\\\n)*.*)$", re.MULTILINE)
_CLEARING = re.compile(r"`sharedmem clear -n ([\w-]+) --yes`")
_FOR_A_SHELL = re.compile(r"[|&;<>$`~]")
_LONGEST_COMMAND_S = 60
SHELLS = frozenset({"bash", "console", "sh", "shell"})


class Block(NamedTuple):
    """A fenced block; `left_out` is the reason for which it does not run."""

    page: Path
    line: int
    language: str
    text: str
    left_out: str | None
    is_output: bool

    @property
    def commands(self) -> list[str]:
        """The `$ sharedmem ...` lines of a shell block."""
        return _COMMAND.findall(self.text) if self.language in SHELLS else []

    @property
    def is_program(self) -> bool:
        """Whether there is something to run in it."""
        return self.language == "python" or bool(self.commands)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page in order; `line` is that of the first line inside."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        refusal = _NO_RUN.search(rest)
        line = text.count("\n", 0, found.start("text")) + 1
        left_out = refusal["reason"].strip() if refusal else None
        is_output = language == "text" and rest.strip() == "output"
        yield Block(page, line, language, textwrap.dedent(found["text"]), left_out, is_output)


def namespaces(page: Path) -> list[str]:
    """The namespaces that a page says to clear before it is run again."""
    return _CLEARING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def run_block(page: Path) -> None:
    """Run what is to be run of a page; the first failure ends it, with the line of the page in its traceback."""
    found = list(blocks(page))
    expected = {block: after for block, after in pairwise(found) if after.is_output}
    shell_globals: dict[str, object] = {"__name__": "__main__"}
    for namespace in namespaces(page):
        sharedmem(["clear", "-n", namespace, "--yes"])
    with asyncio.Runner() as runner:
        for block in found:
            if block.left_out is not None:
                continue
            if block.language == "python":
                _run_and_compare(block, expected.get(block), shell_globals, runner)
            for command in block.commands:
                _run_command(block, command)


def _run_and_compare(
    block: Block, expected: Block | None, shell_globals: dict[str, object], runner: asyncio.Runner
) -> None:
    if expected is None:
        _run_python(block, shell_globals, runner)
        return
    with redirect_stdout(io.StringIO()) as printed:
        _run_python(block, shell_globals, runner)
    if not re.fullmatch(re.escape(expected.text).replace(re.escape("..."), ".*"), printed.getvalue()):
        sys.exit(f"{expected.page}:{expected.line}: the page shows\n{expected.text}but it prints\n{printed.getvalue()}")


def _run_python(block: Block, shell_globals: dict[str, object], runner: asyncio.Runner) -> None:
    # The empty lines before it make the line numbers those of the page.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    answer = eval(code, shell_globals)
    if inspect.iscoroutine(answer):
        runner.run(answer)


def _run_command(block: Block, command: str) -> None:
    code, said = (_by_a_shell if _FOR_A_SHELL.search(command) else _here)(block, command)
    if code != 0:
        sys.exit(f"{block.page}:{block.line}: `{command}` ended with {code}\n{said}")


def _here(_: Block, command: str) -> tuple[int, str]:
    # One that does not end is ended, and shows where it stood.
    faulthandler.dump_traceback_later(_LONGEST_COMMAND_S, exit=True)
    try:
        return sharedmem(shlex.split(command.replace("\\\n", " "))[1:]), "(what it said stands above)"
    finally:
        faulthandler.cancel_dump_traceback_later()


def _by_a_shell(block: Block, command: str) -> tuple[int, str]:
    # The command that belongs to this interpreter, whatever else is installed.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_COMMAND_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{block.page}:{block.line}: `{command}` did not end within {_LONGEST_COMMAND_S} s")
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    run_block(Path(sys.argv[1]))
