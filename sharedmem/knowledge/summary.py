"""What an episode says, told as people would: the texts that `providers.sentences` picks a summary from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

_TEXT_FIELDS = ("text", "content", "message")
_SPEAKER_FIELDS = ("by", "role", "name", "actor")


def told(event: object) -> str:
    """An event as people would tell it: its text, with who said it before it; other structures field by field.

    Args:
        event: what an agent has appended: text, or any value that can be shared.
    """
    if isinstance(event, str):
        return event
    if not isinstance(event, Mapping):
        return _shown(event)
    text = _first_text(event, _TEXT_FIELDS)
    speaker = _first_text(event, _SPEAKER_FIELDS)
    if text is None:
        return ", ".join(f"{field}: {_shown(value)}" for field, value in event.items())
    return f"{speaker}: {text}" if speaker else text


def _first_text(event: Mapping[object, object], fields: Iterable[str]) -> str | None:
    return next((value for field in fields if isinstance(value := event.get(field), str)), None)


def _shown(value: object) -> str:
    if not isinstance(value, list | tuple | Mapping | bool | None):
        return str(value)
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # what JSON cannot hold, such as an integer beyond 64 bits
        return str(value)
