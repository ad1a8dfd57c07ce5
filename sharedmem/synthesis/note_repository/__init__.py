"""The repository of synthesised notes: indexed hashes, and the keys beside them."""

from sharedmem.synthesis.note_repository.repository import RedisNoteRepository

__all__ = ["RedisNoteRepository"]
