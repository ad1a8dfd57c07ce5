"""`metrics_port`: a hub serves the metrics of its process."""

from __future__ import annotations

import asyncio
import socket
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sharedmem import ConfigError, Settings, UsageError
from sharedmem.testing import fake_hub


async def fetch(url: str) -> str:
    def fetched() -> str:
        with urlopen(url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return str(answer.read().decode())

    return await asyncio.to_thread(fetched)


async def test_an_application_serves_what_its_hub_did() -> None:
    async with fake_hub(settings=Settings(metrics_port=0)) as hub:
        await hub.store("research").memory.add("The lease of the office ends in May")
        url = hub.metrics_url
        assert url is not None
        text = await fetch(url)
        with pytest.raises(HTTPError) as refused:
            await fetch(url.removesuffix("/metrics"))

    assert url.startswith("http://127.0.0.1:")
    assert 'sharedmem_operation_seconds_count{operation="memory.add"} 1' in text
    assert 'sharedmem_memory_additions_total{outcome="added"} 1' in text
    assert refused.value.code == 404
    refused.value.close()
    with pytest.raises(OSError, match="refused"):
        await fetch(url)


async def test_the_variable_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_METRICS_PORT", "0")
    async with fake_hub(settings=Settings.load()) as hub:
        assert hub.metrics_url is not None


async def test_without_the_setting_nothing_is_served() -> None:
    async with fake_hub() as hub:
        assert hub.metrics_url is None
    with pytest.raises(UsageError):
        _ = hub.metrics_url


async def test_a_port_that_is_taken_is_refused_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be listened on.*a port of its own") as caught:
            async with fake_hub(settings=Settings(metrics_port=port)):
                pass

    assert caught.value.field == "metrics_port"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("metrics_port", "70000", "less than or equal to 65535"),
        ("metrics_port", "-1", "greater than or equal to 0"),
        ("metrics_port", "http", "integer"),
        ("metrics_host", "http://here", "address of this machine"),
        ("metrics_host", "[::1]", "address of this machine"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("log_format", "xml", "'text' or 'json'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_its_place(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Settings.load(environment={f"SHAREDMEM_{name.upper()}": value})

    assert caught.value.field == name
    assert caught.value.origin == f"environment SHAREDMEM_{name.upper()}"
