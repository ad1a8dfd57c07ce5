"""The command line against a real server: its output for programs, and its errors."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from support.shell import Shell, finish, is_one_sentence, start

from sharedmem import Hub, Settings


def write(shell: Shell, key: str, value: object) -> None:
    """What a program does meanwhile."""

    async def in_a_hub() -> None:
        async with Hub.open(settings=Settings(data_dir=shell.data_dir)) as hub:
            await hub.store(shell.namespace).write(key, value)

    asyncio.run(in_a_hub())


# Values


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ('{"step": [1, 2.5, null, true]}', {"step": [1, 2.5, None, True]}),
        ("just text", "just text"),
        ("12", 12),
        ('"12"', "12"),
        ("NaN", "NaN"),
        ("@@home", "@home"),
        ("", ""),
        ("größer", "größer"),
        (str(2**80), 2**80),
    ],
)
def test_a_value_is_json_and_otherwise_a_text(shell: Shell, word: str, value: object) -> None:
    version = shell("set", "k", word).data

    assert shell("get", "k").data == value
    assert shell("get", "k", "--entry").data["version"] == version


@pytest.mark.parametrize("word", ['{"a": 1', "{'a': 1}", "{a: 1}", '["x", ', "[1, 2", '"open'])
def test_what_looks_like_broken_json_is_kept_as_a_text_with_a_warning(shell: Shell, word: str) -> None:
    for words in (("set", "k", word), ("append", "l", word), ("queue", "put", "q", word), ("set", "k", "-")):
        done = shell(*words, stdin=word.encode())

        assert done.code == 0
        assert done.err.startswith("sharedmem: warning: the value looks like broken JSON (")
    assert shell("get", "k").data == word


@pytest.mark.parametrize("word", ["{name}", "[draft] hello", "a { b", "", "NaN", '{"a": 1}', "-", "it's"])
def test_other_texts_come_without_a_warning(shell: Shell, word: str) -> None:
    assert shell("set", "k", word).err == ""


def test_a_value_comes_from_a_file_or_from_standard_input(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"a": 1}\n')
    (tmp_path / "v.bin").write_bytes(b"\xff\x00")

    shell("set", "file", f"@{tmp_path / 'v.json'}")
    shell("set", "bytes", f"@{tmp_path / 'v.bin'}")
    shell("set", "input", "-", stdin=b"one\ntwo")

    assert shell("get", "file").data == {"a": 1}
    assert shell("get", "bytes").data == {"$base64": "/wA="}
    assert shell("get", "input", "--raw").out == "one\ntwo"
    absent = shell("set", "k", "@/no/such/file")
    assert absent.code == 3
    assert is_one_sentence(absent, "/no/such/file", "@@")


def test_what_json_cannot_hold_is_printed_readably(shell: Shell) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    write(shell, "k", {"when": moment, "raw": b"\x00", "tags": {"b", "a"}, 7: UUID(int=1)})

    value = {"when": "2026-01-02T03:04:05+00:00", "raw": {"$base64": "AA=="}, "tags": ["a", "b"], "7": str(UUID(int=1))}
    assert shell("get", "k").data == value


def test_what_is_not_there_is_told_with_exit_code_3(shell: Shell) -> None:
    done = shell("get", "missing")

    assert done.code == 3
    assert is_one_sentence(done, "key 'missing' does not exist")
    assert shell("hash", "get", "missing", "field").code == 3
    assert shell("members", "pop", "missing").code == 3


def test_a_conditional_write_over_another_version_is_refused_with_exit_code_4(shell: Shell) -> None:
    version = shell("set", "k", "1", "--if-version", "0").data

    done = shell("set", "k", "2", "--if-version", "0")

    assert done.code == 4
    assert is_one_sentence(done, f"version {version}")
    assert shell("set", "k", "2", "--if-version", str(version)).code == 0


def test_a_value_lives_as_long_as_its_ttl_or_kind_says(shell: Shell) -> None:
    shell("set", "short", "1", "--ttl", "30")
    shell("set", "session", "1", "--kind", "session")

    assert 0 < shell("get", "short", "--entry").data["ttl"] <= 30
    assert shell("get", "session", "--entry").data["ttl"] > 600_000
    assert is_one_sentence(shell("set", "k", "1", "--ttl", "-5"), "ttl -5.0 is refused")


def test_keys_are_removed_and_counted(shell: Shell) -> None:
    shell("set", "a", "1")

    assert shell("delete", "a", "b").data == 1
    assert shell("get", "a").code == 3


def test_keys_are_listed_by_pattern_plain_and_absolute(shell: Shell) -> None:
    for key in ("plan", "plans", f"{shell.namespace}:bob:plan"):
        shell("set", key, "1")
    own = f"{shell.namespace}:shared"

    assert shell("ls").data == sorted([f"{own}:plan", f"{own}:plans", f"{shell.namespace}:bob:plan"])
    assert shell("ls", "plan").data == [f"{shell.namespace}:bob:plan", f"{own}:plan"]
    assert shell("ls", f"{own}:*s").data == [f"{own}:plans"]
    assert shell("ls", "--namespace", "elsewhere").data == []


# Structures


def test_counters_count_up_and_down(shell: Shell) -> None:
    assert shell("incr", "c").data == 1
    assert shell("incr", "c", "41", "--ttl", "60").data == 42
    assert shell("incr", "c", "-50").data == -8
    assert is_one_sentence(shell("incr", "c", "--buy"), "'by'")


def test_lists_grow_at_the_end(shell: Shell) -> None:
    lengths = [shell("append", "l", word, "--max-length", "2").data for word in ("1", '{"by": "me"}', "three")]

    assert lengths == [1, 2, 2]
    assert shell("list", "l").data == [{"by": "me"}, "three"]
    assert shell("list", "l", "--start", "-1").data == ["three"]
    assert shell("list", "nothing").data == []


def test_hashes_are_shown_when_no_command_of_theirs_is_named(shell: Shell) -> None:
    assert shell("hash", "set", "h", "role", "lead").data == 1
    assert shell("hash", "set", "h", "load", "0.5").data == 1

    assert shell("hash", "h").data == shell("hash", "all", "h").data == {"role": "lead", "load": 0.5}
    assert shell("hash", "get", "h", "load").data == 0.5
    assert shell("hash", "delete", "h", "load", "nope").data == 1


def test_sets_are_shown_in_order_when_no_command_of_theirs_is_named(shell: Shell) -> None:
    assert shell("members", "add", "s", "tides", "3", "20", "tides").data == 3

    assert shell("members", "s").data == [3, 20, "tides"]
    assert shell("members", "delete", "s", "tides", "3").data == 2
    assert shell("members", "pop", "s").data == 20


# Who acts where


def test_global_options_stand_before_or_after_the_command(shell: Shell) -> None:
    shell("set", "k", "1", "--actor", "bob")

    assert shell("get", f"{shell.namespace}:bob:k").data == 1
    assert shell("get", "--actor=bob", "k").data == 1
    assert shell("--actor", "bob", "get", "k", "--json").data == 1
    assert shell("set", "dash", "--", "--json").code == 0
    assert shell("get", "dash").data == "--json"


def test_an_actor_has_its_rights_and_no_actor_has_all(shell: Shell) -> None:
    alices = f"{shell.namespace}:alice:k"

    refused = shell("--actor", "bob", "set", alices, "1")

    assert refused.code == 5
    assert is_one_sentence(refused, "'bob'", "write", alices)
    assert shell("--actor", "bob", "get", "other:shared:k").code == 5
    assert shell("set", alices, "1").code == 0
    assert shell("get", "other:shared:k").code == 3


# Mistakes


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--json",), 2, "missing command; see sharedmem --help"),
        (("xyzzy",), 2, "no such command 'xyzzy'; see sharedmem --help"),
        (("set", "k"), 2, "missing argument 'value'; see sharedmem set --help"),
        (("set", "k", "-5"), 2, "put -- before a value that begins with a dash"),
        (("set", "k", "1", "--ttl", "soon"), 2, "'--ttl'"),
        (("set", "a{b", "1"), 2, "leave out braces"),
        (("set", "k", "1", "--kind", "eternal"), 2, "'eternal'"),
        (("hash", "get", "h"), 2, "missing argument 'field'; see sharedmem hash get --help"),
        (("watch", "--since", "yesterday"), 2, "since 'yesterday' is refused"),
        (("get", "k", "--namespace", "a b"), 2, "namespace 'a b' is refused"),
        (("get", "k", "--url", "http://x"), 9, "'redis_url'"),
        (("config", "data_dri"), 3, "did you mean 'data_dir'?"),
        (("get", "k", "--url", "redis://127.0.0.1:1"), 7, "redis://127.0.0.1:1"),
        (("demo", "--url", "redis://127.0.0.1:1"), 7, "redis://127.0.0.1:1"),
        (("get", "k", "--data-dir", "/tmp/" + "long" * 30), 9, "shorter path"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(shell: Shell, words: tuple[str, ...], code: int, said: str) -> None:
    done = shell(*words)

    assert done.code == code
    assert is_one_sentence(done, said), done.err


def test_a_key_of_another_type_is_told_with_the_type_it_holds(shell: Shell) -> None:
    shell("append", "l", "1")

    done = shell("get", "l")

    assert done.code == 2
    assert is_one_sentence(done, "it holds a list")


def test_a_wrong_password_is_told_without_showing_it(shell: Shell) -> None:
    socket = shell.data_dir / "redis.sock"
    assert shell("acl", "bob", "--password", "right", "--apply").data["applied"] is True

    wrong = shell("get", "k", "--url", f"unix://bob:wrong@{socket}?db=0")
    right = shell("set", "k", "1", "--actor", "bob", "--url", f"unix://bob:right@{socket}?db=0")
    beyond = shell("set", "other:shared:k", "1", "--url", f"unix://bob:right@{socket}?db=0")

    assert (wrong.code, right.code, beyond.code) == (9, 0, 5)
    assert is_one_sentence(wrong, "password is wrong")
    assert "bob:wrong" not in wrong.err


# A namespace as a whole


def test_usage_tells_keys_and_bytes_by_type(shell: Shell) -> None:
    shell("set", "a", "1")
    shell("append", "l", "1")

    usage = shell("usage").data

    assert (usage["namespace"], usage["keys"]) == (shell.namespace, 2)
    assert {name: part["keys"] for name, part in usage["types"].items()} == {"string": 1, "list": 1}


def test_clearing_wants_a_yes(shell: Shell) -> None:
    shell("set", "a", "1")

    refused = shell("clear")

    assert refused.code == 2
    assert is_one_sentence(refused, "--yes")
    assert shell("clear", "--yes").data == 1
    assert shell("ls").data == []


def test_the_rights_of_an_actor_are_told_as_an_acl_command(shell: Shell) -> None:
    told = shell("acl", "bob", "--subscribe", "news", "--grant", "team:board:*", "--password", "pw").data

    assert told["command"].startswith("ACL SETUSER bob reset on >pw -@all")
    for rule in (f"~sm:{{{shell.namespace}}}:bob:*", "%R~sm:{news}:*", "~sm:{team}:board:*"):
        assert rule in told["command"].split()
    assert told["applied"] is False
    assert len(shell("acl", "bob").data["password"]) > 30


# Installation


def test_every_setting_is_shown_with_its_origin_and_without_secrets(shell: Shell) -> None:
    url = "redis://ada:geheim@127.0.0.1:1/0"

    rows = {row["name"]: row for row in shell("config", "--url", url).data}

    assert rows["redis_url"]["value_shown"] == "redis://ada:***@127.0.0.1:1/0"
    assert rows["redis_url"]["origin"] == "argument"
    assert rows["access"]["origin"] == "default"
    assert shell("config", "namespace").data == shell.namespace


def save_plan(shell: Shell) -> None:
    """What a program does meanwhile."""

    async def in_a_hub() -> None:
        async with Hub.open(settings=Settings(data_dir=shell.data_dir)) as hub:
            await hub.store(shell.namespace).decisions.save_plan("desk", "BTC", "BUY", 0.5, "it rises", "llm")

    asyncio.run(in_a_hub())


def test_a_group_alone_lists_and_with_a_name_shows_that_one(shell: Shell) -> None:
    shell("queue", "put", "jobs", "a")
    shell("queue", "put", f"{shell.namespace}:ada:own", "b")
    shell("graph", "add", "Ada lives in Oslo.", "--group", "acme:ada")
    save_plan(shell)

    assert shell("queue").data == shell("queue", "list").data == ["jobs", f"{shell.namespace}:ada:own"]
    assert shell("queue", "jobs").data["name"] == shell("queue", "stats", "jobs").data["name"] == "jobs"
    assert shell("plans").data == shell("plans", "sessions").data == ["desk"]
    assert shell("plans", "desk").data == shell("plans", "list", "desk").data != []
    assert shell("graph").data == shell("graph", "groups").data == ["acme:ada"]
    assert shell("notes").data == shell("notes", "apps").data == []
    assert "'n-1' does not exist" in shell("notes", "n-1", "--app", "shop").err
    assert shell("memories").data == shell("memories", "list").data
    assert "memory 'm-1' does not exist" in shell("memories", "m-1").err
    assert shell("task").data == shell("task", "list", "--limit", "5").data == shell("task", "--limit", "5").data == []
    for group in ("cache", "index", "token"):
        assert shell(group).code == 0


def test_doctor_finds_nothing_bad_in_a_sound_place(shell: Shell) -> None:
    checks = {check["about"]: check for check in shell("doctor").data}

    assert checks["server"]["verdict"] == "good"
    assert checks["persistence"]["found"] == "append-only file, everysec"
    assert {"python", "extras", "data folder", "socket path", "disk", "layout", "blobs"} <= checks.keys()


@pytest.mark.parametrize(("threshold", "verdict", "words"), [("0.8", "notice", "0.95 or more"), ("0.97", "good", "")])
def test_doctor_notices_a_dedup_threshold_below_the_recommended_one(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, threshold: str, verdict: str, words: str
) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "hashing")
    monkeypatch.setenv("SHAREDMEM_DEDUP_SIMILARITY", threshold)

    checks = {check["about"]: check for check in shell("doctor").data}

    assert checks["dedup threshold"]["verdict"] == verdict
    assert words in checks["dedup threshold"]["remedy"]


def test_a_misspelt_variable_is_told_before_a_private_server_is_used(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_REDIS_ULR", "redis://localhost")

    done = shell("ls")
    assert done.code == 9
    assert is_one_sentence(done, "SHAREDMEM_REDIS_ULR", "did you mean SHAREDMEM_REDIS_URL?")
    doctor = shell("doctor")
    checks = {check["about"]: check for check in json.loads(doctor.out)}
    assert doctor.code == 1
    assert checks["environment"]["verdict"] == "bad"
    assert checks["environment"]["remedy"] == "did you mean SHAREDMEM_REDIS_URL?"


def test_no_command_starts_a_private_server_where_that_is_forbidden(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDED", "never")
    shell = Shell(tmp_path / "d", "forbidden", capfdbinary, monkeypatch)

    for words in (["up"], ["set", "topic", "tides"], ["serve", "rest", "--port", "0"], ["token", "list"]):
        done = shell(*words)
        assert done.code == 9, words
        assert is_one_sentence(done, "embedded=never", "SHAREDMEM_REDIS_URL"), done.err
    assert not (tmp_path / "d").exists()


def test_doctor_says_what_to_do_about_what_it_finds(shell: Shell) -> None:
    shell("set", "temp:shared:x", "1", "--ttl", "60")
    shell("redis-cli", "PERSIST", "sm:{temp}:shared:x")

    checks = {check["about"]: check for check in shell("doctor").data}

    assert checks["ephemeral keys"]["remedy"] == "remove them, as with: sharedmem delete temp:shared:x"


def test_doctor_finds_blobs_without_a_key_and_sweeps_them_when_told(shell: Shell) -> None:
    shell("set", "big", "-", stdin=b"x" * 300_000)
    shell("redis-cli", "DEL", f"sm:{{{shell.namespace}}}:shared:big")
    blobs = [path for path in (shell.data_dir / "blobs").rglob("*") if path.is_file() and path.name != "lock"]
    for blob in blobs:
        os.utime(blob, (0, 0))

    found = {check["about"]: check for check in shell("doctor").data}["blobs"]
    swept = {check["about"]: check for check in shell("doctor", "--sweep").data}["blobs"]

    assert found["verdict"] == "notice"
    assert found["remedy"].endswith("sharedmem doctor --sweep")
    assert swept["found"] == "1 orphan removed"
    assert not any(blob.exists() for blob in blobs)


def test_doctor_names_a_key_in_which_another_client_has_written_and_what_to_do(shell: Shell) -> None:
    shell("set", "topic", "tides")
    clock = f"sm:{{{shell.namespace}}}:$clock"
    shell("redis-cli", "SET", clock, "yesterday")

    done = shell("doctor")
    (check,) = [one for one in json.loads(done.out) if one["about"] == "service keys"]
    refused = shell("set", "topic", "gulls")

    assert done.code == 1
    assert (check["verdict"], check["remedy"]) == ("bad", "delete it: the next change creates it again")
    assert clock in check["found"]
    assert clock in refused.err
    shell("redis-cli", "DEL", clock)
    assert shell("set", "topic", "gulls").code == 0
    assert {one["about"]: one for one in shell("doctor").data}["service keys"]["verdict"] == "good"


def test_doctor_leaves_with_exit_code_1_when_something_is_bad(shell: Shell) -> None:
    done = shell("doctor", "--data-dir", "/tmp/" + "long" * 30)

    assert done.code == 1
    assert '"bad"' in done.out


def test_the_embedded_server_goes_up_tells_its_status_and_goes_down(shell: Shell) -> None:
    elsewhere = ("--data-dir", str(shell.data_dir.parent / "e"))
    assert shell("status", *elsewhere).data["embedded"]["running"] is False

    up = shell("up", *elsewhere).data
    status = shell("status", *elsewhere).data

    assert (up["running"], up["held"]) == (True, True)
    assert status["embedded"]["pid"] == up["pid"]
    assert status["powers"]["persistence"] == "everysec"
    assert shell("down", *elsewhere).data is True
    assert shell("down", *elsewhere).data is False


def test_the_version_is_told_without_a_server() -> None:
    done = finish(start("--version"))

    assert done.code == 0
    assert done.out.startswith("sharedmem ")
