"""Diagrams of a graph: what they show at a time, and that no name can break their syntax."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graph_drawings import day, drawing_of_a_move, entity, fact, version

from sharedmem.errors import InvalidError
from sharedmem.models import GraphDrawing
from sharedmem.visualization import as_dot, as_mermaid

NOW = version("2020-01-01", None, "2020-01-01")
NASTY = st.sampled_from(
    [
        '"',
        '"]',
        "-->",
        "\\",
        '\\"',
        "\\N",
        "`bold`",
        "%%{init}%%",
        "#quot;",
        "&lt;",
        "a|b",
        "a\nb",
        "\u2028",
        "\x00",
        "}",
        ";",
        "end",
        "😀",
    ]
)
ANY_TEXT = st.lists(st.one_of(st.text(max_size=20), NASTY), min_size=1, max_size=6).map("".join)
MERMAID_LINE = re.compile(
    r"""\ {4}(
        n\d+\["(?P<label>[^"]*)"\]:::c\d
        | n\d+\ (-->|-\.->)\|"(?P<arrow>[^"]*)"\|\ n\d+
        | classDef\ c\d\ stroke:\#[0-9a-f]{6},stroke-width:2px
    )""",
    re.VERBOSE,
)
HARMLESS = re.compile(r"(<br/>|#\d+;|[^\W_]|[ .,\-_:])*")
QUOTED = r'"(?:[^"\\\n]|\\["\\n])*"'
DOT_LINE = re.compile(
    rf"    (n\d+ \[label={QUOTED}, color={QUOTED}\]|n\d+ -> n\d+ \[label={QUOTED}, style=(solid|dashed)\]"
    r"|\w+(=\w+| \[.*\]));"
)


def named(name: str, type_: str) -> GraphDrawing:
    """A graph in which everything bears one name."""
    return drawing_of_a_move(
        entities=(entity("a", name, type_), entity("b", name)),
        facts=(fact("f", "a", type_, "b", NOW), fact("g", "a", f"@{type_}", None, NOW, value=name)),
    )


def test_a_flow_chart_shows_everything_that_is_known_now() -> None:
    assert as_mermaid(drawing_of_a_move()).splitlines() == [
        "flowchart LR",
        '    n0["Ada<br/>#40;person#41;<br/>mood: calm"]:::c2',
        '    n1["Oslo<br/>#40;city#41;"]:::c0',
        '    n2["Rome<br/>#40;city#41;"]:::c0',
        '    n3["Acme<br/>#40;company#41;"]:::c1',
        '    n0 -.->|"lives in since 2020-01-01 until 2022-05-01"| n1',
        '    n0 -->|"lives in since 2022-05-01"| n2',
        '    n0 -->|"works for since 2021-01-01"| n3',
        "    classDef c0 stroke:#4263eb,stroke-width:2px",
        "    classDef c1 stroke:#e67700,stroke-width:2px",
        "    classDef c2 stroke:#2b8a3e,stroke-width:2px",
    ]


def test_a_digraph_shows_the_same() -> None:
    lines = as_dot(drawing_of_a_move()).splitlines()

    assert lines[0] == "digraph graph_of_facts {"
    assert lines[-1] == "}"
    assert '    n0 [label="Ada\\n(person)\\nmood: calm", color="#2b8a3e"];' in lines
    assert '    n0 -> n1 [label="lives in since 2020-01-01 until 2022-05-01", style=dashed];' in lines
    assert '    n0 -> n2 [label="lives in since 2022-05-01", style=solid];' in lines


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("2019-12-31", []),
        ("2020-01-01", ["n1"]),
        ("2022-04-30", ["n1", "n3"]),
        ("2022-05-01", ["n2", "n3"]),
        ("2024-01-01", ["n2", "n3"]),
    ],
)
def test_a_moment_shows_only_what_held_then(at: str, shown: list[str]) -> None:
    mermaid, dot = as_mermaid(drawing_of_a_move(), day(at)), as_dot(drawing_of_a_move(), day(at))

    assert re.findall(r"n0 -->.* (n\d)", mermaid) == re.findall(r"n0 -> (n\d) .*style=solid", dot) == shown
    assert "-.->" not in mermaid
    assert "dashed" not in dot


def test_a_moment_needs_a_time_zone() -> None:
    for render in (as_mermaid, as_dot):
        with pytest.raises(InvalidError, match="give it a time zone"):
            render(drawing_of_a_move(), datetime(2022, 1, 1))  # noqa: DTZ001  # that is what is tried


def test_what_turned_out_to_be_wrong_is_not_shown() -> None:
    wrong = fact("f", "ada", "lives_in", "oslo", version("2020-01-01", None, "2020-01-01", "2021-01-01"))

    assert "lives" not in as_mermaid(drawing_of_a_move(facts=(wrong,)))


def test_an_empty_graph_is_a_diagram_too() -> None:
    empty = drawing_of_a_move(entities=(), facts=())

    assert as_mermaid(empty) == "flowchart LR\n"
    assert as_dot(empty).endswith("];\n}\n")


@given(name=ANY_TEXT, type_=ANY_TEXT)
def test_no_name_breaks_a_flow_chart(name: str, type_: str) -> None:
    first, *lines = as_mermaid(named(name, type_)).split("\n")[:-1]

    assert first == "flowchart LR"
    assert len(lines) == 3 + len({type_, ""})
    for line in lines:
        found = MERMAID_LINE.fullmatch(line)
        assert found, line
        assert HARMLESS.fullmatch(found["label"] or found["arrow"] or ""), line


@given(name=ANY_TEXT, type_=ANY_TEXT)
def test_no_name_breaks_a_digraph(name: str, type_: str) -> None:
    lines = as_dot(named(name, type_)).split("\n")[1:-2]

    assert len(lines) == 6
    for line in lines:
        assert DOT_LINE.fullmatch(line), line


@given(name=st.text(min_size=1, max_size=100))
def test_a_name_can_be_read_back_from_both(name: str) -> None:
    visible = all(letter.isprintable() for letter in name)
    drawing = drawing_of_a_move(entities=(entity("a", name),), facts=())

    (label,) = re.findall(r'n0\["(.*)"\]', as_mermaid(drawing))
    (quoted,) = re.findall(r'n0 \[label="(.*)", color', as_dot(drawing))

    if visible:
        assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label) == name
        assert re.sub(r"\\(.)", r"\1", quoted).replace("&amp;", "&") == name
