"""The page of a graph, as a browser without a network shows it: its times, its search, its keys, and hostile names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.browser import HOSTILE, OpenPage, browser
from support.graph_drawings import drawing_of_a_move, entity, fact, version

from sharedmem.models import DrawnEpisode, GraphDrawing
from sharedmem.visualization import as_html

__all__ = ["browser"]


class Page(OpenPage):
    """The page of a graph."""

    def __init__(self, browser: Chrome, path: Path, drawing: GraphDrawing) -> None:
        super().__init__(browser, path, as_html(drawing))

    def go(self, time: str, *, step: int) -> None:
        """Move a slider as a hand does."""
        self.run(
            "const range = document.querySelector(`#${arguments[0]} input[type=range]`);"
            "range.value = arguments[1]; range.dispatchEvent(new Event('input'));",
            time,
            step,
        )


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Page:
    """The page of Ada's moves."""
    return Page(browser, tmp_path / "moves.html", drawing_of_a_move())


def test_a_page_opens_without_an_error_and_asks_for_nothing_else(page: Page) -> None:
    assert page.seen(".node") == ["acme", "ada", "oslo", "rome"]
    assert page.one("h1").text == "acme:moves"
    assert page.browser.title == "Graph of acme:moves"
    assert page.one("#counts").text == "3 facts hold, 1 past · 4 entities"
    assert (page.complaints, page.requests) == ([], [])


def test_its_policy_lets_no_other_script_and_no_request_through(page: Page) -> None:
    page.run(
        "const script = document.createElement('script'); script.textContent = 'window.broken = 1';"
        "document.body.append(script);"
        "window.asked = 'waits'; fetch('https://127.0.0.1:1/').catch(() => { window.asked = 'refused'; });"
        "const picture = new Image(); picture.onerror = () => { window.seen = 'refused'; }; picture.src = 'x.png';"
    )
    page.until("return window.asked === 'refused' && window.seen === 'refused'")

    assert page.run("return window.broken") is None
    refused = [entry["message"] for entry in page.complaints]
    assert sum("Content Security Policy" in message for message in refused) >= 3


@pytest.mark.parametrize(
    ("world", "known", "holding", "past"),
    [
        (0, 5, [], []),
        (1, 5, ["f-oslo"], []),
        (2, 5, ["f-acme", "f-oslo"], []),
        (3, 5, ["f-acme", "f-rome"], ["f-oslo"]),
        (4, 5, ["f-acme", "f-rome"], ["f-oslo"]),
        (4, 1, ["f-acme", "f-oslo"], []),
        (4, 0, ["f-oslo"], []),
    ],
)
def test_the_sliders_go_to_any_moment_of_both_times(
    page: Page, world: int, known: int, holding: list[str], past: list[str]
) -> None:
    latest = int(str(page.one("#known-step").get_attribute("max")))
    page.go("world", step=world)
    page.go("known", step=min(known, latest))

    assert (page.seen(".edge.holds"), page.seen(".edge.past")) == (holding, past)
    # The mood holds since an unknown time: it is no edge but it counts.
    assert page.one("#counts").text.startswith(f"{len(holding) + 1} fact")


def test_a_moment_can_be_given_exactly(page: Page) -> None:
    page.run(
        "const exact = document.querySelector('#world .exact'); exact.value = arguments[0];"
        "exact.dispatchEvent(new Event('change'))",
        "2022-04-30T23:59:59",
    )
    assert page.seen(".edge.holds") == ["f-acme", "f-oslo"]
    assert page.one("#world output").text == "2022-04-30 23:59"


def test_past_facts_are_dashed_and_can_be_put_away(page: Page) -> None:
    def dashes(state: str) -> str:
        return page.one(f".edge.{state} .stroke").value_of_css_property("stroke-dasharray")

    assert (dashes("holds"), dashes("past")) == ("none", "5px, 5px")
    page.one("#past").click()
    assert page.seen(".edge.past") == []


def test_time_plays_by_itself_until_its_end(page: Page) -> None:
    # What is shown is noted as it changes: the page may be ahead of the test.
    page.run(
        "const shown = document.querySelector('#world output'), play = document.querySelector('#world .play');"
        "window.shown = []; window.pressed = [];"
        "new MutationObserver(() => window.shown.push(shown.textContent))"
        ".observe(shown, {childList: true, characterData: true, subtree: true});"
        "new MutationObserver(() => window.pressed.push(play.getAttribute('aria-pressed')))"
        ".observe(play, {attributes: true, attributeFilter: ['aria-pressed']})"
    )
    page.one("#world .play").click()

    page.until("return document.querySelector('#world .play').getAttribute('aria-pressed') === 'false'")
    assert page.one("#world output").text == "2024-06-01 (now)"
    assert page.run("return window.shown[0]") == "the beginning"
    assert page.run("return window.pressed") == ["true", "false"]


def test_a_search_lights_up_what_fits_and_enter_goes_there(page: Page) -> None:
    page.press("/")
    page.press("countess")
    assert page.seen(".node.hit") == ["ada"]
    page.press(Keys.ENTER)
    assert page.one("#details h2").text == "Ada"

    page.one("#query").clear()
    page.type("#query", "lives rome")
    assert (page.seen(".edge.hit"), page.seen(".node.hit")) == (["f-rome"], ["ada", "rome"])
    assert page.one("#found").text == "3 found"

    page.press(Keys.ESCAPE)
    assert page.seen(".hit") == []


def test_an_entity_tells_its_facts_and_a_fact_who_says_so(page: Page) -> None:
    page.one(".node[data-id=ada]").click()
    told = page.one("#details").text
    for part in (
        "Ada",
        "person",
        "also Countess",
        "Ada lives in Rome",
        "from 2022-05-01",
        "Ada's mood is calm",
        "PAST",
    ):
        assert part in told
    assert page.seen(".edge.hot") == ["f-acme", "f-oslo", "f-rome"]

    next(
        button for button in page.browser.find_elements(By.CSS_SELECTOR, "#details li button") if "Oslo" in button.text
    ).click()
    told = page.one("#details").text
    assert "is past at these times" in told
    assert "crm\nShe told us all of it." in told
    rows = [row.text for row in page.browser.find_elements(By.CSS_SELECTOR, "#details tbody tr")]
    assert rows == ["2020-01-01 open 2020-02-01 2023-03-01", "2020-01-01 2022-05-01 2023-03-01 now"]
    assert page.one("#details tr.now").text == rows[1]


def test_all_can_be_done_with_keys(page: Page) -> None:
    page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
    visited = set()
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_UP) * 2:
        page.press(key)
        visited.add(page.browser.switch_to.active_element.get_attribute("data-id"))
    assert len(visited) >= 3
    assert len(page.browser.find_elements(By.CSS_SELECTOR, ".node[tabindex='0']")) == 1

    page.press(Keys.ENTER)
    here = page.browser.switch_to.active_element
    assert page.one("#details h2").text.lower() == here.get_attribute("data-id")
    page.press(Keys.ESCAPE)
    assert not page.one("#details").is_displayed()

    before = page.one("#canvas").get_attribute("transform")
    page.press("+")
    assert page.one("#canvas").get_attribute("transform") != before
    page.press("0")
    assert page.one("#canvas").get_attribute("transform") == before

    page.type("#world-step", Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert page.seen(".edge.holds") == ["f-acme", "f-oslo"]
    assert page.one("#world-step").get_attribute("aria-valuetext") == "2021-01-01"
    assert page.complaints == []


def test_the_picture_can_be_pushed_drawn_nearer_and_pulled_apart(page: Page) -> None:
    ada, canvas = page.one(".node[data-id=ada]"), page.one("#canvas")
    ActionChains(page.browser).move_to_element(ada).perform()
    assert page.one("#tip").text == "Ada\nperson"

    place, view = ada.get_attribute("transform"), canvas.get_attribute("transform")
    ActionChains(page.browser).drag_and_drop_by_offset(ada, 80, 40).perform()
    assert ada.get_attribute("transform") != place
    assert canvas.get_attribute("transform") == view
    assert not page.one("#details").is_displayed()

    legend = page.one("#legend")
    ActionChains(page.browser).move_to_element_with_offset(legend, 300, 0).click_and_hold().move_by_offset(
        9, 9
    ).release().perform()
    pushed = canvas.get_attribute("transform")
    assert pushed != view
    page.run(
        "const wheel = new WheelEvent('wheel', {deltaY: -300, clientX: 400, clientY: 400, cancelable: true});"
        "document.querySelector('#picture').dispatchEvent(wheel)"
    )
    assert canvas.get_attribute("transform") != pushed
    assert page.complaints == []


def test_types_can_be_put_away(page: Page) -> None:
    button = page.one("#legend button")
    assert button.text.split() == ["city", "2"]
    button.click()
    assert (page.seen(".node"), page.seen(".edge")) == (["acme", "ada"], ["f-acme"])
    assert button.get_attribute("aria-pressed") == "false"


def test_hostile_names_are_shown_and_do_nothing(browser: Chrome, tmp_path: Path) -> None:
    times = version("2020-01-01", None, "2020-01-01")
    drawing = GraphDrawing(
        group_id=HOSTILE[0],
        drawn_at=datetime(2024, 1, 1, tzinfo=UTC),
        entities=tuple(entity(name, name, name, name) for name in HOSTILE),
        facts=tuple(
            fact(f"{name}!", name, name, other, times, text=name)
            for name, other in zip(HOSTILE, HOSTILE[1:] + HOSTILE[:1], strict=True)
        ),
        episodes=tuple(
            DrawnEpisode(id=id_, text=HOSTILE[0], source=HOSTILE[2], occurred_at=datetime(2020, 1, 1, tzinfo=UTC))
            for id_ in ("e1", HOSTILE[1])
        ),
    )

    page = Page(browser, tmp_path / "hostile.html", drawing)

    assert page.seen(".node") == sorted(HOSTILE)
    assert page.browser.title == f"Graph of {HOSTILE[0]}"
    for name in HOSTILE:
        shape = "[...document.querySelectorAll('.node')].find((node) => node.dataset.id === arguments[0])"
        page.run(f"{shape}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))", name)
        assert page.run("return document.querySelector('#details h2').textContent") == name
        page.run("document.querySelector('#details li button').click()")
        assert HOSTILE[0] in page.run("return document.querySelector('#details').textContent")
    assert page.run(
        "return [window.broken, {}.broken, document.querySelectorAll('img, body script:not([type])').length]"
    ) == [
        None,
        None,
        1,
    ]
    assert (page.complaints, page.requests) == ([], [])


def test_the_ends_of_the_calendar_and_an_empty_graph_can_be_drawn(browser: Chrome, tmp_path: Path) -> None:
    whole = version("0001-01-01", "9999-12-31", "2020-01-01")
    loops = (fact("f", "a", "knows", "a", whole), fact("g", "a", "likes", "a", whole))
    page = Page(browser, tmp_path / "ends.html", drawing_of_a_move(entities=(entity("a", "A"),), facts=loops))
    assert page.seen(".edge.holds") == ["f", "g"]
    page.go("world", step=1)
    assert page.one("#world output").text == "0001-01-01"
    assert page.complaints == []

    empty = Page(browser, tmp_path / "empty.html", drawing_of_a_move(entities=(), facts=(), episodes=()))
    assert empty.one("#counts").text == "0 facts hold, 0 past · 0 entities"
    assert empty.complaints == []


def test_a_hub_with_hundreds_of_facts_is_drawn(browser: Chrome, tmp_path: Path) -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    others = [entity(f"n{number}", f"Node {number}", f"type {number % 14}") for number in range(500)]
    facts = [
        fact(
            f"f{number}",
            "n0",
            "knows",
            f"n{number}",
            version(str((start + timedelta(days=number)).date()), None, "2020-01-01"),
        )
        for number in range(1, 500)
    ]
    page = Page(
        browser, tmp_path / "hub.html", drawing_of_a_move(entities=tuple(others), facts=tuple(facts), truncated=True)
    )

    page.go("world", step=100)

    assert page.one("#counts").text == "100 facts hold, 0 past · 500 entities · only a part of the graph"
    assert page.complaints == []
