"""docs/api/: it describes every public class, and every public method of what a hub and a store lead to."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from functools import cached_property
from pathlib import Path

import pytest

import sharedmem
from sharedmem.cache import SemanticCache
from sharedmem.client import SharedMemoryClient
from sharedmem.conversations.conversations import Conversations
from sharedmem.decisions.decisions import Decisions
from sharedmem.episodes import Episodes
from sharedmem.graph.graph import Graph
from sharedmem.memory.memories import Memories
from sharedmem.synthesis.synthesis import Synthesis

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "api").glob("*.md"))
TEXTS = {page: re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL) for page in PAGES}
HEADINGS = {heading for text in TEXTS.values() for heading in re.findall(r"^#+ `?(.+?)`?$", text, re.MULTILINE)}
FACETS = (Memories, SemanticCache, Graph, Synthesis, Decisions, Episodes, Conversations)
PUBLIC_CLASSES = [sharedmem.Hub, sharedmem.SharedMemoryStore, SharedMemoryClient, *FACETS]


def public_methods(cls: type) -> set[str]:
    ours = (base for base in cls.__mro__ if base.__module__.startswith("sharedmem"))
    kinds = (property, cached_property, classmethod, staticmethod)
    return {
        f"{cls.__name__}.{name}"
        for base in ours
        for name, thing in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, kinds))
    }


def anchors(text: str) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_method_has_a_section(cls: type) -> None:
    assert cls.__name__ in HEADINGS
    assert public_methods(cls) - HEADINGS == set()


def test_the_facets_of_a_store_are_those_of_this_test() -> None:
    members = vars(sharedmem.SharedMemoryStore).items()
    facets = {name for name, thing in members if isinstance(thing, cached_property) and not name.startswith("_")}

    assert facets == {
        "memory",
        "cache",
        "graph",
        "synthesis",
        "decisions",
        "durable",
        "episodes",
        "conversations",
        "shared",
    }


def test_every_public_name_is_described() -> None:
    errors = TEXTS[DOCS / "api" / "errors.md"]
    described = HEADINGS | set(re.findall(r"^\| `(\w+)` \|", errors, re.MULTILINE))
    choices = set(re.findall(r"^\| `(\w+)` \|", TEXTS[DOCS / "api" / "records.md"], re.MULTILINE))

    assert set(sharedmem.__all__) - described - choices == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_link_of_the_contents_leads_to_one_section(page: Path) -> None:
    found = Counter(anchors(TEXTS[page]))
    linked = set(re.findall(r"\]\(#([\w-]+)\)", TEXTS[page]))

    assert {anchor: found[anchor] for anchor in linked if found[anchor] != 1} == {}


def test_the_page_of_contents_links_every_page() -> None:
    assert set(re.findall(r"\]\(api/(\w+\.md)\)", (DOCS / "api.md").read_text("utf-8"))) == {
        page.name for page in PAGES
    }
