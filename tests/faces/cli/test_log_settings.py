"""`log_level`, `log_format` and `log_file`: the log of commands and services."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path

import pytest
from support.shell import Launch, Shell, finish, read_json_line

from sharedmem.client.sync import SharedMemoryClient

pytestmark = pytest.mark.usefixtures("hashing_embedder")
TEXT = "the harbour master owns the tide table"


def lines_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_command_appends_json_lines_with_ids_and_without_texts(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "command.log"
    monkeypatch.setenv("SHAREDMEM_LOG_LEVEL", "INFO")
    monkeypatch.setenv("SHAREDMEM_LOG_FORMAT", "json")
    monkeypatch.setenv("SHAREDMEM_LOG_FILE", str(file))

    added = shell("memories", "add", TEXT)
    shell("memories", "add", TEXT)

    found = {str(line["message"]): line for line in lines_of(file)}
    assert found["memory added"]["memory_id"] == found["memory merged"]["memory_id"] == added.data["id"]
    assert found["memory added"]["namespace"] == shell.namespace
    assert found["memory added"]["level"] == "info"
    assert "latency_ms" in found["memory merged"]
    assert "harbour" not in file.read_text()
    assert added.err == ""


def test_without_a_setting_a_command_logs_nothing(shell: Shell) -> None:
    assert shell("memories", "add", "the crane is broken").err == ""
    assert logging.getLogger("sharedmem").level == logging.NOTSET


def test_a_text_line_shows_what_a_program_would_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_LOG_LEVEL", "info")

    err = shell("memories", "add", "invoices are paid on Fridays").err

    assert " INFO sharedmem.memory: memory added namespace=" in err
    assert f"namespace={shell.namespace!r}" in err


def test_a_file_that_cannot_be_opened_is_refused_with_its_setting(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_LOG_FILE", str(tmp_path / "nowhere" / "a.log"))

    done = shell("memories", "list")

    assert done.code == 9
    assert "log_file" in done.err
    assert "create its folder" in done.err


def test_a_service_writes_its_log_to_the_file_and_loses_no_line_when_it_is_told_to_end(
    launch: Launch, place: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "service.log"
    monkeypatch.setenv("SHAREDMEM_LOG_LEVEL", "INFO")
    monkeypatch.setenv("SHAREDMEM_LOG_FORMAT", "json")
    monkeypatch.setenv("SHAREDMEM_LOG_FILE", str(file))
    service = launch("serve", "rest", "--port", "0", "--actor", "ada", *place)
    with SharedMemoryClient(str(read_json_line(service)["url"])) as client:
        for number in range(20):
            client.call("memory.add", item={"content": f"buoy {number} has a new lamp"})

    # The newest lines still wait to be written together.
    service.send_signal(signal.SIGTERM)

    assert finish(service).err == ""
    assert [line["message"] for line in lines_of(file)].count("memory added") == 20


def test_a_command_does_not_take_the_port_of_the_application(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_METRICS_PORT", "1")  # which only root may listen on

    assert shell("memories", "list").code == 0
