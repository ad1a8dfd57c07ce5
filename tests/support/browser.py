"""Pages in Chromium without a window, and names that try to break out of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.command import Command
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

HOSTILE = (
    "</script><script>window.broken = 1</script>",
    "<!--<script>",
    "\"><img src=x onerror='window.broken = 1'>",
    "javascript:window.broken=1",
    "' onload='window.broken = 1",
    "]]></svg><svg onload=window.broken=1>",
    "line one\nline two\u2028three",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "👩‍🚀 emoji ${window.broken = 1} {{broken}}",
    "$script $data \\u003c &lt; &amp;",
    "__proto__",
    "constructor",
)
WINDOW = (1200, 800)
PATIENCE_S = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium without a window; in CI it must be there."""
    with open_browser(tmp_path_factory.mktemp("profile"), logs=("browser", "performance")) as driver:
        yield driver


@contextmanager
def open_browser(profile: Path, *, logs: tuple[str, ...] = ("browser",)) -> Iterator[Chrome]:
    """Chromium without a window; where there is none the test is skipped, or fails in CI.

    Args:
        profile: a folder for what it keeps.
        logs: what it writes down; every request, as `performance` has them, costs a tenth of the time of a test.
    """
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        message = "chromium and chromium-driver are not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    options = ChromeOptions()
    options.binary_location = str(found[0])
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"),
        *("disable-component-update", "disable-sync", "disable-dev-shm-usage", "force-prefers-reduced-motion"),
        *(f"user-data-dir={profile}", f"window-size={WINDOW[0]},{WINDOW[1]}"),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    driver = Chrome(options=options, service=Service(executable_path=str(found[1])))
    try:
        yield driver
    finally:
        driver.quit()


def console_log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """What the browser has written into one of its logs since the last look."""
    found: list[dict[str, Any]] = browser.execute(Command.GET_LOG, {"type": kind})["value"]
    return found


class OpenPage:
    """A page in the browser, as its reader uses it.

    Args:
        browser: shows it.
        path: where it is written to.
        html: the page.
    """

    def __init__(self, browser: Chrome, path: Path, html: str) -> None:
        path.write_text(html, encoding="utf-8")
        self.browser = browser
        console_log(browser, "browser")
        console_log(browser, "performance")
        browser.get(path.as_uri())
        self.until("return document.documentElement.dataset.ready === 'true'")

    def until(self, script: str) -> None:
        WebDriverWait(self.browser, PATIENCE_S, poll_frequency=0.05).until(lambda _: self.run(script))

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def one(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def seen(self, selector: str) -> list[str]:
        """Ids of the shapes that can be seen."""
        shapes = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return sorted(str(shape.get_attribute("data-id")) for shape in shapes if shape.is_displayed())

    def type(self, selector: str, *keys: str) -> None:
        self.one(selector).send_keys(*keys)

    def press(self, *keys: str) -> None:
        self.browser.switch_to.active_element.send_keys(*keys)

    @property
    def complaints(self) -> list[dict[str, Any]]:
        return [entry for entry in console_log(self.browser, "browser") if entry["level"] in {"SEVERE", "WARNING"}]

    @property
    def requests(self) -> list[str]:
        """What the page asked for besides itself."""
        here = self.browser.current_url
        told = [json.loads(entry["message"])["message"] for entry in console_log(self.browser, "performance")]
        # The browser's own first page is still busy by itself.
        asked = [one["params"] for one in told if one["method"] == "Network.requestWillBeSent"]
        urls = [str(one["request"]["url"]) for one in asked if one["documentURL"] == here]
        assert here in urls
        return [url for url in urls if url != here and not url.startswith("data:")]
