"""Schemas of the answers that synthesis requests from models; small slips are repaired, empty answers rejected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Self, TypeVar

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sharedmem.errors import InvalidError
from sharedmem.models import ConsolidationReport, Depth, Verdict
from sharedmem.synthesis.json_repair import parse_json

_NOTHING = frozenset({"", "n/a", "na", "none", "null", "-", "not applicable", "unknown"})
_FIRST_NUMBER = re.compile(r"\d{1,9}")
_REQUIRED: Final = {"asked": True}
_DEPTHS = frozenset({"high", "medium", "low"})
_LONGEST_REMARK = 500
_HIGHEST_GRADE = 5


def has_words(text: str) -> bool:
    """Return whether a text has content: not blank, and no word for nothing such as `N/A`."""
    return text.strip().strip(".").casefold() not in _NOTHING


# -- tolerated errors -------------------------------------------------------------------------


def _text(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return str(value) if isinstance(value, int | float) else value


def _texts(value: object) -> object:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        value = (value,)
    texts = [_text(item) for item in value]
    return tuple(text for text in texts if not isinstance(text, str) or text.strip())


def _first(most: int) -> AfterValidator:
    return AfterValidator(lambda texts: texts[:most])


def _section(value: object) -> object:
    return {} if value is None else value


def _depth(value: object) -> object:
    word = value.strip().casefold() if isinstance(value, str) else value
    return word if word in _DEPTHS else None


def _number(value: object) -> object:
    found = _FIRST_NUMBER.search(str(value))
    return int(found.group()) if found else 0


def _grade(value: object) -> object:
    """Return a whole number from 1 to 5; None for anything else."""
    found = _FIRST_NUMBER.search(str(value))
    grade = int(found.group()) if found else 0
    return grade if 1 <= grade <= _HIGHEST_GRADE else None


def _fraction(value: object) -> object:
    """Return a number between 0 and 1; a percentage is converted."""
    if isinstance(value, str):
        text = value.strip()
        return _fraction(float(text[:-1]) / 100) if text.endswith("%") else _fraction(float(text))
    if isinstance(value, int | float):
        return 0.0 if math.isnan(value) else min(max(float(value), 0.0), 1.0)
    return 0.0 if value is None else value


_Text = Annotated[str, BeforeValidator(_text)]
_Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
_Depth = Annotated[Depth | None, BeforeValidator(_depth)]
_Number = Annotated[int, BeforeValidator(_number)]
_Grade = Annotated[int | None, BeforeValidator(_grade)]
_Fraction = Annotated[float, BeforeValidator(_fraction)]


class AnswerPart(BaseModel):
    """A part of an answer: frozen; unknown fields are ignored, missing ones are empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @property
    def has_content(self) -> bool:
        """Whether any text in it has content."""
        return any(has_words(text) for text in _texts_in(self))


class ModelAnswer(AnswerPart):
    """A whole answer. JSON that cannot be parsed is repaired; an answer without content is rejected."""

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: object) -> Self:
        """Return the answer; strictly first, and repaired only if that fails.

        Providers call this method for an answer, so that an error that can be repaired costs no second request, and an
        empty answer is reported to the model like a wrong one.

        Raises:
            ValidationError: it has another form, also after a repair, or none of the requested content.
        """
        try:
            return cls.model_validate(orjson.loads(json_data), context=_REQUIRED)
        except (orjson.JSONDecodeError, ValidationError):
            text = json_data if isinstance(json_data, str) else json_data.decode("utf-8", "replace")
            return cls.model_validate(_repair(text), context=_REQUIRED)

    @model_validator(mode="after")
    def _says_something(self, info: ValidationInfo) -> Self:
        if info.context is _REQUIRED and not self.has_content:
            raise ValueError("it contains nothing of what was asked for")
        return self


def _repair(text: str) -> object:
    try:
        return parse_json(text)
    except InvalidError:
        # Rejected by the schema, with a message that the model can use.
        return text


def _texts_in(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _texts_in(item)
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            yield from _texts_in(getattr(part, name))


# -- episodic ---------------------------------------------------------------------------------


class EpisodicContext(AnswerPart):
    """What the rest of the analysis rests upon."""

    available_data: _Text = Field("", description="One sentence: what could be observed.")
    user_intent: _Text = Field("", description="One sentence: what the user wanted to get done.")
    analysis_limitation: _Text = Field("", description="One sentence: what limits this analysis, or N/A.")


class WhatWorked(AnswerPart):
    """What helped."""

    strategies: Annotated[_Texts, _first(3)] = Field((), description="At most 3, one sentence each.")
    pattern: _Text = Field("", description="One sentence: why they helped.")


class WhatFailed(AnswerPart):
    """What did not help."""

    strategies: Annotated[_Texts, _first(2)] = Field((), description="At most 2, one sentence each.")
    pattern: _Text = Field("", description="One sentence: why they did not help.")


class BehavioralProfile(AnswerPart):
    """How the user deals with things."""

    communication: _Text = Field("", description="Two sentences: style, formality, detail and pace.")
    learning: _Text = Field("", description="One or two sentences: how they like to learn.")
    problem_solving: _Text = Field("", description="One or two sentences: how they go about problems.")
    decision_making: _Text = Field("", description="One or two sentences: how they choose.")


class InteractionInsights(AnswerPart):
    """What makes an exchange with this user go well."""

    engagement_triggers: _Text = Field("", description="One sentence: what engages them.")
    friction_points: _Text = Field("", description="One sentence: what confuses or annoys them.")
    optimal_approach: _Text = Field("", description="One sentence: under which conditions it goes best.")


class FutureGuidance(AnswerPart):
    """What to do next time."""

    recommended_approaches: Annotated[_Texts, _first(3)] = Field((), description="At most 3, one sentence each.")
    avoid_approaches: Annotated[_Texts, _first(2)] = Field((), description="At most 2, one sentence each.")
    adaptation_note: _Text = Field("", description="One or two sentences: the main insight.")


class EpisodicOutput(ModelAnswer):
    """How user and assistant dealt with one another."""

    context: Annotated[EpisodicContext, BeforeValidator(_section)] = EpisodicContext()
    what_worked: Annotated[WhatWorked, BeforeValidator(_section)] = WhatWorked()
    what_failed: Annotated[WhatFailed, BeforeValidator(_section)] = WhatFailed()
    behavioral_profile: Annotated[BehavioralProfile, BeforeValidator(_section)] = BehavioralProfile()
    interaction_insights: Annotated[InteractionInsights, BeforeValidator(_section)] = InteractionInsights()
    future_guidance: Annotated[FutureGuidance, BeforeValidator(_section)] = FutureGuidance()


# -- summary ----------------------------------------------------------------------------------


class SummaryContext(AnswerPart):
    """What a summary rests upon."""

    available_data: _Text = Field("", description="One sentence: which messages there were.")
    content_scope: _Text = Field("", description="One or two sentences: subjects and knowledge covered.")


class SummaryRetrieval(AnswerPart):
    """By what a note shall be found."""

    tags: Annotated[_Texts, _first(8)] = Field((), description="At most 8: subjects, fields, outcomes.")
    keywords: Annotated[_Texts, _first(10)] = Field((), description="At most 10: terms, concepts, technologies, names.")
    queries: Annotated[_Texts, _first(4)] = Field(
        (), description="At most 4: what somebody would ask who needs this note."
    )


class SummaryMetadata(AnswerPart):
    """How much there is to it."""

    depth: _Depth = Field(None, description="How much content it has: high, medium or low.")
    complexity: _Grade = Field(None, description="How complex the conversation is: 1 (one plain matter) to 5.")
    follow_ups: Annotated[_Texts, _first(2)] = Field(
        (), description="At most 2, one sentence each: what is still open, or N/A."
    )


class SummaryOutput(ModelAnswer):
    """What a conversation was about."""

    context: Annotated[SummaryContext, BeforeValidator(_section)] = SummaryContext()
    narrative: _Text = Field("", description="The whole story with every fact in it, 150 to 200 words where that fits.")
    retrieval: Annotated[SummaryRetrieval, BeforeValidator(_section)] = SummaryRetrieval()
    metadata: Annotated[SummaryMetadata, BeforeValidator(_section)] = SummaryMetadata()

    @property
    def has_content(self) -> bool:
        """Whether the narrative says something: tags alone are no memory."""
        return has_words(self.narrative)


# -- conflicts --------------------------------------------------------------------------------


class ConflictVerdict(AnswerPart):
    """What a judge says of one older note."""

    memory_id: _Text = Field(description="The handle of the older note, as it was given.")
    operation: Verdict = Field(description="UPDATE, DELETE or SKIP.")
    confidence_score: _Fraction = Field(0.0, description="0 to 1.")
    reasoning: _Text = Field("", description="One sentence.")

    @field_validator("operation", mode="before")
    @classmethod
    def _in_capitals(cls, value: object) -> object:
        return value.strip().upper() if isinstance(value, str) else value


class ConflictOutput(ModelAnswer):
    """What a judge says of all of them."""

    resolutions: tuple[ConflictVerdict, ...]

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        # Some models leave out the object around the list, or name it otherwise.
        if isinstance(value, list):
            return {"resolutions": value}
        if not isinstance(value, Mapping) or "resolutions" in value:
            return value
        if "memory_id" in value:
            return {"resolutions": [value]}
        lists = [item for item in value.values() if isinstance(item, list)]
        return {"resolutions": lists[0]} if len(lists) == 1 else value

    @property
    def has_content(self) -> bool:
        """Whether there is any verdict."""
        return bool(self.resolutions)


# -- consolidation ----------------------------------------------------------------------------


class ConsolidatedMemory(AnswerPart):
    """A successor."""

    natural_memory_note: _Text = Field("", description="The whole text of the note, with all its sections.")


class SynthesisMetadata(AnswerPart):
    """What its writer says of it."""

    memories_merged: _Number = 0
    new_information_added: _Depth = Field(None, description="high, medium or low.")
    deduplication_count: _Number = Field(
        0, description="About how many sentences were dropped, as others say the same."
    )
    quality_check: _Text = Field("", description="pass or warning.")
    notes: _Text = Field("", description="One sentence: what has changed.")

    @property
    def report(self) -> ConsolidationReport:
        """Return it as a record: what is neither `pass` nor empty is a warning."""
        is_doubtful = has_words(self.quality_check) and not self.quality_check.strip().casefold().startswith("pass")
        return ConsolidationReport(
            memories_merged=self.memories_merged,
            new_information_added=self.new_information_added,
            deduplication_count=self.deduplication_count,
            quality_check="warning" if is_doubtful else "pass",
            notes=" ".join(self.notes.split())[:_LONGEST_REMARK] if has_words(self.notes) else "",
        )


class ConsolidatedOutput(ModelAnswer):
    """Several notes in one."""

    consolidated_memory: Annotated[ConsolidatedMemory, BeforeValidator(_section)] = ConsolidatedMemory()
    synthesis_metadata: Annotated[SynthesisMetadata, BeforeValidator(_section)] = SynthesisMetadata()

    @property
    def has_content(self) -> bool:
        """Whether there is a note."""
        return has_words(self.consolidated_memory.natural_memory_note)


# -- content check ----------------------------------------------------------------------------

AnswerT = TypeVar("AnswerT", bound=AnswerPart)


def require_content(answer: AnswerT) -> AnswerT:
    """Return the answer unchanged.

    Raises:
        InvalidError: it has the right form, but none of the requested content.
    """
    if answer.has_content:
        return answer
    advice = f"it has the form of {type(answer).__name__} but no content; try again, or continue without"
    raise InvalidError("answer", answer.model_dump(exclude_defaults=True), advice)
