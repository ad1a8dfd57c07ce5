"""Where synthesised notes are kept: hashes that are searched, and what lies beside them."""

from sharedmem.synthesis.shelf.shelf import NoteShelf

__all__ = ["NoteShelf"]
