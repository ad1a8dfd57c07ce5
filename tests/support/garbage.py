"""Garbage collection, held up while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect nothing meanwhile, nor look later through what was made.

    Syntax trees are many objects: each collection would look through all of them, and what it ends in the middle of
    `ast.parse` makes that fail.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
