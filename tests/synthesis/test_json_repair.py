"""docs/synthesis.md: JSON out of what a model has written, with every string as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count

from sharedmem.errors import InvalidError
from sharedmem.synthesis.schemas import parse_json

TRICKY = [
    'she said "yes", then {"k": [1, 2]}, ok',
    "a, b, c,",
    "}]",
    "{[",
    "ends with a colon:",
    "// no comment",
    "100% /* no comment */ # none",
    "```py\nprint('x')\n```",
    "```",
    "C:\\temp\\",
    "it's 'quoted'",
    "“smart” «quotes»",
    "日本語、テスト。",
    "مرحبا، كيف الحال؟",
    "😀 👩‍💻",
    "  blanks at both ends  ",
    "tab\tand\nline\r\nbreaks",
    "",
    "null",
    "True",
    "1_000",
    "\\u0041 is no escape",
    "\u2028 \u0000 \u007f",
    '", "injected": "',
]

WRAPPINGS = {
    "alone": "{}",
    "in a fence": "```json\n{}\n```",
    "in a fence without a language": "```\n{}\n```",
    "with prose around": 'Here it is [as asked]:\n\n{}\n\nI hope that "helps"; see [1].',
    "with thoughts before": '<think>perhaps {{"a": 1}}?</think>\n{}',
    "with a byte order mark": "\ufeff{}",
    "followed by the start of another": "{}\n{{",
}

SLIPS: dict[str, Callable[[str], str]] = {
    "none": lambda text: text,
    "a comma too many": lambda text: f"{text[:-1]},}}",
    "never closed": lambda text: text[:-1],
    "a comment": lambda text: f"{text[:-1]} // that is all\n}}",
    "a comma missing": lambda text: text.replace('", "tail"', '" "tail"'),
    "Python words": lambda text: f'{text[:-1]}, "x": True, "y": None}}',
}


def wrapped(wrapping: str, text: str) -> str:
    return WRAPPINGS[wrapping].format(text)


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, null, true]}', "[]", "{}", "null", "3", '  {"a": 1}\n'])
def test_json_is_read_as_it_stands(text: str) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("slip", SLIPS)
def test_strings_survive_every_wrapping_and_every_slip(wrapping: str, slip: str) -> None:
    if slip == "never closed" and wrapping in {"with prose around", "followed by the start of another"}:
        return  # Nothing comes after what was cut off.
    said = {f"k{place} {text}": text for place, text in enumerate(TRICKY)} | {"tail": "end"}
    text = SLIPS[slip](json.dumps(said, ensure_ascii=False))

    value = parse_json(wrapped(wrapping, text))

    assert isinstance(value, dict)
    assert {name: value[name] for name in said} == said


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4), st.booleans())
def test_any_strings_survive_a_mended_list(strings: list[str], ascii_only: bool) -> None:
    text = f"{json.dumps({'said': strings}, ensure_ascii=ascii_only)[:-1]},}}"

    assert parse_json(f"```json\n{text}\n```") == {"said": strings}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "cut in the mid', {"a": "cut in the mid"}),
        ('{"a": "cut, b: 1 {x', {"a": "cut, b: 1 {x"}),
        ('{"a": "cut in an escape \\u00', {"a": "cut in an escape "}),
        ('```json\n{"a": "cut here\n```', {"a": "cut here"}),
        ('[{"id": "1", "say": "SKIP"}, {"id": "2', [{"id": "1", "say": "SKIP"}, {"id": "2"}]),
        ("{'a': 'it\\'s', b: True}", {"a": "it's", "b": True}),
        ('{"a": "raw\nbreak",\n"b": "tab\there"}', {"a": "raw\nbreak", "b": "tab\there"}),
        ('{"a": "he said "hi, you", ok", "b": 1}', {"a": 'he said "hi, you", ok', "b": 1}),
        ("{“a”: “smart”}", {"a": "smart"}),
        ('{"a": "\\ud83d\\ude00", "b": "half \\ud83d",}', {"a": "😀", "b": "half \ufffd"}),
        (json.dumps('{"a": "twice"}'), {"a": "twice"}),
        ('{"a": 1} or shorter {"a"', {"a": 1}),
    ],
)
def test_what_can_be_mended_is_mended(text: str, value: object) -> None:
    assert parse_json(text) == value


def test_a_bracket_in_a_broken_string_does_not_end_the_answer() -> None:
    value: Any = parse_json('{"a": "use "x}" here", "b": "more"}')

    assert value["b"] == "more"


@pytest.mark.parametrize("text", ["", "   ", "I cannot do that.", "{", "```json\n```", "][", '"words"'])
def test_where_there_is_nothing_it_says_so(text: str) -> None:
    with pytest.raises(InvalidError, match="try again"):
        parse_json(text)


BOMBS = ["[" * 50_000, '{"a":' * 20_000, "[{" * 3_000, '"' * 50_000, '{"a": "' + "\\" * 50_000, ',"' * 20_000]
BOMBS += ['{"' * 50_000, ':"a' * 30_000, '{"a" ' * 20_000, " " * 200_000, "{" + " " * 200_000, "{x" * 400_000]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:6])
def test_what_is_made_to_cost_time_costs_little(bomb: str) -> None:
    # Each of them takes milliseconds; if they were looked into further, they would take minutes.
    try:
        parse_json(bomb)
    except InvalidError:
        return


def test_valid_json_in_bytes_that_are_no_text_is_read_all_the_same() -> None:
    assert parse_json(orjson.dumps({"a": "ü"}).decode() + " \ud800") == {"a": "ü"}
