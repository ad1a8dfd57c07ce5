"""README, the pages of docs/ and the READMEs of examples use plain words, not phrases that readers had to decode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The words of these two come from docstrings and helps.
GENERATED = {ROOT / "docs" / "cli.md", *(ROOT / "docs" / "api").glob("*.md")}
PAGES = [
    page
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")]
    if page not in GENERATED
]
# `is None` is Python; "is none" was ours for "is invalid".
PHRASES = re.compile(
    r"\b(?:(?:is|are) none|[Ww]hoever|(?:is|are) told|[Oo]f whom|stands? on|lends?|go(?:es)? by)\b(?! default)"
)


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_phrase_that_must_be_decoded(page: Path) -> None:
    text = re.sub(r"\s+", " ", page.read_text("utf-8"))

    assert [text[max(found.start() - 40, 0) : found.end() + 20] for found in PHRASES.finditer(text)] == []
