"""How a process of a test reports to the test: a line of words, written at once."""

from __future__ import annotations

import sys


def print_line(*words: object) -> None:
    """Write a line that the test reads."""
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()
