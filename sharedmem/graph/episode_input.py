"""Validate and complete an episode before any read or write."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from sharedmem.clock import Clock, new_id
from sharedmem.errors import InvalidError
from sharedmem.graph.names import check_id
from sharedmem.graph.protocol import Extraction
from sharedmem.graph.records import to_stamp
from sharedmem.models import Episode

LONGEST_CONTENT = 200_000
"""Characters of an episode."""
NO_EXTRACTION = Extraction()
_LONGEST_LABEL = 200
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class EpisodeInput:
    """An episode to ingest, with its mentions and statements."""

    episode: Episode
    """Complete with id, `occurred_at` and, unless it is recorded now, `recorded_at`."""
    digest: str
    """Digest of its content: an episode with the same id and digest is a repetition."""
    extraction: Extraction = NO_EXTRACTION
    adds: bool = False
    """Whether it adds to a stored episode instead of being a new one."""
    extracts: bool = False
    """Whether it adds the extraction of the whole episode, which is done once."""


def check_not_undone(episode: Episode) -> None:
    """Reject an addition to an episode that was undone.

    Raises:
        InvalidError: the episode was undone.
    """
    if episode.undone_at is not None:
        raise InvalidError("episode", episode.id, "it was undone; use another episode")


def check_extractable(episode: Episode) -> None:
    """Reject a second extraction of an episode, or one of an episode that was undone.

    Raises:
        InvalidError: its facts were extracted already, or it was undone.
    """
    if episode.extraction == "done" or episode.undone_at is not None:
        raise InvalidError("episode_id", episode.id, "its facts have been extracted already, or it was undone")


def make_input(episode: Episode, extraction: Extraction = NO_EXTRACTION) -> EpisodeInput:
    """Return the input for a complete episode."""
    return EpisodeInput(episode, content_digest(episode.content), extraction)


def content_digest(content: str | Mapping[str, Any]) -> str:
    """Return the digest of a content."""
    coded = content.encode() if isinstance(content, str) else _encode_content(content)
    return hashlib.sha256(coded).hexdigest()[:32]


def content_text(content: str | Mapping[str, Any]) -> str:
    """Return the words of a content: for data, its values after their names."""
    return content if isinstance(content, str) else ". ".join(_data_text(content))


def complete_episode(given: str | Mapping[str, Any] | Episode, clock: Clock, **fields: object) -> Episode:
    """Return an episode with defaults for all missing fields.

    Args:
        given: its content, or an episode whose fields are used if they are not in `fields`.
        clock: the default time of the episode.
        fields: fields of the `Episode`.

    Raises:
        InvalidError: a field is invalid.
    """
    overrides = {name: value for name, value in fields.items() if value is not None and value != ""}
    if isinstance(given, Episode):
        _check_same_group(given, overrides)
        begun = given.model_copy(update=overrides)
    else:
        begun = _validate_episode({"content": given, **overrides})
    _check_content(begun.content)
    check_id("id", begun.id or "x")
    for name in ("source", "session", "user"):
        _check_label(name, getattr(begun, name))
    moments = {name: getattr(begun, name) for name in ("occurred_at", "recorded_at")}
    for name, moment in moments.items():
        if moment is not None:
            to_stamp(name, moment)
    return begun.model_copy(update={"id": begun.id or new_id(20), "occurred_at": begun.occurred_at or clock.now()})


def _check_same_group(given: Episode, overrides: Mapping[str, object]) -> None:
    group = overrides.get("group_id", given.group_id)
    if group != given.group_id:
        raise InvalidError("group_id", group, f"the episode has {given.group_id!r}; give the same group or none")


def _validate_episode(fields: Mapping[str, object]) -> Episode:
    if "group_id" not in fields:
        raise InvalidError("group_id", None, "give a group, such as 'acme:session-7'")
    for name in ("occurred_at", "recorded_at"):
        moment = fields.get(name)
        if moment is not None:
            to_stamp(name, moment)  # type: ignore[arg-type]  # it rejects other types
    try:
        return Episode.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"][:1])) or "episode"
        raise InvalidError(name, problem.get("input"), problem["msg"]) from None


def _check_content(content: str | Mapping[str, Any]) -> None:
    if not content or (isinstance(content, str) and not content.strip()):
        raise InvalidError("content", content, "give a content with at least one character")
    if isinstance(content, str) and _SURROGATE.search(content):
        raise InvalidError("content", "...", "it holds half a character (a lone surrogate); decode it properly")
    length = len(content) if isinstance(content, str) else len(_encode_content(content))
    if length > LONGEST_CONTENT:
        raise InvalidError("content", "...", f"it has {length:,} characters; split it in parts of {LONGEST_CONTENT:,}")


def _check_label(name: str, label: str | None) -> None:
    if label is None:
        return
    if not label.strip() or len(label) > _LONGEST_LABEL or not label.isprintable():
        raise InvalidError(name, label[:40], f"give a printable text of 1 to {_LONGEST_LABEL} characters")


def _encode_content(content: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError) as error:
        raise InvalidError("content", "...", f"data must be JSON: {error}") from None


def _data_text(data: object, name: str = "") -> Sequence[str]:
    if isinstance(data, Mapping):
        return [part for key, value in data.items() for part in _data_text(value, f"{name} {key}".strip())]
    if isinstance(data, list | tuple):
        return [part for value in data for part in _data_text(value, name)]
    return [f"{name}: {data}" if name else str(data)]
