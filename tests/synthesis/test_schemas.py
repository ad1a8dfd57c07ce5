"""docs/synthesis.md: which slips in the answers of models are forgiven, and which are not."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from sharedmem.errors import InvalidError
from sharedmem.providers.openai import strict_schema
from sharedmem.synthesis.schemas import (
    ConflictOutput,
    ConsolidatedOutput,
    EpisodicOutput,
    ModelAnswer,
    SummaryOutput,
    has_words,
    require_content,
)

FORMS: list[type[ModelAnswer]] = [EpisodicOutput, SummaryOutput, ConflictOutput, ConsolidatedOutput]


def test_a_whole_episodic_answer_is_taken_as_it_is() -> None:
    said = {
        "context": {"available_data": "4 messages", "user_intent": "a refund", "analysis_limitation": "N/A"},
        "what_worked": {"strategies": ["asked for the order"], "pattern": "facts first"},
        "what_failed": {"strategies": ["a canned text"], "pattern": "no empathy"},
        "behavioral_profile": {
            "communication": "short",
            "learning": "by example",
            "problem_solving": "stepwise",
            "decision_making": "quick",
        },
        "interaction_insights": {"engagement_triggers": "a", "friction_points": "b", "optimal_approach": "c"},
        "future_guidance": {"recommended_approaches": ["d"], "avoid_approaches": ["e"], "adaptation_note": "f"},
    }

    answer = EpisodicOutput.model_validate_json(orjson.dumps(said))

    assert answer.model_dump(mode="json") == said


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (None, ()),
        ("one text", ("one text",)),
        (["a", None, " ", "b"], ("a", "b")),
        ([1, 2.5, True], ("1", "2.5", "True")),
        ([], ()),
        ("", ()),
        ([["a", "b"]], ("a b",)),
        (["N/A"], ("N/A",)),
    ],
)
def test_lists_are_forgiven_what_is_no_list(given: object, taken: tuple[str, ...]) -> None:
    answer = SummaryOutput.model_validate({"retrieval": {"tags": given}})

    assert answer.retrieval.tags == taken


@pytest.mark.parametrize(
    ("given", "taken"), [(None, ""), (3, "3"), (["a", "b"], "a b"), (" a ", " a "), ("N/A", "N/A"), (False, "False")]
)
def test_texts_are_forgiven_what_is_no_text(given: object, taken: str) -> None:
    assert SummaryOutput.model_validate({"narrative": given}).narrative == taken


def test_too_many_items_are_cut_to_what_was_asked_for() -> None:
    many = [f"item {place}" for place in range(20)]
    retrieval = {"tags": many, "keywords": many, "queries": many}

    summary = SummaryOutput.model_validate({"retrieval": retrieval, "metadata": {"follow_ups": many}})
    episodic = EpisodicOutput.model_validate(
        {
            "what_worked": {"strategies": many},
            "what_failed": {"strategies": many},
            "future_guidance": {"recommended_approaches": many, "avoid_approaches": many},
        }
    )

    kept = summary.retrieval
    assert [len(kept.tags), len(kept.keywords), len(kept.queries), len(summary.metadata.follow_ups)] == [8, 10, 4, 2]
    guidance = episodic.future_guidance
    assert [len(episodic.what_worked.strategies), len(episodic.what_failed.strategies)] == [3, 2]
    assert [len(guidance.recommended_approaches), len(guidance.avoid_approaches)] == [3, 2]


@pytest.mark.parametrize(
    ("given", "taken"), [("HIGH", "high"), (" Medium ", "medium"), ("deep", None), (None, None), (7, None), ("", None)]
)
def test_depth_is_one_of_three_words_or_nothing(given: object, taken: str | None) -> None:
    assert SummaryOutput.model_validate({"metadata": {"depth": given}}).metadata.depth == taken


def test_unknown_fields_are_ignored_and_missing_sections_are_empty() -> None:
    answer = EpisodicOutput.model_validate({"mood": "good", "context": None, "what_worked": {"pattern": "x", "y": 1}})

    assert answer.what_worked.pattern == "x"
    assert answer.context.user_intent == ""
    assert answer.future_guidance.recommended_approaches == ()


@pytest.mark.parametrize(
    "given", [{"narrative": {"a": 1}}, {"retrieval": "none"}, {"retrieval": {"tags": [{"a": 1}]}}, []]
)
def test_what_has_another_shape_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        SummaryOutput.model_validate(given)


VERDICT: dict[str, Any] = {"memory_id": "m1", "operation": "update", "confidence_score": 0.5, "reasoning": "same"}


@pytest.mark.parametrize("given", [[VERDICT], {"resolutions": [VERDICT]}, {"decisions": [VERDICT]}, VERDICT])
def test_verdicts_are_found_under_any_name(given: object) -> None:
    (verdict,) = ConflictOutput.model_validate(given).resolutions

    assert (verdict.memory_id, verdict.operation) == ("m1", "UPDATE")


@pytest.mark.parametrize(
    ("given", "taken"),
    [(1.7, 1.0), (-2, 0.0), ("0.25", 0.25), ("90 %", 0.9), (None, 0.0), (float("nan"), 0.0), (float("inf"), 1.0)],
)
def test_confidence_stays_between_zero_and_one(given: object, taken: float) -> None:
    answer = ConflictOutput.model_validate([VERDICT | {"confidence_score": given}])

    assert answer.resolutions[0].confidence_score == pytest.approx(taken)


@pytest.mark.parametrize("operation", ["MERGE", "CREATE", "", None, 3, ["UPDATE"]])
def test_other_operations_are_refused(operation: object) -> None:
    with pytest.raises(ValidationError, match="operation"):
        ConflictOutput.model_validate([VERDICT | {"operation": operation}])


def test_what_a_writer_says_of_its_work_is_no_reason_to_refuse_it() -> None:
    metadata = {"memories_merged": "about 3", "deduplication_count": None, "new_information_added": "lots"}

    answer = ConsolidatedOutput.model_validate(
        {"consolidated_memory": {"natural_memory_note": "## Summary\nx"}, "synthesis_metadata": metadata}
    )

    assert answer.synthesis_metadata.memories_merged == 3
    assert answer.synthesis_metadata.deduplication_count == 0
    assert answer.synthesis_metadata.new_information_added is None


EMPTY: list[tuple[type[ModelAnswer], object]] = [
    (EpisodicOutput, {}),
    (EpisodicOutput, {"context": {"analysis_limitation": "N/A"}, "what_worked": {"strategies": ["n/a", "None."]}}),
    (SummaryOutput, {"retrieval": {"tags": ["billing"]}}),
    (SummaryOutput, {"narrative": " N/A. "}),
    (ConflictOutput, []),
    (ConsolidatedOutput, {"synthesis_metadata": {"notes": "all merged"}}),
]


@pytest.mark.parametrize(("form", "given"), EMPTY)
def test_an_answer_without_content_is_an_error_and_not_a_note(form: type[ModelAnswer], given: object) -> None:
    with pytest.raises(InvalidError, match="no content"):
        require_content(form.model_validate(given))
    with pytest.raises(ValidationError, match="contains nothing"):
        form.model_validate_json(orjson.dumps(given))


def test_an_answer_with_content_passes() -> None:
    answer = SummaryOutput(narrative="They met.")

    assert require_content(answer) is answer


@pytest.mark.parametrize("text", ["", " ", "N/A", "n/a.", "None", "unknown"])
def test_words_for_nothing_say_nothing(text: str) -> None:
    assert not has_words(text)
    assert has_words(f"{text} so far")


def test_json_with_slips_is_mended_before_it_is_refused() -> None:
    answer = SummaryOutput.model_validate_json('```json\n{"narrative": "Paid 30 EUR, {twice}",}\n```')

    assert answer.narrative == "Paid 30 EUR, {twice}"


@pytest.mark.parametrize("text", ["I cannot do that.", "", b"\xff", '{"narrative": {"a": 1}}', "3"])
def test_what_cannot_be_mended_is_refused_by_the_form(text: str | bytes) -> None:
    with pytest.raises(ValidationError):
        SummaryOutput.model_validate_json(text)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_be_asked_for_in_strict_mode(form: type[ModelAnswer]) -> None:
    schema = strict_schema(form)

    assert schema["additionalProperties"] is False
    assert schema["required"] == list(form.model_fields)
