"""The command line in processes of its own: live feeds, signals, terminals, redis-cli, completion."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.shell import Launch, Shell, finish, on_a_terminal, read_json_line, several_on_a_terminal, start
from typer.testing import CliRunner

from sharedmem.config import Settings
from sharedmem.embedded.server import status
from sharedmem.faces.cli import run
from sharedmem.faces.cli.app import MODULE_OF, app, load_commands
from sharedmem.faces.cli.data import split_keys
from sharedmem.faces.cli.output import escape_control, format_age, format_duration, format_size
from sharedmem.faces.cli.server import connection_options, format_reply, raw_reply
from sharedmem.redis.address import parse_address
from sharedmem.redis.replies import Reply, ServerError

# Feeds


def test_messages_come_to_subscribers(shell: Shell, place: tuple[str, ...], launch: Launch) -> None:
    assert shell("publish", "news", "nobody hears this").data == 0
    listener = launch("subscribe", "news", "alerts-*", "--count", "2", *place)
    while not shell("publish", "news", '{"n": 1}').data:
        assert listener.poll() is None
    shell("publish", "alerts-1", "fire")

    done = finish(listener)

    assert done.code == 0
    messages = [json.loads(line) for line in done.out.splitlines()]
    assert messages[0] == {"channel": f"{shell.namespace}:shared:news", "value": {"n": 1}}
    assert len(messages) == 2


def test_changes_are_shown_from_a_cursor_on(shell: Shell) -> None:
    for number in range(3):
        shell("set", f"k{number}", str(number))

    first = shell("watch", "--since", "0", "--count", "1").out
    rest = shell("watch", "--since", json.loads(first)["cursor"], "--count", "2").out

    changes = [json.loads(line) for line in (first + rest).splitlines()]
    assert [change["key"] for change in changes] == [f"{shell.namespace}:shared:k{number}" for number in range(3)]
    assert {change["operation"] for change in changes} == {"write"}


def test_interrupting_ends_a_watch_without_a_word(shell: Shell, place: tuple[str, ...], launch: Launch) -> None:
    shell("set", "k", "1")
    watcher = launch("watch", "--since", "0", *place)
    assert read_json_line(watcher)["key"] == f"{shell.namespace}:shared:k"

    watcher.send_signal(signal.SIGINT)
    done = finish(watcher)

    assert (done.code, done.err) == (130, "")


def test_a_reader_that_leaves_ends_a_watch_without_a_word(shell: Shell, place: tuple[str, ...], launch: Launch) -> None:
    shell("set", "k", "1")
    watcher = launch("watch", "--since", "0", *place)
    read_json_line(watcher)
    assert watcher.stdout is not None
    watcher.stdout.close()

    while watcher.poll() is None:
        shell("set", "k", "2")

    assert watcher.stderr is not None
    assert watcher.stderr.read() == ""


def test_a_terminated_command_leaves_no_server_behind(shell: Shell, launch: Launch) -> None:
    elsewhere = shell.data_dir.parent / "e"
    watcher = launch("watch", "--since", "0", "--data-dir", str(elsewhere))
    shell("set", "k", "1", "--data-dir", str(elsewhere), "--namespace", "default")
    read_json_line(watcher)
    assert asyncio.run(status(elsewhere)).running

    watcher.terminate()
    done = finish(watcher)

    assert (done.code, done.err) == (130, "")
    assert not asyncio.run(status(elsewhere)).running


# Terminals


def test_a_terminal_gets_tables_and_sentences(shell: Shell, place: tuple[str, ...]) -> None:
    shell("append", "chat", '{"by": "ada", "says": "hello"}')
    shell("append", "chat", '{"by": "bob", "says": "hi"}')

    chat = on_a_terminal("list", "chat", *place)
    usage = on_a_terminal("usage", *place)
    tree = on_a_terminal("ls", "--tree", *place)

    assert [line.split() for line in chat.out.splitlines() if "bob" in line] == [["1", "bob", "hi"]]
    assert f"namespace {shell.namespace}" in usage.out
    assert "━" in usage.out
    assert "└── chat" in tree.out


def test_a_terminal_gets_json_when_it_asks(shell: Shell, place: tuple[str, ...]) -> None:
    shell("set", "k", '{"a": 1}')

    done = on_a_terminal("get", "k", "--json", *place)

    assert done.out == '{"a": 1}\n'


def test_a_value_cannot_command_the_terminal(shell: Shell, place: tuple[str, ...]) -> None:
    shell("set", "k", "\x1b[2Jred\ttab\nnext")

    done = on_a_terminal("get", "k", *place)

    assert done.out.startswith("\\x1b[2Jred")
    assert "version" in done.out
    assert "stays" in done.out


def test_clearing_asks_at_a_terminal(shell: Shell, place: tuple[str, ...]) -> None:
    shell("set", "k", "1")

    kept = on_a_terminal("clear", *place, typed="n\n")
    cleared = on_a_terminal("clear", *place, typed="y\n")

    assert kept.code == 1
    assert re.search(rf"Remove 1 key \(\d+ B\) of namespace {shell.namespace}\?", kept.out)
    assert cleared.code == 0
    assert "1 key removed" in cleared.out
    assert shell("ls").data == []


def test_every_picture_can_be_drawn(place: tuple[str, ...]) -> None:
    commands = (
        ("set", "k", '{"a": [1]}'),
        ("get", "k"),
        ("ls",),
        ("incr", "c"),
        ("append", "l", "1"),
        ("list", "nothing"),
        ("hash", "set", "h", "f", "1"),
        ("hash", "h"),
        ("members", "add", "s", "x"),
        ("members", "s"),
        ("publish", "news", "x"),
        ("watch", "--since", "0", "--count", "3"),
        ("acl", "bob"),
        ("status",),
        ("config",),
        ("doctor",),
        ("up",),
    )
    done = several_on_a_terminal(*([*place, *words] for words in commands))

    assert done.out.count(" left 0\n") == len(commands), done.out
    assert "Traceback" not in done.out


@pytest.mark.parametrize(
    ("picture", "text"),
    [
        (format_size(0), "0 B"),
        (format_size(1536), "1.5 KiB"),
        (format_size(3 << 40), "3.0 TiB"),
        (format_size(3 << 50), "3072.0 TiB"),
        (format_duration(0.2), "0 s"),
        (format_duration(3661), "1 h 1 min"),
        (format_duration(90_000), "1 d 1 h"),
        (format_age(None), "at an unknown time"),
        (escape_control("a\x1bb\x9bc\nd"), "a\\x1bb\\x9bc\nd"),
    ],
)
def test_numbers_read_well(picture: str, text: str) -> None:
    assert picture == text


def test_keys_become_branches() -> None:
    assert split_keys(["a:b:c", "a:b:d", "a:e"]) == {"a": {"b": {"c": {}, "d": {}}, "e": {}}}


# redis-cli


def test_without_a_redis_cli_one_command_is_sent_to_the_right_server(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    shell("append", "l", "one")
    shell("append", "l", "two")
    key = f"sm:{{{shell.namespace}}}:shared:l"

    assert shell("redis-cli", "LRANGE", key, "0", "-1").out == '"one"\n"two"\n'
    assert shell("redis-cli", "LLEN", key).out == "2\n"
    assert shell("redis-cli", "GET", key).code == 1
    refused = shell("redis-cli", "MONITOR")
    assert refused.code == 2
    assert "sharedmem watch" in refused.err


def test_without_a_redis_cli_there_is_a_prompt(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    done = shell("redis-cli", stdin=b"ECHO 'a b'\n\nECHO \"\nFOO\nquit\nECHO never\n")

    assert done.code == 0
    assert done.out.startswith("a b\nInvalid argument(s)\nERR unknown command 'FOO'")
    assert "never" not in done.out


def test_a_redis_cli_on_path_is_run_on_the_right_socket(place: tuple[str, ...], tmp_path: Path) -> None:
    program = tmp_path / "redis-cli"
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o700)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    done = finish(start(*place, "redis-cli", "-n", "0", "GET", "k", "--json", environment=path))

    assert done.code == 3
    assert done.out == f"-s {place[1]}/redis.sock -n 0 GET k --json\n"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://host:7000/2", "-h host -p 7000 -n 2"),
        ("rediss://ada:pw@host", "-h host -p 6379 --user ada --tls"),
        ("redis+cluster://a:1,b:2", "-h a -p 1 -c"),
        ("unix:///run/r.sock?db=1", "-s /run/r.sock -n 1"),
    ],
)
def test_redis_cli_is_told_where_the_server_is(url: str, words: str) -> None:
    assert connection_options(parse_address(url, Settings(redis_url=url))) == words.split()


@pytest.mark.parametrize(
    ("reply", "terminal", "pipe"),
    [
        (None, "(nil)", b""),
        (7, "(integer) 7", b"7"),
        (b"OK", "OK", b"OK"),
        ('ä"\\\n'.encode() + b"\xff", '"ä\\"\\\\\\n\\xff"', 'ä"\\\n'.encode() + b"\xff"),
        (ServerError("ERR no"), "(error) ERR no", b"ERR no"),
        ([], "(empty array)", b""),
        ([1, [b"a", None]], '1) (integer) 1\n2) 1) "a"\n   2) (nil)', b"1\na\n"),
    ],
)
def test_replies_look_as_redis_cli_shows_them(reply: Reply, terminal: str, pipe: bytes) -> None:
    assert format_reply(reply) == terminal
    assert raw_reply(reply) == pipe


# Streams


def test_json_is_utf_8_whatever_the_locale_says(shell: Shell, place: tuple[str, ...]) -> None:
    shell("set", "k", "größer")

    assert finish(start("get", "k", *place, environment={"PYTHONIOENCODING": "ascii"})).out == '"größer"\n'


def test_a_disk_that_is_full_is_told_in_one_sentence(place: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = finish(start("config", *place, stdout=full))

    assert (done.code, done.err) == (74, "sharedmem: No space left on device: output\n")


def test_a_closed_output_is_no_error(place: tuple[str, ...]) -> None:
    command = shlex.join([sys.executable, "-c", "from sharedmem.faces.cli import main; main()", "ls", *place])

    done = subprocess.run(["bash", "-c", f"{command} >&-"], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


# Help and completion


def test_each_command_is_in_the_module_that_is_imported_for_it() -> None:
    load_commands()
    places = {info.name: info.callback.__module__ for info in app.registered_commands if info.callback}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        modules = {info.callback.__module__ for info in group.typer_instance.registered_commands if info.callback}
        # The commands of a group may be in several modules, of which the last one imports the others.
        (places[group.name],) = modules - {found for module in modules for found in _imports_of(module)}

    assert places == {name: f"sharedmem.faces.cli.{module}" for name, module in MODULE_OF.items()}


def _imports_of(module: str) -> set[str]:
    contents = vars(sys.modules[module]).values()
    return {getattr(one, "__module__", "") for one in contents} - {module}


def test_each_help_text_ends_with_a_line_to_paste() -> None:
    load_commands()
    commands = [[str(info.name)] for info in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += [[str(group.name), str(info.name)] for info in group.typer_instance.registered_commands]

    for words in [[], *commands]:
        told = CliRunner().invoke(app, [*words, "--help"])
        assert told.exit_code == 0
        assert told.output.rstrip().splitlines()[-1].strip().startswith("Try:  sharedmem"), words


@pytest.mark.parametrize("words", [(), ("hash",), ("members", "-h"), ("thread",)])
def test_a_command_without_arguments_prints_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 0
    assert "Usage: sharedmem" in capsys.readouterr().out


def test_the_shell_completes_commands_and_options() -> None:
    asked = {"_SHAREDMEM_COMPLETE": "complete_bash", "COMP_WORDS": "sharedmem sub", "COMP_CWORD": "1"}

    assert finish(start(environment=asked)).out.split() == ["subscribe"]


def test_the_script_for_completion_can_be_shown() -> None:
    script = f"{sys.executable} -c 'from sharedmem.faces.cli import main; main()' --show-completion; true"

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert "_SHAREDMEM_COMPLETE=complete_bash" in done.stdout
