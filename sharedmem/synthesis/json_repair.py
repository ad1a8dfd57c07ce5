"""Parse JSON from a model's answer, unchanged if possible, repaired if necessary.

Models put answers between fences and prose, forget commas, or are cut off. Before a repair, every
complete string is replaced by a mark, so that no repair can change its content; it is put back afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import orjson

from sharedmem.errors import InvalidError

MOST_BRACKETS = 1_000
"""Brackets outside of strings, beyond which nothing is repaired: the time grows with their square."""
MOST_CHARACTERS = 200_000
"""Characters outside of complete strings, beyond which nothing is repaired."""

# A string is where JSON allows one: after one of `{[,:`, and before one of `]},:` or the end.
_STRING = re.compile(
    r'(?P<before>(?:^|[{\[,:])\s*)"(?P<inside>(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"(?=\s*(?:[\]},:]|$))'
)
_CUT_STRING = re.compile(
    r'(?P<before>[{\[,:]\s*)"(?P<inside>(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)(?:\\u?[0-9a-fA-F]{0,3})?$'
)
_LAST_FENCE = re.compile(r"\n\s*(?:`{3,}|~{3,})\s*$")
_BRACKET = re.compile(r"[{}\[\]]")


def parse_json(text: str) -> object:
    """Return the value of the JSON in a text: an object or a list, also with fences, prose or small errors.

    Args:
        text: the answer of a model.

    Raises:
        InvalidError: the text contains no JSON, or cannot be repaired.
    """
    try:
        value = orjson.loads(text.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        return _find_json(text)
    # Some models encode their answer twice.
    return parse_json(value) if isinstance(value, str) else value


class _MaskedText(NamedTuple):
    """A text whose complete strings are replaced by marks."""

    text: str
    mark: re.Pattern[str]
    strings: list[str]
    """The strings as they are in the text, without their quotes."""

    def spelled(self, piece: str) -> bytes:
        """Return a piece with its strings back in their places."""
        return self.mark.sub(lambda found: self.strings[int(found[1])], piece).encode("utf-8", "replace")

    def restored(self, value: object) -> object:
        """Return a parsed value with its strings back in their places."""
        if isinstance(value, str):
            return _drop_surrogates(self.mark.sub(lambda found: _string_value(self.strings[int(found[1])]), value))
        if isinstance(value, list):
            return [self.restored(item) for item in value]
        if isinstance(value, dict):
            return {str(self.restored(name)): self.restored(item) for name, item in value.items()}
        return value


def _find_json(text: str) -> object:
    masked = _mask_strings(_LAST_FENCE.sub("", text))
    # The longest: beside an answer there may be drafts, examples and footnotes.
    for piece in sorted(_candidates(masked), key=len, reverse=True):
        try:
            return orjson.loads(masked.spelled(piece))
        except orjson.JSONDecodeError:
            if value := _repair_piece(piece):
                return masked.restored(value)
    raise InvalidError("answer", text, "it contains no JSON, or cannot be repaired; try again")


def _candidates(masked: _MaskedText) -> list[str]:
    """Return the possible answers in a text."""
    spans = list(_spans(masked.text))
    if not spans:
        return []
    rest, end = [], spans[0][0]
    for start, stop in spans:
        rest.append(masked.text[end:start])
        end = stop
    rest.append(masked.text[end:])
    if masked.mark.search("".join(rest)):
        # A bracket in a broken string may have ended the piece too early.
        return [masked.text[spans[0][0] :]]
    return [masked.text[start:stop] for start, stop in spans]


def _mask_strings(text: str) -> _MaskedText:
    word = f"s{sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
    strings: list[str] = []

    def mask(found: re.Match[str]) -> str:
        strings.append(found["inside"])
        return f'{found["before"]}"{word}_{len(strings) - 1}_"'

    whole = _STRING.sub(mask, text)
    return _MaskedText(_CUT_STRING.sub(mask, whole), re.compile(rf"{word}_(\d+)_"), strings)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of the outermost objects and lists; an unclosed one extends to the end."""
    depth, start = 0, 0
    for found in _BRACKET.finditer(text):
        if found[0] in "{[":
            start = found.start() if depth == 0 else start
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield start, found.end()
    if depth:
        yield start, len(text)


def _repair_piece(piece: str) -> object:
    """Return the repaired value; something empty if that fails."""
    if len(piece) > MOST_CHARACTERS or len(_BRACKET.findall(piece)) > MOST_BRACKETS:
        return None
    try:
        import json_repair  # noqa: PLC0415  # part of an extra, and seldom needed

        value = json_repair.repair_json(piece, return_objects=True, skip_json_loads=True)
    except (ImportError, ValueError, RecursionError):
        # Without the library the model is called again.
        return None
    return value if isinstance(value, dict | list) else None


def _string_value(inside: str) -> str:
    # Unescaped line breaks are meant as line breaks.
    value: str = json.loads(f'"{inside}"', strict=False)
    return value


def _drop_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which cannot be stored."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
