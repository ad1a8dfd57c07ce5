"""Words of a command line about graphs: moments, and files of episodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import Episode

Group = Annotated[str, typer.Option("--group", "-g", help="Whose graph, such as tenant:session.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of an entity.")]
AsOf = Annotated[str | None, typer.Option(help="As it was in the world then (ISO 8601; UTC without a zone).")]
KnownAt = Annotated[str | None, typer.Option(help="As it was known then (ISO 8601; UTC without a zone).")]
_MOMENTS = ("occurred_at", "recorded_at")


def moment(option: str, word: str | None) -> datetime | None:
    """A moment in ISO 8601; without a zone it is UTC.

    Raises:
        InvalidError: it is none.
    """
    if word is None:
        return None
    try:
        found = datetime.fromisoformat(word)
    except ValueError:
        raise InvalidError(option, word, "give a date such as 2024-03-01, or 2024-03-01T12:00+01:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def times(as_of: str | None, known_at: str | None) -> dict[str, datetime | None]:
    """The two times of a request.

    Raises:
        InvalidError: one of them is none.
    """
    return {"as_of": moment("as-of", as_of), "known_at": moment("known-at", known_at)}


def episodes_of(file: Path, group: str) -> list[Episode]:
    """The episodes of a file with a JSON object a line, each with the fields of an `Episode`, for one group.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it cannot be read, or a line is no episode of this group.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError("file", str(file)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("file", str(file), f"it cannot be read: {error}") from error
    return [_episode(number, line, group) for number, line in _lines(text)]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    # JSON may hold the line ends that `splitlines` knows besides line feeds.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def _episode(number: int, line: str, group: str) -> Episode:
    fields = _object(number, line)
    if fields.setdefault("group_id", group) != group:
        raise InvalidError(f"line {number}", fields["group_id"], f"it is of another group than {group!r}")
    for name in _MOMENTS:
        if isinstance(fields.get(name), str):
            fields[name] = moment(f"line {number}: {name}", fields[name])
    try:
        return Episode.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise InvalidError(f"line {number}: {place}", problem["input"], problem["msg"].lower()) from None


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidError(f"line {number}", line, 'give a JSON object, such as {"content": "Ada lives in Oslo"}')
    return fields
