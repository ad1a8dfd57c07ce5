"""docs/glossary.md: each term once, with one meaning, on a page that uses it; other pages use no second name for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
GENERATED = {"api.md", "cli.md"}
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in GENERATED)]
FEWEST_TERMS = 40
LONGEST_MEANING = 2
SECOND_NAMES = {"change stream": "change feed", "shelf": "app", "change log of the namespace": "change feed"}
_ROW = re.compile(
    r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \| "
    r"\[[^]]+\]\((?P<page>[\w-]+\.md)#?(?P<anchor>[\w-]*)\) \|$"
)


class Term(NamedTuple):
    name: str
    meaning: str
    page: Path
    anchor: str


def terms() -> Iterator[Term]:
    for line in GLOSSARY.read_text("utf-8").splitlines():
        if found := _ROW.match(line):
            yield Term(found["term"], found["meaning"], GLOSSARY.parent / found["page"], found["anchor"])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_term_has_one_meaning_of_one_or_two_sentences() -> None:
    found = list(terms())

    assert len(found) >= FEWEST_TERMS
    assert len({term.name for term in found}) == len(found)
    for term in found:
        assert 1 <= len(re.findall(r"\.(?: |$)", term.meaning)) <= LONGEST_MEANING, term


@pytest.mark.parametrize("term", list(terms()), ids=lambda term: term.name)
def test_the_page_of_a_term_explains_it(term: Term) -> None:
    assert not term.anchor or term.anchor in anchors(term.page)
    text = re.sub(r"\s+", " ", term.page.read_text("utf-8")).lower()
    stem = term.name.removesuffix("e") if " " not in term.name else term.name
    assert stem in text, f"{term.page.name} does not use {term.name!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_the_name_of_the_glossary(page: Path) -> None:
    text = re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)", "]", page.read_text("utf-8"))).lower()

    found = {name: term for name, term in SECOND_NAMES.items() if re.search(rf"\b{name}\b", text)}
    assert not found, f"write the second: {found}"
