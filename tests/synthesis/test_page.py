"""How a chain is drawn: as Mermaid, as DOT, and as a page that a browser without a network shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.browser import HOSTILE, OpenPage, browser
from support.note_chains import chain_of_two_consolidations, make_chain_note, make_retired_note

from sharedmem import InvalidError
from sharedmem.models import Note
from sharedmem.visualization import chain_as_html, draw_chain

__all__ = ["browser"]


class Page(OpenPage):
    """The page of a chain."""

    def __init__(self, browser: Chrome, folder: Path, notes: tuple[Note, ...]) -> None:
        super().__init__(browser, folder / "chain.html", chain_as_html(notes))

    @property
    def told(self) -> str:
        return self.one("#reader").text

    def go(self, version: int) -> None:
        """Move the slider as a hand does."""
        script = "const range = document.querySelector('#version'); range.value = arguments[0];"
        self.run(f"{script} range.dispatchEvent(new Event('input'));", version)


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Page:
    """The page of a chain of five notes."""
    return Page(browser, tmp_path, chain_of_two_consolidations())


def test_a_chain_is_drawn_for_mermaid_with_its_statuses_and_ways() -> None:
    text = draw_chain(chain_of_two_consolidations()).text

    assert text.splitlines()[:2] == ["flowchart LR", '    n0["a<br/>updated, 2026-01-02<br/>text of a"]:::updated']
    assert [line.split() for line in text.splitlines() if "-->" in line] == [
        ["n0", '-->|"consolidated"|', "n2"],
        ["n1", '-->|"consolidated"|', "n2"],
        ["n2", '-->|"consolidated"|', "n4"],
        ["n3", '-->|"contradicted"|', "n4"],
    ]
    assert re.findall(r"classDef (\w+)", text) == ["updated", "deleted", "active"]


def test_a_chain_is_drawn_for_graphviz_and_doubtful_steps_are_dashed() -> None:
    text = draw_chain(
        (make_retired_note("a", "b"), make_chain_note("b", day=1), make_chain_note("c", day=2, sources=("b",))), "dot"
    ).text

    assert text.startswith("digraph evolution {")
    assert text.endswith("}\n")
    assert '    n0 -> n1 [label="consolidated", style=dashed];' in text
    assert '    n1 -> n2 [label="source", style=dashed];' in text


@pytest.mark.parametrize("format_", ["mermaid", "dot"])
def test_no_text_of_a_note_gets_out_of_its_label(format_: str) -> None:
    notes = [make_chain_note(f"n{place}", says=name) for place, name in enumerate((*HOSTILE, 'a"];\n x --> y', "\\N"))]

    graph = draw_chain(notes, format_)  # type: ignore[arg-type]  # one of the two

    plain, spoken = draw_chain([make_chain_note(one.id) for one in notes], format_), graph.text  # type: ignore[arg-type]  # likewise
    assert spoken.count("\n") == plain.text.count("\n")
    assert "<script" not in spoken or format_ == "dot"
    labels = re.findall(r'\["(.*)"\]:::' if format_ == "mermaid" else r'\[label="((?:[^"\\]|\\.)*)", color', spoken)
    assert len(labels) == len(notes)


def test_another_format_is_refused() -> None:
    with pytest.raises(InvalidError, match="mermaid, dot, html"):
        draw_chain(chain_of_two_consolidations(), "svg")  # type: ignore[arg-type]  # what is tested


def test_the_page_shows_the_newest_note_and_asks_for_nothing_else(page: Page) -> None:
    assert page.seen(".note") == ["a", "b", "c", "s1", "s2"]
    assert (page.browser.title, page.one("#counts").text) == ("Memory s2", "5 versions")
    assert page.one("#legend").text.split("\n") == ["active 1", "updated 3", "deleted 1"]
    assert page.seen(".note.chosen") == ["s2"]
    for part in ("active · consolidated", "text of s2", "CAME FROM", "text of c", "text of s1"):
        assert part in page.told
    assert (page.complaints, page.requests) == ([], [])


def test_a_click_reads_a_note_and_the_slider_goes_back_in_time(page: Page) -> None:
    page.one(".note[data-id=c]").click()
    assert "deleted · contradicted" in page.told
    assert "message of c" in page.told
    assert page.one("#shown").text == "4 of 5 · 2026-01-05 00:00"

    page.go(2)
    assert page.seen(".note.later") == ["c", "s2"]
    assert "text of s1" in page.told

    page.browser.find_element(By.CSS_SELECTOR, "#told li button").click()
    assert page.seen(".note.chosen") == ["s2"]
    assert page.seen(".note.later") == []

    page.one("#fit").click()
    before = page.one("#canvas").get_attribute("transform")
    page.one("#nearer").click()
    assert page.one("#canvas").get_attribute("transform") != before
    assert page.complaints == []


def test_all_can_be_done_with_keys(page: Page) -> None:
    page.press(Keys.ESCAPE)
    assert not page.one("#reader").is_displayed()
    page.run("document.querySelector('.note[tabindex=\"0\"]').focus()")
    page.press(Keys.ARROW_LEFT)
    page.press(Keys.ENTER)
    here = page.browser.switch_to.active_element.get_attribute("data-id")
    assert here in {"c", "s1"}
    assert page.seen(".note.chosen") == [here]

    before = page.one("#canvas").get_attribute("transform")
    page.press("+")
    assert page.one("#canvas").get_attribute("transform") != before
    page.press("0")
    page.type("#version", Keys.HOME)
    assert page.seen(".note.later") == ["b", "c", "s1", "s2"]
    assert page.complaints == []


def test_hostile_texts_are_shown_and_do_nothing(browser: Chrome, tmp_path: Path) -> None:
    notes = tuple(
        make_chain_note(
            text, day=day, says=text, user_id=text, tags=(text,), sources=(HOSTILE[day - 1],) if day else ()
        )
        for day, text in enumerate(HOSTILE)
    )

    page = Page(browser, tmp_path, notes)

    assert page.seen(".note") == sorted(HOSTILE)
    for place, text in enumerate(HOSTILE):
        page.go(place)
        assert page.run("return document.querySelector('#told h2').textContent") == text
        assert page.run("return document.querySelector('#told .text').textContent") == text
    look = "return [window.broken, {}.broken, document.querySelectorAll('img, body script:not([type])').length]"
    assert page.run(look) == [None, None, 1]
    assert (page.complaints, page.requests) == ([], [])


def test_a_damaged_chain_and_one_without_notes_are_drawn_too(browser: Chrome, tmp_path: Path) -> None:
    ring = (
        make_retired_note("a", "b", sources=("b",)),
        make_retired_note("b", "a", sources=("a",)),
        make_chain_note("c", sources=("gone", "a")),
    )
    page = Page(browser, tmp_path, ring)
    assert page.seen(".note") == ["a", "b", "c"]
    assert page.complaints == []

    empty = Page(browser, tmp_path, ())
    assert empty.one("#counts").text == "0 versions"
    assert empty.complaints == []
