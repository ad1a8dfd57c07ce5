"""Names as they are compared: what makes two spellings the same name, and the id that a name gives."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

from sharedmem.errors import InvalidError

LONGEST_NAME = 200
LONGEST_GROUP_BYTES = 256
_NOT_IN_GROUPS = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_BLANKS = re.compile(r"\s+")
_AROUND = " \t\r\n.,;:!?\"'`()[]<>\u201c\u201d\u2018\u2019\u00ab\u00bb"
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 32


def normalised(name: str) -> str:
    """A name without what does not tell names apart: case, outer punctuation, kinds of blanks, width of letters."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return _BLANKS.sub(" ", folded).strip(_AROUND)


def check_entity_name(field: str, name: str) -> str:
    """A name, without blanks around it.

    Raises:
        InvalidError: nothing of it is left when it is compared, or it is too long.
    """
    if not isinstance(name, str) or not normalised(name):
        raise InvalidError(field, name, "give a name with a letter or digit in it")
    if len(name) > LONGEST_NAME:
        raise InvalidError(field, f"{name[:40]}...", f"keep it within {LONGEST_NAME} characters")
    return _BLANKS.sub(" ", name).strip()


def entity_id(normal: str) -> str:
    """The id that a normalised name gives: readable, and the same in every process."""
    plain = unicodedata.normalize("NFKD", normal).encode("ascii", "ignore").decode()
    slug = _NOT_IN_SLUG.sub("-", plain).strip("-")[:_LONGEST_SLUG].strip("-")
    digest = blake2b(normal.encode(), digest_size=5).hexdigest()
    return f"{slug}-{digest}" if slug else digest


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


def spelled_group(group: str) -> str:
    """A group as a part of keys and ids: without `/`, which ends it there."""
    return group.replace("%", "%25").replace("/", "%2F")
