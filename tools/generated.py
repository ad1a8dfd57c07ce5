"""Write a generated file, or compare it with the text that would be written.

Each generator calls `sys.exit(settle(...))`; `make generate` and `make check` call it with --write and --check.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def settle(path: Path, render: Callable[[], str], *, remedy: str) -> int:
    """Read the command line, then write the file or compare it.

    Args:
        path: the generated file.
        render: returns its text, which must be the same on every machine and in every run.
        remedy: what to do if the file is stale, printed below the difference.

    Returns:
        The exit code: 0 if the file is up to date, 1 if it is stale.
    """
    if _writes(path):
        path.write_text(render(), encoding="utf-8")
        return 0
    return _compared(path, render(), remedy)


def settle_files(render: Callable[[], Mapping[Path, str]], *, remedy: str) -> int:
    """Read the command line, then write or compare several files.

    Args:
        render: returns the text of each file.
        remedy: what to do if a file is stale.

    Returns:
        The exit code: 0 if all files are up to date, 1 if one is stale.
    """
    texts = render()
    if _writes(*texts):
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return 0
    return max(_compared(path, text, remedy) for path, text in texts.items())


def settle_pages(first: Path, folder: Path, render: Callable[[], Mapping[Path, str]], *, remedy: str) -> int:
    """Read the command line, then write or compare a page and a folder of pages that it lists.

    Args:
        first: the page that lists the others.
        folder: where the others are; a page in it that is not rendered is stale, and deleted by --write.
        render: returns the text of every page.
        remedy: what to do if a page is stale.

    Returns:
        The exit code: 0 if all pages are up to date, 1 if one is stale.
    """
    writes, texts = _writes(first), render()
    stale = [path for path in folder.glob("*.md") if path not in texts]
    if writes:
        folder.mkdir(exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        for path in stale:
            path.unlink()
        return 0
    return max(_compared(path, texts.get(path, ""), remedy) for path in [*texts, *stale])


def formatted(text: str, path: Path) -> str:
    """Return a Python module in the form of `ruff check --select I` and `ruff format`.

    Args:
        text: the source.
        path: its future path, which decides the rules.
    """
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", _shown(path), "-"]
        text = subprocess.run(ruff, input=text, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return text


def _writes(*paths: Path) -> bool:
    """Return whether the command line requests to write, not to compare."""
    parser = argparse.ArgumentParser(description=f"Generate {', '.join(map(_shown, paths))}.")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="write the file")
    choice.add_argument("--check", action="store_true", help="compare it, and fail when it is stale")
    return bool(parser.parse_args().write)


def _compared(path: Path, text: str, remedy: str) -> int:
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if kept == text:
        return 0
    before, after = kept.splitlines(), text.splitlines()
    difference = difflib.unified_diff(before, after, f"{_shown(path)} as kept", "as it is now", n=1, lineterm="")
    print(*difference, f"\n{_shown(path)} is stale: {remedy}", sep="\n")
    return 1


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
