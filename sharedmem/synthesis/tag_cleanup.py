"""Clean tags and keywords: drop those without content and near-duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from sharedmem.errors import UnsupportedError
from sharedmem.synthesis import schemas
from sharedmem.text.analysis import fold, normalize_text

try:
    from rapidfuzz import fuzz
except ImportError:
    _is_installed = False  # the sync API imports this module without using notes
else:
    _is_installed = True

DUPLICATE_FROM = 75.0
"""Likeness, of 100, from which two items are the same."""

_KEPT_CATEGORIES = frozenset("LNM")
"""First letters of the Unicode categories of letters, digits and marks."""
_AS_BLANK = frozenset({"Pd", "Pc"})
"""Hyphens, dashes and underscores."""
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors: the only remainder of some emoji."""
_DIGIT = re.compile(r"\d")
_NOTHING = re.compile(r"\W*(?:n\s*[/\\]\s*a|n\.\s*a\b|not[\s-]applicable|not[\s-]available)\W*")


def check_fuzzy_matching() -> None:
    """Reject a comparison of tags without the library for it; called before synthesis is opened.

    Raises:
        UnsupportedError: rapidfuzz is not installed.
    """
    if not _is_installed:
        raise UnsupportedError("synthesis", "pip install 'sharedmem-hub[synthesis]'")


def normalize_item(text: str) -> str:
    """Return a text for comparison: letters, digits and marks of every script in lower case, and single blanks.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Fuzzy Deduplication. Its rule keeps `a-z0-9` and
    so removes every other script; this one keeps letters, digits and marks of all scripts.
    """
    words = " ".join("".join(map(_normalize_letter, fold(_VARIATION.sub("", text)))).split())
    return words if any(map(str.isalnum, words)) else ""


def deduplicate(items: Iterable[str], threshold: float = DUPLICATE_FROM) -> tuple[str, ...]:
    """Return the items without near-duplicates of earlier ones, in their order.

    A near-duplicate has a token sort ratio from the threshold on, of the normalised texts: words in any order, and so
    many per cent of equal letters. An item without letters and digits (an emoji) is compared unchanged.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Fuzzy Deduplication. Compares each with each: it
    is meant for a few dozen items.

    Args:
        items: blank ones are dropped.
        threshold: 0 to 100.
    """
    kept: list[str] = []
    forms: list[str] = []
    signs: set[str] = set()
    for item in items:
        form, sign = normalize_item(item), item.casefold().strip()
        if form:
            if any(fuzz.token_sort_ratio(form, other, score_cutoff=threshold) >= threshold for other in forms):
                continue
            forms.append(form)
        elif not sign or sign in signs:
            continue
        else:
            signs.add(sign)
        kept.append(item)
    return tuple(kept)


def merge_items(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items of several notes in their order: near-duplicates once, but every item with a number.

    `deduplicate` would drop one of two orders, versions or years whose numbers differ in one digit.

    Args:
        items: blank ones are dropped.
    """
    distinct: dict[str, str] = {}
    for item in clean_items(items):
        distinct.setdefault(item.casefold(), item)
    alike = frozenset(deduplicate(item for item in distinct.values() if not _DIGIT.search(item)))
    return tuple(item for item in distinct.values() if item in alike or _DIGIT.search(item))


def clean_items(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items with content, without surrounding blanks."""
    return tuple(item.strip() for item in items if has_content(item))


def has_content(text: str) -> bool:
    """Return whether a text has content: not blank, and not a word for nothing such as `N/A`."""
    return schemas.has_words(text) and not _NOTHING.fullmatch(normalize_text(text))


def _normalize_letter(letter: str) -> str:
    category = unicodedata.category(letter)
    if category in _AS_BLANK or letter.isspace():
        return " "
    return letter if category[0] in _KEPT_CATEGORIES else ""
