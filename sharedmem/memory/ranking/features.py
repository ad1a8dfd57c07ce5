"""Ranking features of memories and queries: author, thread, date, length, whether it is a question."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import orjson

from sharedmem.models import MemoryItem
from sharedmem.text.named_dates import MONTHS

_REMEMBERED = 32_768


class RankingFeatures(NamedTuple):
    """Facts of one memory."""

    thread: str
    position: int
    """Turn index in its thread."""
    author: str | None
    """Who speaks; None when it is no turn of a conversation."""
    asks: bool
    """Whether it is a question."""
    tokens: int
    """Words of its text."""
    at_ms: int
    """When it happened, in milliseconds since 1970."""
    importance: str

    def encoded(self) -> bytes:
        """The facts as they lie in Redis: a JSON array."""
        return orjson.dumps(tuple(self))


# A search reads them of hundreds of memories, and the next one of mostly the same.
@lru_cache(maxsize=_REMEMBERED)
def decode_features(data: bytes) -> RankingFeatures:
    """The facts of those bytes; what somebody else has written there reads as nothing."""
    try:
        thread, position, author, asks, tokens, at_ms, importance = orjson.loads(data)
        author = author if isinstance(author, str) else None
        return RankingFeatures(str(thread), int(position), author, bool(asks), int(tokens), int(at_ms), str(importance))
    except (ValueError, TypeError, OverflowError):
        return RankingFeatures("", 0, None, asks=False, tokens=0, at_ms=0, importance="medium")


_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = r"(?:['\u2019]s?)?"
_FIRST_PERSON = frozenset({"i", "me", "my", "mine", "myself"})
_SECOND_PERSON = frozenset({"you", "your", "yours", "yourself"})
# Who is meant by a pronoun, of those who have no name: users ask, agents are asked.
_PRONOUNS = {"user": _FIRST_PERSON, "agent": _SECOND_PERSON, "assistant": _SECOND_PERSON}
_ROLES = frozenset({*_PRONOUNS, "tool", "system"})


def indexed_text(item: MemoryItem) -> str:
    """The words by which a memory is found: of a turn of a conversation also its date and who speaks.

    The date is spelled as people ask for it (`7 May 2023`), whatever the language of this process.
    """
    text = _full_text(item)
    if item.author is None:
        return text
    at = item.timestamp
    day = f"[{at.day} {MONTHS[at.month - 1]} {at.year}] " if at else ""
    return f"{day}{item.author}: {text}"


def _full_text(item: MemoryItem) -> str:
    fact, whole = item.memory, item.content
    if not whole or fact in whole:
        return whole or fact
    return whole if whole in fact else f"{fact}\n{whole}"


def ranking_features(item: MemoryItem, position: int) -> RankingFeatures:
    """What the ranking needs to know of a memory.

    Args:
        item: complete, with its timestamp.
        position: its turn index.
    """
    text = _full_text(item)
    at_ms = round(item.timestamp.timestamp() * 1000) if item.timestamp else 0
    tokens = len(_WORD.findall(text))
    return RankingFeatures(item.thread_id, position, item.author, is_question(text), tokens, at_ms, item.importance)


def is_question(text: str) -> bool:
    """Whether the text ends by asking."""
    return text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def remove_speakers(query: str, authors: Iterable[str]) -> str:
    """The query without names of those who speak: said in nearly every turn, they tell an embedder nothing.

    Args:
        query: what is asked.
        authors: who speaks there; roles such as `user` are no names.

    Returns:
        What to embed: the query itself when it consists of names only.
    """
    left = query
    for author in authors:
        name = _name_pattern(author)
        if name is not None:
            left = name.sub(" ", left)
    left = " ".join(left.split())
    return left if _WORD.search(left) else query


def names_author(query: str, author: str) -> bool:
    """Whether the query is about what this author said: by name, or by a pronoun where there is only a role."""
    pronouns = _PRONOUNS.get(author)
    if pronouns is not None:
        return not pronouns.isdisjoint(_WORD.findall(query.lower()))
    name = _name_pattern(author)
    return name is not None and name.search(query) is not None


@lru_cache(maxsize=4096)
def _name_pattern(author: str) -> re.Pattern[str] | None:
    """Finds a name: all of it in any case, or its first part written as the name is (`Ada` of `Ada Lovelace`)."""
    parts = _WORD.findall(author)
    if not parts or author.lower() in _ROLES:
        return None
    whole = r"[\W_]+".join(parts)
    spellings = [f"(?i:{whole})"]
    if len(parts) > 1 and parts[0].istitle():
        spellings.append(parts[0])
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(spellings)}){_POSSESSIVE}(?![^\W_])")
