"""Where synthesised notes are kept: hashes that are searched, and what lies beside them."""

from sharedmem.synthesis.note_repository.repository import RedisNoteRepository

__all__ = ["RedisNoteRepository"]
