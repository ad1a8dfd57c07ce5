"""Pages, docstrings, help texts and errors use plain words, not phrases that readers had to decode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")]
FOLDERS = ("sharedmem", "lua", "examples", "tools", "benchmarks", "packages")
SOURCES = [
    file for folder in FOLDERS for ending in ("py", "lua", "proto") for file in (ROOT / folder).rglob(f"*.{ending}")
]
# `is None` is Python; "is none" was ours for "is invalid".
PHRASES = re.compile(
    r"\b(?:(?:is|are) none|[Ww]hoever|(?:is|are) told|[Oo]f whom|stands? on|lends?|go(?:es)? by)\b(?! default)"
)
# Words of the language that rules look for in texts.
WORD_LISTS = {
    "sharedmem/graph/extraction/builtin_rules.py",
    "sharedmem/graph/extraction/entity_spans.py",
    "sharedmem/text/contradictions.py",
}


def phrases(file: Path) -> list[str]:
    text = re.sub(r"\s+", " ", file.read_text("utf-8"))
    return [text[max(found.start() - 40, 0) : found.end() + 20] for found in PHRASES.finditer(text)]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_phrase_that_must_be_decoded(page: Path) -> None:
    assert phrases(page) == []


def test_no_source_file_has_one() -> None:
    found = {
        name: each
        for file in SOURCES
        if (name := file.relative_to(ROOT).as_posix()) not in WORD_LISTS and (each := phrases(file))
    }

    assert found == {}
