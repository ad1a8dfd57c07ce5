"""The page `/docs` in a browser: it shows every operation, and sends calls to the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from support.browser import PATIENCE_S, browser, console_log  # noqa: F401  # a fixture
from support.console import ConsoleService

from sharedmem import Settings
from sharedmem.api.operation import operations
from sharedmem.clock import new_id


@pytest.fixture(scope="module")
def service(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    """A service with tokens whose namespace is the module's own."""
    data_dir: Path = tmp_path_factory.mktemp("data")
    settings = Settings(redis_url=redis_url, namespace=f"docs-{new_id()}", data_dir=data_dir, embedder="none")
    with ConsoleService(settings) as running:
        yield running


@pytest.fixture
def page(browser: Chrome, service: ConsoleService) -> Iterator[Chrome]:  # noqa: F811  # the fixture
    """The page, with its description drawn; the namespace is empty."""
    console_log(browser, "browser")
    browser.get(f"{service.server.url}/docs")
    until(browser, "return document.querySelectorAll('details.operation').length > 0")
    yield browser
    service.run(service.hub.store(service.namespace).clear())


def until(page: Chrome, script: str) -> None:
    WebDriverWait(page, PATIENCE_S).until(lambda driver: driver.execute_script(script))


def open_operation(page: Chrome, name: str) -> None:
    page.find_element(By.CSS_SELECTOR, f"#{name} summary").click()
    until(page, f"return document.querySelector('#{name} .inside') !== null")


def complaints(page: Chrome) -> list[str]:
    """What the browser warns of: a script that failed, or one that the policy stopped."""
    return [str(entry["message"]) for entry in console_log(page, "browser") if entry["level"] != "DEBUG"]


def shown(page: Chrome) -> int:
    count: int = page.execute_script("return document.querySelectorAll('details.operation:not([hidden])').length")
    return count


def test_every_operation_can_be_found_and_opened(page: Chrome) -> None:
    assert shown(page) >= len([row for row in operations().values() if row.http.path])

    page.find_element(By.ID, "find").send_keys("put store/values")
    until(page, "return document.querySelectorAll('details.operation:not([hidden])').length === 1")
    open_operation(page, "value_write")

    opened = page.find_element(By.ID, "value_write").text
    assert "Write a value under a new version." in opened
    assert "If-Match (header)" in opened
    assert "Answer 201" in opened
    assert complaints(page) == []


def test_a_call_is_sent_with_the_token_and_its_answer_is_shown(page: Chrome, service: ConsoleService) -> None:
    page.find_element(By.ID, "token").send_keys(service.tokens["writer"])
    open_operation(page, "value_write")
    page.find_element(By.CSS_SELECTOR, "#value_write button.send").click()
    until(page, "return /^20/.test(document.querySelector('#value_write .answer').textContent)")

    found = service.run(service.store("vera").read("plan"))

    assert found == {"step": 3, "owner": "planner"}
    assert complaints(page) == []


def test_a_record_is_shown_with_its_fields(page: Chrome) -> None:
    open_operation(page, "memory_search")
    page.find_element(By.XPATH, "//*[@id='memory_search']//button[text()='MemoryFilter']").click()

    dialog = page.find_element(By.TAG_NAME, "dialog").text

    assert "user_id" in dialog
    assert complaints(page) == []
