"""Schemas of the answers that synthesis requests from models; small slips are repaired, empty answers rejected.

Models put answers between fences and prose, forget commas, or are cut off: their JSON is parsed unchanged if possible,
and repaired if necessary. Before a repair, every complete string is replaced by a mark, so that no repair can change
its content; it is put back afterwards.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Annotated, Final, NamedTuple, Self, TypeVar

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


# -- JSON in the answer of a model ---------------------------------------------------------------


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
