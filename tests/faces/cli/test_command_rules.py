"""Rules that every command follows: its verb, its help, unknown words, former names, completion."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from sharedmem import __version__
from sharedmem.faces.cli import run
from sharedmem.faces.cli.app import FORMER_NAMES, app, load_commands

MOST_LINES = 40
# Verbs of other interfaces, and the one verb that means the same here (ADR 41).
RETIRED_VERBS = {
    **dict.fromkeys(("ask", "find", "query", "recall", "retrieve"), "search"),
    **dict.fromkeys(("show", "read", "fetch"), "get"),
    **dict.fromkeys(("remember", "insert"), "add"),
    **dict.fromkeys(("change", "edit", "modify"), "update"),
    **dict.fromkeys(("rm", "del", "remove", "discard", "invalidate"), "delete"),
    **dict.fromkeys(("forget", "purge"), "erase"),
}


def tree(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command and group, by how it is called."""
    for name, command in group.commands.items():
        yield f"{path}{name}", command
        if hasattr(command, "commands"):
            yield from tree(command, f"{path}{name} ")


load_commands()
COMMANDS = dict(tree(typer.main.get_command(app)))
GROUPS = sorted(name for name, command in COMMANDS.items() if hasattr(command, "commands"))


@pytest.mark.parametrize("name", ["", *COMMANDS], ids=lambda name: name or "sharedmem")
def test_a_help_fits_on_one_page(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert run([*name.split(), "--help"]) == 0

    told = capsys.readouterr().out
    assert told.count("\n") <= MOST_LINES
    assert "<bool>" not in told
    assert "Try:  sharedmem" in told


def test_one_verb_stands_for_one_meaning() -> None:
    over_all_parts = {"recall", "remember"}  # of memories, graph and notes together: neither a search nor an addition
    commands = COMMANDS.keys() - over_all_parts
    retired = {name: verb for name in commands if (verb := RETIRED_VERBS.get(name.split()[-1]))}

    assert retired == {}


# -- words that are no command --------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
def test_an_unknown_command_of_a_group_is_refused(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([group, "xyzzy", "--help"]) == 2
    assert f"no such command 'xyzzy'; see sharedmem {group} --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("quee",), "queue"),
        (("serve", "rst"), "rest"),
        (("queue", "putt", "jobs", "1"), "put"),
        (("graph", "serch", "where?"), "search"),
        (("memories", "serach", "tea"), "search"),
        (("notes", "lst", "--help"), ""),
    ],
)
def test_a_mistyped_command_is_refused_with_the_nearest(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(words)) == 2
    assert (f"Did you mean '{meant}'?" if meant else "no such command") in capsys.readouterr().err


# -- former names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
def test_a_former_name_works_with_a_notice_and_is_in_no_help(
    former: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert former not in COMMANDS
    assert name in COMMANDS

    assert run([*former.split(), "--help"]) == 0

    told = capsys.readouterr()
    assert f"`{former}` is now `{name}`" in told.err
    assert f"Usage: sharedmem {name} " in told.out


# -- completion and the module ----------------------------------------------------------------------------


def test_keys_and_queues_are_completed_wherever_they_are_given() -> None:
    def is_completed(command: str, argument: str) -> bool:
        return argument in {"key", "keys"} or (command.startswith("queue ") and argument in {"name", "queue"})

    given = [
        (name, parameter)
        for name, command in COMMANDS.items()
        for parameter in command.params
        if parameter.param_type_name == "argument" and is_completed(name, parameter.name)
    ]

    assert len(given) > 20
    assert [(name, one.name) for name, one in given if one._custom_shell_complete is None] == []


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "sharedmem", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"sharedmem {__version__}\n"
