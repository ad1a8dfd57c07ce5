"""`sharedmem lock` and `sharedmem leader`: a program runs while something is held, and never longer than that."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest
from support.shell import Shell, finish, on_a_terminal, start

from sharedmem.sync import Hub

SLEEP = [sys.executable, "-c", "import time; print('runs', flush=True); time.sleep(60)"]
TOKEN = [sys.executable, "-c", "import os; print(os.environ['SHAREDMEM_FENCING_TOKEN'])"]


@pytest.fixture
def hub(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("SHAREDMEM_DATA_DIR", str(shell.data_dir))
    with Hub.open() as hub:
        yield hub


both = pytest.mark.parametrize("what", ["lock", "leader"])


@both
def test_a_command_runs_with_the_token_and_its_exit_code_is_passed_on(shell: Shell, what: str) -> None:
    told = shell(what, "index", "--", *TOKEN)
    later = shell(what, "index", "--", *TOKEN)

    assert (told.code, later.code) == (0, 0)
    assert 0 < int(told.out) < int(later.out)
    assert shell(what, "index", "--", sys.executable, "-c", "raise SystemExit(7)").code == 7


@both
def test_without_a_command_it_tells_who_holds_it(shell: Shell, hub: Hub, what: str) -> None:
    assert shell(what, "index").data == {"holders": [], "waiting": 0}

    store = hub.store(shell.namespace, actor="ada")
    if what == "lock":
        with store.lock("index") as lease:
            held, token = shell(what, "index").data, lease.token
    else:
        with store.leader("index") as candidacy:
            token = candidacy.elected()
            held = shell(what, "index").data

    (holder,) = held["holders"]
    assert (holder["actor"], holder["token"], held["waiting"]) == ("ada", token, 0)
    assert 0 < holder["remaining_ms"] <= 30_000


def test_a_person_sees_a_table(shell: Shell, hub: Hub, place: tuple[str, ...]) -> None:
    with hub.store(shell.namespace, actor="ada").lock("index") as lease:
        screen = on_a_terminal(*place, "lock", "index").out

    assert "held by" in screen
    assert "ada" in screen
    assert str(lease.token) in screen
    assert "nothing there" in on_a_terminal(*place, "lock", "index").out


def test_who_will_not_wait_is_told_that_it_is_held(shell: Shell, hub: Hub) -> None:
    with hub.store(shell.namespace, actor="ada").lock("index"):
        done = shell("lock", "index", "--wait", "0", "--", *TOKEN)

    assert done.code == 4
    assert "lock 'index' is held" in done.err
    assert not done.out


@both
def test_a_command_is_ended_when_what_it_ran_under_is_lost(
    shell: Shell, hub: Hub, place: tuple[str, ...], what: str
) -> None:
    process = start(*place, what, "index", "--lease", "0.6", "--", *SLEEP)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    hub.store(shell.namespace).clear()
    done = finish(process)

    assert done.code == 4
    assert f"{what} 'index' is no longer yours" in done.err


@both
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_is_ended_and_the_place_is_free(
    shell: Shell, place: tuple[str, ...], what: str, number: signal.Signals
) -> None:
    process = start(*place, what, "index", "--", *SLEEP)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(number)

    assert finish(process).code == 130
    assert shell(what, "index").data == {"holders": [], "waiting": 0}


@both
def test_a_command_that_cannot_be_started_is_told_in_a_sentence(shell: Shell, what: str) -> None:
    done = shell(what, "index", "--", "no-such-program")

    assert done.code == 2
    assert "'no-such-program' is refused: it cannot be started" in done.err
    assert shell(what, "index").data["holders"] == []


@both
def test_impossible_times_are_refused(shell: Shell, what: str) -> None:
    assert shell(what, "index", "--lease", "0", "--", *TOKEN).code == 2


def test_a_command_that_died_of_a_signal_is_told_as_shells_do(shell: Shell) -> None:
    words = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]

    assert shell("lock", "index", "--", *words).code == 128 + signal.SIGKILL


def test_the_second_process_waits_for_the_first(shell: Shell, hub: Hub, place: tuple[str, ...]) -> None:
    store = hub.store(shell.namespace, actor="ada")
    with store.lock("index") as lease:
        process = start(*place, "lock", "index", "--", *TOKEN)
        while not store.lease_state("index").waiting:
            time.sleep(0.01)
    done = finish(process)

    assert int(done.out) > lease.token


def test_the_token_is_no_misspelt_setting(shell: Shell) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHAREDMEM_FENCING_TOKEN", "5")
        report = shell("doctor", "--json")

    assert "SHAREDMEM_FENCING_TOKEN" not in report.out + report.err


def test_what_is_held_is_listed_and_the_lease_of_a_holder_that_hangs_is_revoked(shell: Shell, hub: Hub) -> None:
    grant = hub.store(shell.namespace, actor="ada").lease_acquire("index", lease=60)
    place = ("--data-dir", str(shell.data_dir), "--namespace", shell.namespace)

    screen = on_a_terminal(*place, "locks").out
    assert all(word in screen for word in ("index", "ada", str(grant.token)))
    assert shell("locks", "--kind", "lock").data["entries"][0]["holders"][0]["token"] == grant.token
    assert shell("revoke", "index", str(grant.token)).data is True
    assert shell("revoke", "index", str(grant.token)).data is False
    assert shell("locks").data == {"entries": [], "cursor": None}
    assert shell("revoke", "index", "0").code == 2
