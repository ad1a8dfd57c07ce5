"""docs/graph-rules.md: the rules file of an application, and what is said of a wrong one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.doc_pages import blocks
from support.example_budget import example_count
from support.rule_extraction import DEFAULT_EXTRACTOR, WEDNESDAY, extract_statements, extract_text, make_rules

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError, UnsupportedError
from sharedmem.graph.extraction.rule_extractor import LoadedRules, load_rules, open_ingest_rules, parse_rules
from sharedmem.graph.protocol import Known, Statement
from sharedmem.graph.relations import Vocabulary
from sharedmem.models import Episode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "graph-rules.md"


# -- rules of an application ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "text", "statement"),
    [
        ("{a:any} (likes|is fond of) {b:any} -> likes(a, b)", "Anna is fond of Bob", "holds Anna likes Bob"),
        ("{a:any} [very much] likes {b:any} -> likes(a, b)", "Anna likes Bob", "holds Anna likes Bob"),
        (
            "order {order} has state {s:words} -> @s(order) = {s}",
            "#1234 has state quite lost",
            "holds order 1234 @s 'quite lost'",
        ),
        (
            "{order} has {n:number} parts -> @parts(order) = {n}",
            "order #1234 has 1,200 parts",
            "holds order 1234 @parts 1200",
        ),
        ("{order} weighs {n:number} -> @kg(order) = {n}", "order #1234 weighs 1.5 kilos", "holds order 1234 @kg 1.5"),
        ("{order} is gone -> @open(order) = false", "order #1234 is gone", "holds order 1234 @open False"),
        ("{order} is open -> ends @state(order)", "order #1234 is open", "ends order 1234 @state None"),
        ('{person} is home -> at(person, "The Office")', "Anna is home", "holds Anna at The Office"),
        (
            '{who:person} broke {item:thing} -> has_issue(item, "broken {item} of {who}": issue)',
            "Anna broke the red lamp",
            "holds red lamp has_issue broken red lamp of Anna",
        ),
        ("I am at {place} -> at(me, place)", "I'm at Berlin", "holds user at Berlin"),
        ("my dog is {dog} -> has_dog(me, dog)", "My dog is Rex", "holds user has_dog Rex"),
        ("{me} have {item:thing} -> has(me, item)", "I have my red bike", "holds user has red bike"),
        ("{person}'s dog is {dog} -> has_dog(person, dog)", "Anna's dog is Rex", "holds Anna has_dog Rex"),
        ("{person} quits -> ends works_for(person)", "Anna quits", "ends Anna works_for None"),
    ],
)
async def test_a_rule_of_an_application_is_followed(rule: str, text: str, statement: str) -> None:
    assert await extract_statements(text, make_rules(rule)) == [statement]


async def test_a_rule_reads_data_field_by_field() -> None:
    """docs/graph-rules.md: data."""
    extractor = make_rules("order: {order}. status: {status:words} -> @status(order) = {status}")

    found = await extract_text({"order": "#1234", "status": "in transit", "since": "2024-03-01"}, extractor)

    assert found.statements == (
        Statement("order 1234", "@status", value="in transit", valid_from=datetime(2024, 3, 1, tzinfo=UTC)),
    )


async def test_where_a_rule_of_the_application_fits_no_shipped_one_is_looked_for() -> None:
    extractor = parse_rules({"rules": ["{person} moved to {city} -> visits(person, city)"]}).extractor

    assert await extract_statements("Anna moved to Berlin. Bob lives in Rome.", extractor) == [
        "holds Anna visits Berlin",
        "holds Bob lives_in Rome",
    ]


async def test_a_name_with_a_type_fits_only_slots_of_its_type() -> None:
    extractor = make_rules(
        "{person} visits {city} -> visits(person, city)", vocabulary=[{"name": "Acme", "type": "company"}]
    )

    assert await extract_statements(
        "Acme visits Berlin. Anna visits Berlin. order #1234 visits Berlin.", extractor
    ) == ["holds Anna visits Berlin"]


async def test_a_form_of_the_application_names_what_it_finds() -> None:
    extractor = make_rules(
        "{ticket} is closed -> @status(ticket) = closed",
        patterns=[{"type": "ticket", "pattern": r"(?:case|tkt)[ -]?(?P<id>\d+)", "name": "case {id}"}],
    )

    assert await extract_statements("TKT-44 is closed", extractor) == ["holds case 44 @status 'closed'"]


def problem(content: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_rules(content, "rules.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("{person} moved", "pattern -> conclusion"),
        ("{person} moved ->", "add a conclusion after ->"),
        ("{person} (moved -> a(person, person)", "is unbalanced"),
        ("{person moved -> a(person)", "is unbalanced"),
        ("{per son} moved to {city} -> a(city, city)", "a slot is written"),
        ("{person} {city} -> a(person, city)", "matches every sentence"),
        ("{person} met {person} -> met(person, person)", "two slots are called person"),
        ("{person} moved -> lives_in(person, town)", "no slot of the pattern is called town"),
        ('{person} moved -> lives_in(person, "home of {town}": place)', "no slot of the pattern is called town"),
        ('{person} moved -> lives_in(person, " ": place)', "a name in quotes is empty"),
        ('{person} moved -> lives_in(person, "home":)', "is not a conclusion"),
        ("{person} moved -> lives in Berlin", "is not a conclusion"),
        ("{person} moved -> lives_in(person)", "write a relation as"),
        ("{person} moved -> @home(person)", "write an attribute as"),
        ("{person} pays {price:amount} -> pays(person, price)", "is a value, not a name"),
        ("{person} is {x} -> ends alias(person, x)", "cannot end"),
        ("{person} moved -> @home(person) = {x}", "no slot of the pattern is called x"),
        ("{person} " + "moved " * 100 + "-> lives_in(person, person)", "within 500"),
    ],
)
def test_a_wrong_rule_is_named_with_what_is_wrong(rule: str, advice: str) -> None:
    told = problem({"rules": ["{person} quits -> ends works_for(person)", rule]})

    assert "graph_rules" in told
    assert "rules.yaml" in told
    assert "rule 2" in told
    assert advice in told


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"rule": []}, "rule"),
        (["a"], "the file"),
        ({"languages": ["xx"]}, "languages 1"),
        ({"vocabulary": [{"name": "  "}]}, "vocabulary 1 name"),
        ({"relations": [{"name": "a", "sometimes": True}]}, "relations 1 sometimes"),
        ({"rules": [{"when": "{a} b"}]}, "rules 1 then"),
        ({"patterns": [{"type": "a", "pattern": "("}]}, "pattern 1: .*not a regular expression"),
        ({"patterns": [{"type": "a", "pattern": "x*"}]}, "pattern 1: .*matches the empty text"),
        ({"patterns": [{"type": "a", "pattern": "x+?y"}]}, "pattern 1: .*lazy repetition"),
        ({"patterns": [{"type": "a", "pattern": r"(x)\1"}]}, "pattern 1: .*refers back"),
        ({"patterns": [{"type": "a", "pattern": "x", "name": "{y}"}]}, r"pattern 1: .*no group \(\?P<y>"),
    ],
)
def test_a_wrong_file_is_told_with_the_place(content: object, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        parse_rules(content)


def test_a_file_that_cannot_be_read_is_a_matter_of_the_setting(tmp_path: Path) -> None:
    broken = tmp_path / "rules.yaml"
    broken.write_text("rules: [", encoding="utf-8")

    for path in (tmp_path / "missing.yaml", broken, tmp_path):
        with pytest.raises(ConfigError, match="graph_rules"):
            load_rules(path)


# -- ways -----------------------------------------------------------------------------------------


def written(tmp_path: Path, content: object) -> Settings:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return Settings(graph_rules=str(path))


async def test_the_settings_name_the_rules(tmp_path: Path) -> None:
    settings = written(
        tmp_path, {"relations": [{"name": "visits", "functional": True}], "rules": ["{a} saw {b} -> visits(a, b)"]}
    )

    ways = open_ingest_rules(settings, None)

    assert ways.vocabulary.declared("visits").functional
    assert ways.extractor.name == "rules (heuristic)"
    assert not ways.extractor.wants_known
    assert (await ways.extractor.extract(episode("Anna saw Berlin"), Known())).statements[0].type == "visits"


def episode(text: str) -> Episode:
    return Episode(content=text, group_id="g", occurred_at=WEDNESDAY)


def test_relations_that_contradict_each_other_are_told_with_the_file(tmp_path: Path) -> None:
    settings = written(tmp_path, {"relations": [{"name": "a", "inverse": "b"}, {"name": "b"}]})

    with pytest.raises(ConfigError, match=r"graph_rules.*rules\.yaml.*relations"):
        open_ingest_rules(settings, None)


async def test_without_the_library_for_dates_an_episode_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dateparser", None)

    with pytest.raises(UnsupportedError, match=r"sharedmem-hub\[graph\]"):
        await make_rules(languages=["fr", "de"]).extract(episode("Anna moved"), Known())


async def test_an_episode_without_a_time_is_refused() -> None:
    with pytest.raises(InvalidError, match="occurred_at"):
        await DEFAULT_EXTRACTOR.extract(Episode(content="a", group_id="g"), Known())


def example() -> LoadedRules:
    """The file that the page shows."""
    shown, _ = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    return parse_rules(yaml.safe_load(shown), "the page")


async def test_the_rules_that_the_page_shows_work() -> None:
    """docs/graph-rules.md: the example."""
    file = example()

    assert Vocabulary(file.relations).declared("account_manager").functional
    assert await extract_statements("Bob is the account manager for ACME Inc. since March.", file.extractor) == [
        "holds Acme Corp account_manager Bob"
    ]
    assert await extract_statements("Ticket #77 was closed. Ticket 77 is about the Trail 500.", file.extractor) == [
        "holds ticket 77 @status 'closed'",
        "holds ticket 77 concerns Trail 500",
    ]
    assert await extract_statements("Acme pays EUR 49.90", file.extractor) == [
        "holds Acme Corp @monthly_fee '49.90 EUR'"
    ]


WORDS_OF_RULES = r"""
    { } [ ] ( ) | : ; ' " = -> , @ {a} {b:x|thing} moved ends alias is(a, b) @s(a) = 1
"""
PIECES_OF_PATTERNS = r"""
    a b ( ) [ ] { } | * + ? . ^ $ \ - , : < > = ! P 1 2 & ~ (?: (?P<n> (?i) {2,3} \d [^a-z] (?= *+
"""
LINES = st.lists(st.sampled_from(WORDS_OF_RULES.split()), max_size=12)
PATTERNS = st.lists(st.sampled_from(PIECES_OF_PATTERNS.split()), max_size=15)


@settings(max_examples=example_count(100, thorough=300), deadline=None)
@given(st.one_of(LINES.map(" ".join), st.text(max_size=60)), st.one_of(PATTERNS.map("".join), st.text(max_size=30)))
def test_whatever_a_file_says_is_taken_or_refused(line: str, pattern: str) -> None:
    for content in ({"rules": [f"{{a}} moved to {{b}} {line}"]}, {"patterns": [{"type": "a", "pattern": pattern}]}):
        try:
            extractor = parse_rules(content).extractor
        except ConfigError:
            continue
        assert "rules" in repr(extractor)
