"""Normalise and validate names, groups and ids; the entity id that follows from a name."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

from sharedmem.errors import InvalidError

LONGEST_NAME = 200
LONGEST_GROUP_BYTES = 256
LONGEST_ID_BYTES = 128
_NOT_IN_GROUPS = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_NOT_IN_IDS = re.compile(r"[\s#\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")
_BLANKS = re.compile(r"\s+")
_AROUND = " \t\r\n.,;:!?\"'`()[]<>\u201c\u201d\u2018\u2019\u00ab\u00bb"
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 32
_ID = re.compile(r"(?:[a-z0-9-]+-)?[0-9a-f]{10}")
_TRIGRAM = "0ug"
"""Words begin with `0u` only where hex digits follow (`search.analysis`), and `g` is none."""
_PLAIN_RUN = re.compile(r"[a-z0-9]{3}")


def normalize_name(name: str) -> str:
    """A name without what does not tell names apart: case, outer punctuation, kinds of blanks, width of letters."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return _BLANKS.sub(" ", folded).strip(_AROUND)


def check_encodable(field: str, text: str) -> str:
    """A text that UTF-8 can hold.

    Raises:
        InvalidError: there is half a character in it, as of an argument that was not decoded properly.
    """
    if _SURROGATES.search(text):
        raise InvalidError(field, text, "it holds half a character (a lone surrogate); decode it properly")
    return text


def check_entity_name(field: str, name: str) -> str:
    """A name, without blanks around it.

    Raises:
        InvalidError: nothing of it is left when it is compared, or it is too long.
    """
    if not isinstance(name, str) or not normalize_name(name):
        raise InvalidError(field, name, "give a name with a letter or digit in it")
    if _LONE_SURROGATES.search(name):
        raise InvalidError(field, "...", "it holds half a character (a lone surrogate); decode it properly")
    if len(name) > LONGEST_NAME:
        raise InvalidError(field, f"{name[:40]}...", f"keep it within {LONGEST_NAME} characters")
    return check_encodable(field, _BLANKS.sub(" ", name).strip())


def entity_id(normal: str) -> str:
    """The id that a normalised name gives: readable, and the same in every process."""
    plain = unicodedata.normalize("NFKD", normal).encode("ascii", "ignore").decode()
    slug = _NOT_IN_SLUG.sub("-", plain).strip("-")[:_LONGEST_SLUG].strip("-")
    digest = blake2b(normal.encode(), digest_size=5).hexdigest()
    return f"{slug}-{digest}" if slug else digest


def looks_like_entity_id(name: str) -> bool:
    """Whether a text could be the id of an entity."""
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def check_group(group: str) -> str:
    """A group, `tenant:session`.

    Raises:
        InvalidError: empty, too long, or with braces or control characters in it.
    """
    if not isinstance(group, str) or not group.strip():
        raise InvalidError("group_id", group, "say whose graph it is, such as 'acme:session-7'")
    if _NOT_IN_GROUPS.search(group):
        raise InvalidError("group_id", group, "leave out braces and control characters")
    if len(group.encode()) > LONGEST_GROUP_BYTES:
        raise InvalidError("group_id", f"{group[:40]}...", f"keep it within {LONGEST_GROUP_BYTES} bytes")
    return group


def check_id(field: str, id_: str) -> str:
    """An id that a caller gives to an episode.

    Raises:
        InvalidError: empty, over 128 bytes, or with blanks, braces or control characters in it.
    """
    if not isinstance(id_, str) or not id_ or _NOT_IN_IDS.search(id_):
        raise InvalidError(field, id_, "give a text without blanks, braces, '#' and control characters")
    if len(id_.encode()) > LONGEST_ID_BYTES:
        raise InvalidError(field, f"{id_[:40]}...", f"keep it within {LONGEST_ID_BYTES} bytes")
    return id_


def encode_group(group: str) -> str:
    """A group as a part of keys and ids: without `/`, which ends it there."""
    return group.replace("%", "%25").replace("/", "%2F")


def trigrams(normal: str) -> list[str]:
    """The distinct runs of three characters of a normalised name, blanks around it included, as words to search for.

    `search.analysis` spells no word of a text like that, so that a word never finds an entity by its letters.
    """
    padded = f" {normal} "
    return list(dict.fromkeys(_encode_trigram(padded[place : place + 3]) for place in range(len(padded) - 2)))


def _encode_trigram(run: str) -> str:
    # Shorter than any run of three that is spelled in hex: no two runs are spelled alike.
    return f"{_TRIGRAM}{run if _PLAIN_RUN.fullmatch(run) else run.encode().hex()}"
