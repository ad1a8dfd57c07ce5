"""docs/graph-rules.md: forms, vocabularies and rules find entities and facts offline."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pages import blocks

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError, UnsupportedError
from sharedmem.knowledge.graph.extracting.loading import Loaded, load_rules, loaded, open_ways
from sharedmem.knowledge.graph.extracting.rules import RuleExtractor
from sharedmem.knowledge.graph.extraction import Extraction, Known, Mention, Statement
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.models import UNKNOWN, Episode

WEDNESDAY = datetime(2024, 5, 15, 10, 30, tzinfo=UTC)
PAGE = Path(__file__).resolve().parent.parent / "docs" / "graph-rules.md"
SHIPPED = RuleExtractor()


async def read(text: str | dict[str, Any], extractor: RuleExtractor = SHIPPED, **fields: Any) -> Extraction:
    return await extractor.extract(Episode(content=text, group_id="g", occurred_at=WEDNESDAY, **fields), Known())


async def said(text: str, extractor: RuleExtractor = SHIPPED, **fields: Any) -> list[str]:
    """Statements in short: `holds Anna lives_in Berlin`."""
    return [in_short(statement) for statement in (await read(text, extractor, **fields)).statements]


def in_short(statement: Statement) -> str:
    end = statement.target or repr(statement.value)
    return f"{statement.says} {statement.source} {statement.type} {end}"


def rules(*lines: str | Mapping[str, Any], **fields: Any) -> RuleExtractor:
    return loaded({"rules": lines, "builtin": False, **fields}).extractor


def day(month: int, number: int, year: int = 2024) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("about Order #1234, please", "order 1234", "order"),
        ("my order no. 1234 is late", "order 1234", "order"),
        ("it was #1234.", "order 1234", "order"),
        ("see INV-2024-17", "INV-2024-17", "invoice"),
        ("Ticket #77 is open", "ticket 77", "ticket"),
        ("item AB-1234", "AB-1234", "id"),
        ("write to anna.smith@example.org!", "anna.smith@example.org", "email"),
        ("look at https://example.org/a?b=1.", "https://example.org/a?b=1", "url"),
        ('we read "The Hobbit" twice', "The Hobbit", "title"),
        ("then Anna de Vries called", "Anna de Vries", ""),
        ("I met Anna's boss", "Anna", ""),
        ("with Marks & Spencer today", "Marks & Spencer", ""),
        ("we bought a Trail 500 there", "Trail 500", ""),
    ],
)
async def test_a_name_is_found_by_its_form(text: str, name: str, type_: str) -> None:
    found = {mention.name: mention.type for mention in (await read(text)).mentions}

    assert found.get(name) == type_


async def test_what_a_form_was_written_as_is_another_name() -> None:
    (mention,) = (await read("it is about Order #1234")).mentions

    assert (mention.name, mention.aliases) == ("order 1234", ("Order #1234",))


@pytest.mark.parametrize(
    "text",
    [
        "Shipping was late.",
        "Yesterday it rained. Then it stopped.",
        "Please help. Thanks!",
        "In March it was cold",
        "I",
    ],
)
async def test_a_word_that_only_begins_a_sentence_is_no_name(text: str) -> None:
    assert [mention.name for mention in (await read(text)).mentions] in ([], ["user"])


async def test_a_vocabulary_knows_names_in_any_case_and_by_their_aliases() -> None:
    known = [{"name": "Acme Corp", "type": "company", "aliases": ["acme", "ACME Inc."]}]
    extractor = rules(vocabulary=known)

    found = (await read("the acme inc. office and acme's shop, but not acmes", extractor)).mentions

    assert found == (Mention("Acme Corp", "company", ("acme", "ACME Inc.")),)


async def test_the_longest_name_of_a_vocabulary_counts() -> None:
    extractor = rules(vocabulary=[{"name": "Halo"}, {"name": "Halo 2"}])

    assert [mention.name for mention in (await read("my halo 2 broke", extractor, user="u")).mentions] == [
        "u",
        "Halo 2",
    ]


async def test_i_is_the_user_of_the_episode_and_you_are_when_an_agent_speaks() -> None:
    assert await said("I live in Berlin", user="anna") == ["holds anna lives_in Berlin"]
    assert await said("I live in Berlin") == ["holds user lives_in Berlin"]
    assert await said("I see that you live in Berlin", user="anna", source="agent") == ["holds anna lives_in Berlin"]
    assert await said("You live in Berlin", user="anna", source="user") == []


async def test_a_user_of_the_vocabulary_is_called_as_it_says() -> None:
    extractor = rules(
        "{person} moved to {city} -> lives_in(person, city)",
        vocabulary=[{"name": "Anna Smith", "type": "person", "aliases": ["cust-17"]}],
    )

    assert await said("I moved to Berlin", extractor, user="cust-17") == ["holds Anna Smith lives_in Berlin"]


async def test_data_is_read_as_its_names_and_values() -> None:
    found = await read({"note": "Anna moved to Berlin", "order": {"id": "order #1234"}})

    assert [in_short(statement) for statement in found.statements] == ["holds Anna lives_in Berlin"]
    assert "order 1234" in {mention.name for mention in found.mentions}


# -- the shipped rules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("Anna lives in Berlin.", "holds Anna lives_in Berlin"),
        ("I have just moved to Berlin", "holds user lives_in Berlin"),
        ("Anna doesn't live in Rome anymore.", "ends Anna lives_in Rome"),
        ("Anna works for Acme Corp", "holds Anna works_for Acme Corp"),
        ("I'm working at Acme.", "holds user works_for Acme"),
        ("Anna no longer works for Acme", "ends Anna works_for Acme"),
        ("Anna joined Globex", "holds Anna works_for Globex"),
        ("Anna left Globex", "ends Anna works_for Globex"),
        ("Anna Smith is the new CEO of Initech", "holds Initech has_ceo Anna Smith"),
        ("I'm married to Bob", "holds user married_to Bob"),
        ("My wife Anna called", "holds user married_to Anna"),
        ("Bob and Anna got divorced", "ends Bob married_to Anna"),
        ("Acme is now called Globex GmbH", "holds Acme @name 'Globex GmbH'"),
        ("I ordered a red laptop and it arrived", "holds user ordered red laptop"),
        ("Anna sent back the Trail 500", "holds Anna returned Trail 500"),
        ("The order #1234 was returned", "holds order 1234 @status 'returned'"),
        ("order #1234 has been canceled", "holds order 1234 @status 'cancelled'"),
        ("The Trail 500 costs $1,200.50", "holds Trail 500 @price '1200.50 USD'"),
        ("The price of the Trail 500 rose to 99 EUR", "holds Trail 500 @price '99 EUR'"),
        ("My new email is a@b.org", "holds user @email 'a@b.org'"),
        ("Acme acquired Globex", "holds Acme owns Globex"),
    ],
)
async def test_the_shipped_rules_know_everyday_english(text: str, statement: str) -> None:
    assert statement in await said(text)


@pytest.mark.parametrize(
    "text",
    [
        "Anna has not moved to Berlin",
        "Anna never lived in Berlin",
        "Has Anna moved to Berlin?",
        "If Anna moved to Berlin, we would write",
        "Maybe Anna moved to Berlin",
        "Anna will move to Berlin",
    ],
)
async def test_what_is_denied_asked_or_supposed_is_not_said(text: str) -> None:
    assert await said(text) == []


async def test_who_did_one_thing_did_the_next_one_too() -> None:
    assert await said("Anna left Acme and joined Globex") == ["ends Anna works_for Acme", "holds Anna works_for Globex"]


async def test_a_new_name_is_another_name_of_the_same() -> None:
    found = await read("Acme is now called Globex. Anna works for Globex.")

    names = {mention.name: mention.aliases for mention in found.mentions}
    assert names == {"Acme": ("Globex",), "Anna": ()}
    assert in_short(found.statements[-1]) == "holds Anna works_for Acme"


async def test_rules_say_of_what_type_a_name_is() -> None:
    found = await read("Anna moved to Berlin")

    assert {mention.name: mention.type for mention in found.mentions} == {"Anna": "person", "Berlin": "city"}


# -- dates of a sentence --------------------------------------------------------------------------


async def times(text: str, extractor: RuleExtractor = SHIPPED) -> list[tuple[object, object]]:
    return [(statement.valid_from, statement.valid_to) for statement in (await read(text, extractor)).statements]


async def test_the_dates_of_a_sentence_say_since_when_and_until_when() -> None:
    assert await times("In March Anna finally moved to Berlin") == [(day(3, 1), None)]
    assert await times("Anna lives in Berlin until Friday") == [(None, day(5, 18))]
    assert await times("Anna lived in Rome from June to August 2023") == [(day(6, 1, 2023), day(9, 1, 2023))]
    assert await times("Anna lives in Berlin") == [(None, None)]
    assert await times("I moved, last week, to Berlin") == [(day(5, 6), None)]


async def test_each_date_belongs_to_what_was_said_before_it() -> None:
    found = (await read("Anna joined Globex in 2019 and left Globex in 2021.")).statements

    assert [(each.says, each.valid_from) for each in found] == [("holds", day(1, 1, 2019)), ("ends", day(1, 1, 2021))]


async def test_a_correction_counts_with_the_date_that_is_meant() -> None:
    assert await times("Actually, I moved to Berlin in March, not in May.") == [(day(3, 1), None)]


async def test_a_correction_in_the_next_sentence_changes_the_date() -> None:
    assert await times("Anna left Acme. I moved to Berlin in May. Sorry, it was in March.") == [
        (None, None),
        (day(3, 1), None),
    ]


async def test_a_rule_says_since_when_it_holds_without_a_date() -> None:
    when = "{person} will move to {city}"
    required = rules({"when": when, "then": "lives_in(person, city)", "since": "required"})
    unknown = rules({"when": when, "then": ["lives_in(person, city)"], "since": "unknown"})

    assert await times("Anna will move to Rome", required) == []
    assert await times("Anna will move to Rome in June", required) == [(day(6, 1), None)]
    assert await times("Anna will move to Rome", unknown) == [(UNKNOWN, None)]


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
        ("I am at {place} -> at(me, place)", "I'm at Berlin", "holds user at Berlin"),
        ("my dog is {dog} -> has_dog(me, dog)", "My dog is Rex", "holds user has_dog Rex"),
        ("{me} have {item:thing} -> has(me, item)", "I have my red bike", "holds user has red bike"),
        ("{person}'s dog is {dog} -> has_dog(person, dog)", "Anna's dog is Rex", "holds Anna has_dog Rex"),
        ("{person} quits -> ends works_for(person)", "Anna quits", "ends Anna works_for None"),
    ],
)
async def test_a_rule_of_an_application_is_followed(rule: str, text: str, statement: str) -> None:
    assert await said(text, rules(rule)) == [statement]


async def test_where_a_rule_of_the_application_fits_no_shipped_one_is_looked_for() -> None:
    extractor = loaded({"rules": ["{person} moved to {city} -> visits(person, city)"]}).extractor

    assert await said("Anna moved to Berlin. Bob lives in Rome.", extractor) == [
        "holds Anna visits Berlin",
        "holds Bob lives_in Rome",
    ]


async def test_a_name_with_a_type_fits_only_slots_of_its_type() -> None:
    extractor = rules(
        "{person} visits {city} -> visits(person, city)", vocabulary=[{"name": "Acme", "type": "company"}]
    )

    assert await said("Acme visits Berlin. Anna visits Berlin. order #1234 visits Berlin.", extractor) == [
        "holds Anna visits Berlin"
    ]


async def test_a_form_of_the_application_names_what_it_finds() -> None:
    extractor = rules(
        "{ticket} is closed -> @status(ticket) = closed",
        patterns=[{"type": "ticket", "pattern": r"(?:case|tkt)[ -]?(?P<id>\d+)", "name": "case {id}"}],
    )

    assert await said("TKT-44 is closed", extractor) == ["holds case 44 @status 'closed'"]


def problem(content: object) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(content, "rules.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("{person} moved", "pattern -> conclusion"),
        ("{person} moved ->", "say behind ->"),
        ("{person} (moved -> a(person, person)", "has no partner"),
        ("{person moved -> a(person)", "has no partner"),
        ("{per son} moved to {city} -> a(city, city)", "a slot is written"),
        ("{person} {city} -> a(person, city)", "fits everything"),
        ("{person} met {person} -> met(person, person)", "two slots are called person"),
        ("{person} moved -> lives_in(person, town)", "no slot of the pattern is called town"),
        ("{person} moved -> lives in Berlin", "is no conclusion"),
        ("{person} moved -> lives_in(person)", "a relation is said as"),
        ("{person} moved -> @home(person)", "an attribute is said as"),
        ("{person} pays {price:amount} -> pays(person, price)", "is a value and no name"),
        ("{person} is {x} -> ends alias(person, x)", "does not end"),
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
        ({"patterns": [{"type": "a", "pattern": "("}]}, "pattern 1: .*no regular expression"),
        ({"patterns": [{"type": "a", "pattern": "x*"}]}, "pattern 1: .*finds the empty text"),
        ({"patterns": [{"type": "a", "pattern": "x+?y"}]}, "pattern 1: .*lazy repetition"),
        ({"patterns": [{"type": "a", "pattern": r"(x)\1"}]}, "pattern 1: .*refers back"),
        ({"patterns": [{"type": "a", "pattern": "x", "name": "{y}"}]}, r"pattern 1: .*no group \(\?P<y>"),
    ],
)
def test_a_wrong_file_is_told_with_the_place(content: object, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        loaded(content)


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

    ways = open_ways(settings, None)

    assert ways.vocabulary.declared("visits").functional
    assert ways.extractor.name == "rules (heuristic)"
    assert not ways.extractor.wants_known
    assert (await ways.extractor.extract(episode("Anna saw Berlin"), Known())).statements[0].type == "visits"


def episode(text: str) -> Episode:
    return Episode(content=text, group_id="g", occurred_at=WEDNESDAY)


def test_relations_that_contradict_each_other_are_told_with_the_file(tmp_path: Path) -> None:
    settings = written(tmp_path, {"relations": [{"name": "a", "inverse": "b"}, {"name": "b"}]})

    with pytest.raises(ConfigError, match=r"graph_rules.*rules\.yaml.*relations"):
        open_ways(settings, None)


async def test_without_the_library_for_dates_an_episode_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dateparser", None)

    with pytest.raises(UnsupportedError, match=r"sharedmem-hub\[graph\]"):
        await rules(languages=["fr", "de"]).extract(episode("Anna moved"), Known())


async def test_an_episode_without_a_time_is_refused() -> None:
    with pytest.raises(InvalidError, match="occurred_at"):
        await SHIPPED.extract(Episode(content="a", group_id="g"), Known())


def example() -> Loaded:
    """The file that the page shows."""
    (shown,) = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    return loaded(yaml.safe_load(shown), "the page")


async def test_the_rules_that_the_page_shows_work() -> None:
    """docs/graph-rules.md: the example."""
    file = example()

    assert Vocabulary(file.relations).declared("account_manager").functional
    assert await said("Bob is the account manager for ACME Inc. since March.", file.extractor) == [
        "holds Acme Corp account_manager Bob"
    ]
    assert await said("Ticket #77 was closed. Ticket 77 is about the Trail 500.", file.extractor) == [
        "holds ticket 77 @status 'closed'",
        "holds ticket 77 concerns Trail 500",
    ]
    assert await said("Acme pays EUR 49.90", file.extractor) == ["holds Acme Corp @monthly_fee '49.90 EUR'"]


# -- anything at all ------------------------------------------------------------------------------

HARD = rules(
    "{a:any} [x] [y] (a|b|c d) [z] {b:thing} (e|f) {c:words} g -> r(a, b)",
    patterns=[
        {"type": "one", "pattern": r"(\w+)+!"},
        {"type": "two", "pattern": r"(?:a|a)*b"},
        {"type": "three", "pattern": r"(x+x+)+y"},
    ],
    vocabulary=[{"name": "a b"}, {"name": "a b c"}, {"name": "\u0130stanbul"}],
    builtin=True,
)
WORDS = """
    I Anna moved to Berlin a b c x g ' 's " . , ? ! ; # #1234 order $ 12 , . EUR @ a@b.c e-mail since March until 9999
    is now called my wife and and ordered it \ue000 \uf8ff \u201c \u0130 \u1e9e \u00e9 aaaaaaaaaaaaaaaa xxxxxxxxxxxxxxxx
"""
PIECES = st.lists(st.sampled_from(["\n", *WORDS.split()]), max_size=60)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), PIECES.map(" ".join), PIECES.map("".join)))
async def test_no_text_stops_the_extractor(text: str) -> None:
    found = await read(text or "-", HARD)

    names = {mention.name for mention in found.mentions}
    for statement in found.statements:
        assert statement.source in names
        assert statement.target in {*names, ""}


WORDS_OF_RULES = r"""
    { } [ ] ( ) | : ; ' " = -> , @ {a} {b:x|thing} moved ends alias is(a, b) @s(a) = 1
"""
PIECES_OF_PATTERNS = r"""
    a b ( ) [ ] { } | * + ? . ^ $ \ - , : < > = ! P 1 2 & ~ (?: (?P<n> (?i) {2,3} \d [^a-z] (?= *+
"""
LINES = st.lists(st.sampled_from(WORDS_OF_RULES.split()), max_size=12)
PATTERNS = st.lists(st.sampled_from(PIECES_OF_PATTERNS.split()), max_size=15)


@settings(max_examples=300, deadline=None)
@given(st.one_of(LINES.map(" ".join), st.text(max_size=60)), st.one_of(PATTERNS.map("".join), st.text(max_size=30)))
def test_whatever_a_file_says_is_taken_or_refused(line: str, pattern: str) -> None:
    for content in ({"rules": [f"{{a}} moved to {{b}} {line}"]}, {"patterns": [{"type": "a", "pattern": pattern}]}):
        try:
            extractor = loaded(content).extractor
        except ConfigError:
            continue
        assert "rules" in repr(extractor)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "x" * 50_000 + "!",
        "A " * 50_000,
        "I and " * 20_000,
        '"' * 50_000,
        "1," * 50_000,
        "and a b c " * 9_000,
    ],
)
async def test_a_long_text_is_read_in_part_and_says_so(text: str) -> None:
    found = await read(text, HARD)

    assert found.warnings == ("only the first 20,000 characters were read",)
