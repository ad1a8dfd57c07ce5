"""A service with the console on a real Redis, one for each module of tests, and a page of it in one browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from support.browser import open_browser
from support.console import ConsolePage, ConsoleService, console_page

from sharedmem import Settings
from sharedmem.clock import new_id


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for all views: each page of a test begins anew, with what it keeps by origin."""
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def service(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    """A service whose namespace is the module's own."""
    data_dir: Path = tmp_path_factory.mktemp("data")
    namespace = f"console-{new_id()}"
    settings = Settings(redis_url=redis_url, namespace=namespace, data_dir=data_dir, embedder="hashing")
    with ConsoleService(settings) as running:
        yield running


@pytest.fixture(scope="module")
def tab(browser: Chrome, service: ConsoleService) -> Iterator[Chrome]:
    """The browser, whose last page is left before its service ends: it would ask on for ever."""
    yield browser
    browser.get("about:blank")


@pytest.fixture
def page(tab: Chrome, service: ConsoleService) -> Iterator[ConsolePage]:
    """A page of that service, whose namespace is empty; the browser may complain of nothing."""
    try:
        with console_page(tab, service) as opened:
            yield opened
    finally:
        service.run(service.hub.store(service.namespace).clear())
