"""The form in which a language model tells what it found; strict in its schema, lenient in what it takes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field


def _plain(value: Any) -> Any:
    """Models put lists and objects where one value belongs."""
    return json.dumps(value, default=str) if isinstance(value, list | dict) else value


def _text(value: Any) -> Any:
    if value is None:
        return ""
    return str(value) if isinstance(value, int | float) else value


def _date(value: Any) -> Any:
    return str(value) if isinstance(value, int) else value


def _listed(value: Any) -> Any:
    return [] if value is None else value


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _number(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else None


def _ending(value: Any) -> Any:
    return value if isinstance(value, dict) else {"number": value}


_Text = Annotated[str, BeforeValidator(_text)]
_Date = Annotated[str | None, BeforeValidator(_date)]
_Number = Annotated[int | None, BeforeValidator(_number)]


class Attribute(BaseModel):
    """Something that is said of one entity."""

    name: _Text = Field("", description="What it is, such as status, email or tier.")
    value: Annotated[str | int | float | bool | None, BeforeValidator(_plain)] = None


class Found(BaseModel):
    """An entity that the episode mentions."""

    name: _Text = Field("", description="As it is called, in full.")
    type: _Text = Field("", description="One lower-case noun: person, company, city, product, order.")
    aliases: Annotated[list[_Text], BeforeValidator(_listed)] = Field(
        default_factory=list, description="Other names of the same in the episode."
    )
    attributes: Annotated[list[Attribute], BeforeValidator(_listed)] = Field(default_factory=list)
    summary: _Text = Field("", description="One sentence on it, or nothing.")
    known: _Number = Field(None, description="Number of the known entity that it is, or null.")


class Related(BaseModel):
    """A relationship that the episode states."""

    source: _Text = Field("", description="Name of an entity above.")
    type: _Text = Field("", description="Name of the relation in snake_case.")
    target: _Text = Field("", description="Name of an entity above.")
    fact: _Text = Field("", description="The same as a sentence with full names.")
    valid_from: _Date = Field(
        None, description="ISO date or time since when it holds; null: since the episode; unknown: nobody says."
    )
    valid_to: _Date = Field(None, description="ISO date or time until when, or null.")
    has_ended: Annotated[bool, BeforeValidator(bool)] = Field(
        False, description="True when the episode says that it does not hold any more; then valid_to says since when."
    )


class Ended(BaseModel):
    """A known fact that does not hold any more."""

    number: Annotated[int, BeforeValidator(lambda value: _number(value) or 0)] = Field(
        0, description="Its number among the known facts."
    )
    when: _Date = Field(None, description="ISO date or time when it ended; null: when the episode happened.")


class Answer(BaseModel):
    """What an episode mentions and says."""

    entities: Annotated[list[Annotated[Found, BeforeValidator(_named)]], BeforeValidator(_listed)]
    relationships: Annotated[list[Related], BeforeValidator(_listed)] = Field(default_factory=list)
    ended: Annotated[list[Annotated[Ended, BeforeValidator(_ending)]], BeforeValidator(_listed)] = Field(
        default_factory=list, description="Known facts that the episode contradicts or ends."
    )
