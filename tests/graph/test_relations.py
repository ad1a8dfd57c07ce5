"""The vocabulary of relations: spelling, direction, and which claims may contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.errors import InvalidError
from sharedmem.graph.relations import BUILTIN_RELATIONS, LONGEST_TYPE, Vocabulary
from sharedmem.models import RelationType


@pytest.fixture
def words() -> Vocabulary:
    return Vocabulary()


# -- spelling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "normal"),
    [
        ("lives_in", "lives_in"),
        ("Lives In", "lives_in"),
        ("livesIn", "lives_in"),
        ("lives-in", "lives_in"),
        ("LIVES_IN", "lives_in"),
        ("  lives \t in.", "lives_in"),
        ("__lives__in__", "lives_in"),
        ("hasCEO", "has_ceo"),
        ("tier2Customer", "tier2_customer"),
        ("\uff4c\uff49\uff56\uff45\uff53\uff3f\uff49\uff4e", "lives_in"),
        ("wohnt in Stra\u00dfe", "wohnt_in_strasse"),
        ("\u0436\u0438\u0432\u0451\u0442 \u0412", "\u0436\u0438\u0432\u0451\u0442_\u0432"),
        ("\u4f4f\u5728", "\u4f4f\u5728"),
        ("\u0915\u093e\u092e \u0915\u0930\u0924\u093e", "\u0915\u093e\u092e_\u0915\u0930\u0924\u093e"),
        ("@tier", "@tier"),
        ("@ Customer Tier", "@customer_tier"),
        ("@customerTier", "@customer_tier"),
        ("mail@home", "mail_home"),
        ("a>b<c", "a_b_c"),
    ],
)
def test_a_type_is_the_same_however_it_is_spelled(words: Vocabulary, spelled: str, normal: str) -> None:
    assert words.normal(spelled) == normal


@pytest.mark.parametrize("spelled", ["", "   ", "@", "@ - ", "->", "\U0001f600", "\x00", "\ud800"])
def test_a_type_without_a_letter_is_refused_with_advice(words: Vocabulary, spelled: str) -> None:
    with pytest.raises(InvalidError, match="use a letter or digit"):
        words.normal(spelled)


def test_a_type_is_neither_endless_nor_something_else(words: Vocabulary) -> None:
    with pytest.raises(InvalidError, match=f"within {LONGEST_TYPE} characters"):
        words.normal("x" * (LONGEST_TYPE + 1))
    with pytest.raises(InvalidError, match="the name of a relation"):
        words.normal(7)  # type: ignore[arg-type]  # what callers without types may give


@given(st.text(max_size=40))
def test_a_normal_type_is_its_own_normal_spelling(text: str) -> None:
    words = Vocabulary()
    try:
        normal = words.normal(text)
    except InvalidError:
        return

    assert words.normal(normal) == normal
    assert not set("<>= ") & set(normal)


# -- what is declared -----------------------------------------------------------------------------


def test_lives_in_is_shipped_as_functional(words: Vocabulary) -> None:
    assert words.declared("lives_in").functional


def test_every_shipped_type_has_a_name_of_its_own(words: Vocabulary) -> None:
    assert words.names() == tuple(sorted(type_.name for type_ in BUILTIN_RELATIONS))


def test_the_name_of_an_inverse_leads_to_the_type_that_is_kept(words: Vocabulary) -> None:
    assert words.declared("employs").name == "works_for"


def test_an_undeclared_relation_may_have_many_values_but_an_attribute_has_one(words: Vocabulary) -> None:
    assert words.declared("likes") == RelationType(name="likes")
    assert words.declared("@tier") == RelationType(name="@tier", functional=True)


def test_an_application_replaces_what_is_shipped_under_the_same_name() -> None:
    words = Vocabulary([RelationType(name="Lives In", inverse="houses")])

    assert words.declared("lives_in") == RelationType(name="lives_in", inverse="houses")
    assert words.canonical("houses", "rome", "anna") == ("lives_in", "anna", "rome")


def test_an_application_may_keep_a_shipped_relation_the_other_way_round() -> None:
    words = Vocabulary([RelationType(name="employs", inverse="works_for")])

    assert words.canonical("works_for", "anna", "acme") == ("employs", "acme", "anna")
    assert "works_for" not in words.names()


def test_an_application_that_takes_the_name_of_an_inverse_leaves_the_rest_of_the_shipped_type() -> None:
    words = Vocabulary([RelationType(name="employs")])

    assert words.canonical("employs", "acme", "anna") == ("employs", "acme", "anna")
    assert words.declared("works_for") == RelationType(name="works_for")


def test_the_same_declared_twice_is_declared() -> None:
    words = Vocabulary([RelationType(name="leads", functional=True)] * 2)

    assert words.declared("leads").functional


def test_an_application_may_let_an_attribute_have_many_values() -> None:
    words = Vocabulary([RelationType(name="@email")])

    assert words.lines("@email", "anna", "", '"a@x"') != words.lines("@email", "anna", "", '"b@x"')


@pytest.mark.parametrize(
    ("types", "complaint"),
    [
        ([RelationType(name=" ")], "use a letter"),
        ([RelationType(name="a", inverse="!")], "use a letter"),
        ([RelationType(name="a", functional=True), RelationType(name="A")], "declared twice"),
        ([RelationType(name="a", inverse="A")], "its own inverse"),
        ([RelationType(name="a", inverse="b"), RelationType(name="b", inverse="a")], "declared too"),
        ([RelationType(name="a", inverse="b"), RelationType(name="b")], "declared too"),
        ([RelationType(name="a", inverse="c"), RelationType(name="b", inverse="c")], "is the inverse of 'a'"),
        ([RelationType(name="a", symmetric=True, inverse="b")], "it is symmetric"),
        ([RelationType(name="@a", symmetric=True)], "no other end"),
        ([RelationType(name="@a", inverse="b")], "no other end"),
        ([RelationType(name="@a", inverse_functional=True)], "no other end"),
        ([RelationType(name="a", inverse="@b")], "cannot be the inverse"),
    ],
)
def test_declarations_that_contradict_each_other_are_refused(types: list[RelationType], complaint: str) -> None:
    with pytest.raises(InvalidError, match=complaint):
        Vocabulary(types)


# -- direction ------------------------------------------------------------------------------------


def test_a_relation_told_from_the_other_end_is_turned_around(words: Vocabulary) -> None:
    assert words.canonical("employs", "acme", "anna") == ("works_for", "anna", "acme")
    assert words.canonical("works_for", "anna", "acme") == ("works_for", "anna", "acme")


def test_a_symmetric_relation_is_the_same_from_both_ends(words: Vocabulary) -> None:
    assert words.canonical("knows", "zoe", "anna") == words.canonical("knows", "anna", "zoe")
    assert words.canonical("knows", "anna", "anna") == ("knows", "anna", "anna")


def test_a_symmetric_relation_without_a_target_stays_with_its_source(words: Vocabulary) -> None:
    assert words.canonical("married_to", "zoe", "") == ("married_to", "zoe", "")


def test_an_inverse_without_a_target_has_no_source(words: Vocabulary) -> None:
    assert words.canonical("employs", "acme", "") == ("works_for", "", "acme")


# -- lines ----------------------------------------------------------------------------------------


@pytest.fixture
def rules() -> Vocabulary:
    return Vocabulary(
        [
            RelationType(name="sits_on", functional=True, inverse_functional=True),
            RelationType(name="leads", inverse_functional=True),
        ]
    )


@pytest.mark.parametrize(
    ("sentence", "claim", "lines"),
    [
        ("of many to many each pair has its own", ("likes", "anna", "tea"), ("anna>likes>tea",)),
        ("of one target the source has one", ("lives_in", "anna", "rome"), ("anna>lives_in",)),
        ("of one source the target has one", ("leads", "anna", "acme"), ("acme<leads",)),
        ("of one to one both ends have one", ("sits_on", "anna", "chair"), ("anna>sits_on", "chair<sits_on")),
        ("of one to one with itself they are two still", ("sits_on", "x", "x"), ("x>sits_on", "x<sits_on")),
        ("of a marriage each end has one", ("married_to", "anna", "bob"), ("anna>married_to", "bob>married_to")),
        ("of a marriage with oneself there is one", ("married_to", "anna", "anna"), ("anna>married_to",)),
        ("of a symmetric relation each pair has its own", ("knows", "anna", "bob"), ("anna>knows>bob",)),
        ("of an attribute the source has one", ("@tier", "anna", ""), ("anna>@tier",)),
        ("whatever holds of one target is ended in it", ("lives_in", "anna", ""), ("anna>lives_in",)),
        ("whatever holds of one source is ended in it", ("leads", "", "acme"), ("acme<leads",)),
        ("whatever holds of one to one is ended at the end that is named", ("sits_on", "anna", ""), ("anna>sits_on",)),
        ("whatever marriage holds is ended at the end that is named", ("married_to", "zoe", ""), ("zoe>married_to",)),
        ("which of many ended cannot be told", ("likes", "anna", ""), ()),
        ("which of many sources ended cannot be told", ("leads", "anna", ""), ()),
        ("whom one does not know any more cannot be told", ("knows", "anna", ""), ()),
        ("from which place a person moved is unknown without them", ("lives_in", "", "rome"), ()),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_claim_stands_in_the_lines_of_what_it_may_contradict(
    rules: Vocabulary, sentence: str, claim: tuple[str, str, str], lines: tuple[str, ...]
) -> None:
    assert rules.lines(*claim) == lines


def test_an_attribute_stands_in_one_line_whatever_its_value(rules: Vocabulary) -> None:
    assert rules.lines("@tier", "anna", "", '"gold"') == rules.lines("@tier", "anna", "", '"silver"')


# -- sentences ------------------------------------------------------------------------------------


def test_a_relation_reads_as_a_sentence(words: Vocabulary) -> None:
    assert words.sentence("Anna", "lives_in", "Rome") == "Anna lives in Rome"
    assert words.sentence("Anna", "@customer_tier", "gold") == "Anna: customer tier is gold"
    assert words.sentence("Anna", "lives_in", "") == "Anna lives in"
