"""How a note lies in Redis: pure functions between notes and what is stored.

A note is a hash (`KeySpace.record`) named `<app>/<id>`, the app without `/`. Its `body` is the JSON of the note without
its version, from which all else in the hash follows but `version` and `vector`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sharedmem.errors import InvalidError
from sharedmem.models import Note
from sharedmem.search.analysis import indexed_terms, prefix_of
from sharedmem.search.tags import spelled
from sharedmem.synthesis.writing import searched_text
from sharedmem.wire.replies import Argument, Reply

LONGEST_NAME_BYTES = 256
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_HALVES = re.compile(r"[\ud800-\udfff]")


def check_name(field: str, name: str) -> str:
    """An app, or the id of a note: it becomes part of a key.

    Raises:
        InvalidError: empty, over 256 bytes, or with braces or control characters in it.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidError(field, name, "give a text that is not empty")
    if _NOT_IN_NAMES.search(name):
        raise InvalidError(field, name, "leave out braces and control characters")
    return _check_length(field, name)


def check_person(field: str, name: str) -> str:
    """A user or a session: any text, since it is a value and never part of a key.

    Raises:
        InvalidError: empty, over 256 bytes, or with half a character in it.
    """
    if not isinstance(name, str) or not name.strip() or _HALVES.search(name):
        raise InvalidError(field, name, "give a text that is not empty, and properly decoded")
    return _check_length(field, name)


def spelled_app(app_id: str) -> str:
    """An app as a part of keys: without `/`, which ends it there."""
    return app_id.replace("%", "%25").replace("/", "%2F")


def unspelled_app(text: str) -> str:
    """The app that stands so in keys."""
    return text.replace("%2F", "/").replace("%25", "%")


def record_named(app_id: str, id_: str) -> str:
    """How the record of a note is named in its namespace."""
    return f"{spelled_app(app_id)}/{id_}"


def encode(note: Note) -> bytes:
    """The JSON of a note, without its version."""
    return note.model_dump_json(exclude={"version"}).encode()


def decode(body: bytes, version: int) -> Note:
    """The note of a body.

    Raises:
        ValidationError: it is none: another client has written there.
    """
    return Note.model_validate_json(body).model_copy(update={"version": version})


def fields(note: Note, namespace: str) -> list[Argument]:
    """The fields of a note's hash with their values in turn, its body first, without version and vector."""
    words: list[Argument] = ["body", encode(note), "facts", "-", "ns", namespace, "app", spelled(note.app_id)]
    words += ("user", spelled(note.user_id), "status", note.status, "at", round(note.created_at.timestamp() * 1000))
    words += ("chain", chain_of(note), "task", note.task_id or "", "terms", terms_of(note, namespace))
    if note.session_id is not None:
        words += ("session", spelled(note.session_id))
    return words


def terms_of(note: Note, namespace: str) -> str:
    """The words by which a note is found, as its hash has them; empty while its text lies in the archive."""
    return indexed_terms(searched_text(note.memory_note), namespace)


def stored_terms(terms: Iterable[str], namespace: str) -> frozenset[bytes]:
    """Words of a query as the hashes of notes have them."""
    prefix = prefix_of(namespace)
    return frozenset(f"{prefix}{term}".encode() for term in terms)


def word_share(wanted: frozenset[bytes], held: Reply) -> float:
    """Which share of some words a note holds, 0 to 1.

    Args:
        wanted: as `stored_terms` makes them.
        held: what the note's hash has in the field `terms`.
    """
    return len(wanted.intersection(held.split())) / len(wanted) if wanted and isinstance(held, bytes) else 0.0


def chain_of(note: Note) -> str:
    """The chain that a note belongs to; its own where none is said."""
    return note.chain_id or note.id


def _check_length(field: str, name: str) -> str:
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise InvalidError(field, f"{name[:40]}...", f"keep it within {LONGEST_NAME_BYTES} bytes")
    return name
