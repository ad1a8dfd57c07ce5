"""Convert notes to and from Redis hashes and documents of the durable tier, and fill the search index.

A note is a hash (`KeySpace.record`) named `<app>/<id>`, the app without `/`. Its `body` is the JSON of the note without
its version, from which everything else in the hash follows but `version` and `vector`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from sharedmem.context import ServerContext
from sharedmem.errors import AccessDeniedError, InternalError, InvalidError, SharedMemoryError
from sharedmem.index_maintenance import IndexedRecords, VectorSource
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import DurableRecord, Note
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Argument, Command, Reply
from sharedmem.redis.scripts.knowledge import NOTE_FAMILY, NoteScripts
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.synthesis.note_text import own_text, searchable_text
from sharedmem.text.analysis import encode_tag, indexed_terms, namespace_term_prefix

LONGEST_NAME_BYTES = 256
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_HALVES = re.compile(r"[\ud800-\udfff]")


def check_key_part(field: str, name: str) -> str:
    """Return a checked app, or id of a note, which becomes part of a key.

    Raises:
        InvalidError: it is empty, over 256 bytes, or contains braces or control characters.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidError(field, name, "give a text that is not empty")
    if _NOT_IN_NAMES.search(name):
        raise InvalidError(field, name, "leave out braces and control characters")
    return _check_length(field, name)


def check_ids(ids: Sequence[str]) -> list[str]:
    """Check ids of notes, and return each once.

    Raises:
        InvalidError: one of them is invalid.
    """
    return list(dict.fromkeys(check_key_part("id", id_) for id_ in ids))


def check_user(field: str, name: str) -> str:
    """Return a checked user or session: any text, since it is a value and never part of a key.

    Raises:
        InvalidError: it is empty, over 256 bytes, or contains half a character.
    """
    if not isinstance(name, str) or not name.strip() or _HALVES.search(name):
        raise InvalidError(field, name, "give a text that is not empty, and properly decoded")
    return _check_length(field, name)


def escape_app(app_id: str) -> str:
    """Return an app as a part of keys: without `/`, which ends it there."""
    return app_id.replace("%", "%25").replace("/", "%2F")


def unescape_app(text: str) -> str:
    """Return the app from its encoding in keys."""
    return text.replace("%2F", "/").replace("%25", "%")


def record_name(app_id: str, id_: str) -> str:
    """Return the id of a note's record in its namespace."""
    return f"{escape_app(app_id)}/{id_}"


def encode_note(note: Note) -> bytes:
    """Return the JSON of a note, without its version."""
    return note.model_dump_json(exclude={"version"}).encode()


def decode_note(body: bytes, version: int) -> Note:
    """Return the note in a body.

    Raises:
        ValidationError: the body is not a note: another client has written there.
    """
    return Note.model_validate_json(b'%b,"version":%d}' % (body.removesuffix(b"}"), version))


def hash_fields(note: Note, namespace: str) -> list[Argument]:
    """Return the fields of a note's hash with their values in turn, its body first, without version and vector."""
    words: list[Argument] = ["body", encode_note(note), "facts", "-", "ns", namespace, "app", encode_tag(note.app_id)]
    words += ("user", encode_tag(note.user_id), "status", note.status, "at", round(note.created_at.timestamp() * 1000))
    words += ("chain", chain_id_of(note), "task", note.task_id or "", "terms", note_terms(note, namespace))
    if note.session_id is not None:
        words += ("session", encode_tag(note.session_id))
    return words


def note_terms(note: Note, namespace: str) -> str:
    """Return the words by which a note is found, as in its hash; empty while its text is archived."""
    return indexed_terms(searchable_text(note.memory_note), namespace)


def prefixed_terms(terms: Iterable[str], namespace: str) -> frozenset[bytes]:
    """Return words of a query as the hashes of notes contain them."""
    prefix = namespace_term_prefix(namespace)
    return frozenset(f"{prefix}{term}".encode() for term in terms)


def word_share(wanted: frozenset[bytes], held: Reply) -> float:
    """Return the share of some words that a note contains, 0 to 1.

    Args:
        wanted: as `prefixed_terms` returns them.
        held: the field `terms` of the note's hash.
    """
    return len(wanted.intersection(held.split())) / len(wanted) if wanted and isinstance(held, bytes) else 0.0


def chain_id_of(note: Note) -> str:
    """Return the chain that a note belongs to; its own if it has no chain id."""
    return note.chain_id or note.id


def _check_length(field: str, name: str) -> str:
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise InvalidError(field, f"{name[:40]}...", f"keep it within {LONGEST_NAME_BYTES} bytes")
    return name


_NOT_IN_BODY = ("version", "embedding")


class RestoredNote(NamedTuple):
    """A note as the durable tier stores it."""

    named: str
    """The end of its key: `<app>/<id>`."""
    version: int
    user: str = ""
    chain: str = ""
    fields: tuple[Argument, ...] = ()
    """Names and values of its hash, alternating; empty if it was erased."""

    @property
    def app(self) -> str:
        """The app, as keys encode it."""
        return self.named.partition("/")[0]

    @property
    def words(self) -> tuple[Argument, ...]:
        """The arguments for `lua/note_restore.lua`."""
        return (self.version, self.user, self.chain, len(self.fields), *self.fields)


def parse_note_document(record: DurableRecord) -> RestoredNote:
    """Return the note in a document.

    Raises:
        ValueError, LookupError, TypeError: the document cannot be read.
    """
    named = record.key.split(":", 2)[2]
    if record.deleted:
        return RestoredNote(named, record.stamp)
    document: dict[str, Any] = orjson.loads(record.body)
    body = orjson.dumps({name: value for name, value in document.items() if name not in _NOT_IN_BODY})
    note = Note.model_validate_json(body)
    words = hash_fields(note, record.namespace)
    if document.get("embedding"):
        words += ("vector", b64decode(document["embedding"]))
    return RestoredNote(named, record.version, encode_tag(note.user_id), chain_id_of(note), tuple(words))


# -- the search index ----------------------------------------------------------------------------


class MissingTermsFiller:
    """Adds the terms that notes of one namespace lack.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the notes.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._context = context
        self._namespace = namespace
        self._searched = IndexedRecords(context, context.notes, namespace)
        self._noting = NoteScripts(context.executor)
        self._work: BackgroundTask | None = None
        self._is_done = False

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> MissingTermsFiller:
        """Return the instance that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context, namespace))

    def wake(self) -> None:
        """Search in the background, once per hub, for notes without terms; after a failure again at the next call."""
        if not self._is_done and (self._work is None or self._work.done):
            self._work = self._context.background.start(f"index notes of {self._namespace}", self._run())

    async def fill(self) -> int:
        """Add the terms to all notes that lack them, and return how many there were.

        One round trip for every 200 notes, and two more if some lack terms.

        Raises:
            AccessDeniedError: this hub may not write here.
            UnavailableError: the server cannot be reached; call it again to continue.
        """
        # An updated note moves to the end of the log: the whole log is read first.
        pages = [page async for page in self._searched.pages(self._namespace)]
        return sum([await self._filled(page) for page in pages])

    async def _run(self) -> None:
        try:
            await self.fill()
        except AccessDeniedError:
            pass  # hubs that may only read leave this to other hubs
        except SharedMemoryError:
            return
        self._is_done = True

    async def _filled(self, ids: list[str]) -> int:
        record, client = self._context.keyspace.record, self._context.client
        keys = {id_: record(NOTE_FAMILY, self._namespace, id_) for id_ in ids}
        has = await client.read_each([("HEXISTS", key, "terms") for key in keys.values()])
        lacking = [id_ for id_, there in zip(keys, has, strict=True) if there == 0]
        looks: list[Command] = [("HMGET", keys[id_], "body", "version") for id_ in lacking]
        values: list[Argument] = []
        given: list[bytes] = []
        for id_, reply in zip(lacking, await client.read_each(looks, aside=True) if looks else (), strict=True):
            body, version = reply if isinstance(reply, list) else (None, None)
            terms = self._terms(body) if isinstance(body, bytes) and isinstance(version, bytes) else None
            if terms is not None and isinstance(version, bytes):
                values += (id_, version, terms)
                given.append(keys[id_])
        if not given:
            return 0
        space, log = (
            self._context.keyspace.space(self._namespace),
            self._context.keyspace.record_log(NOTE_FAMILY, self._namespace),
        )
        return await self._noting.note_index(
            space, SHARED_SCOPE.encode(), keys=[*given, log], field="terms", values=values
        )

    def _terms(self, body: bytes) -> str | None:
        """Return the terms of a note; None if another client has written something else."""
        try:
            return note_terms(decode_note(body, 0), self._namespace)
        except (ValueError, InternalError):
            return None


def _embedding_text(_id: str, body: bytes) -> str:
    try:
        return own_text(decode_note(body, 0).memory_note)
    except InternalError:
        return ""


async def _write_vectors(
    context: ServerContext, namespace: str, keys: Sequence[bytes], vectors: Sequence[Argument]
) -> None:
    space, author = context.keyspace.space(namespace), SHARED_SCOPE.encode()
    await NoteScripts(context.executor).note_index(space, author, keys=keys, field="vector", values=vectors)


async def _fill_terms(context: KnowledgeContext, namespace: str) -> None:
    await MissingTermsFiller.of(context, namespace).fill()


NOTE_VECTORS = VectorSource(_embedding_text, _write_vectors, prepare=_fill_terms)
