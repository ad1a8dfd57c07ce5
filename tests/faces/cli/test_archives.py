"""export, import, copy and backfill on the command line: docs/archives.md."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

from support.shell import Shell, finish, several_on_a_terminal, start

from sharedmem.faces.cli import run


def test_a_namespace_goes_into_a_file_and_comes_back(shell: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "a.jsonl.zst")
    shell("set", "plan", '{"topic": "tides"}')
    shell("append", "log", "one")

    exported = shell("export", shell.namespace, file).data
    assert shell("clear", "--yes").code == 0
    imported = shell("import", file).data

    assert (exported["keys"], exported["documents"]) == (2, 3)
    assert (imported["imported"], imported["older"], imported["skipped"]) == (3, 0, 0)
    assert shell("get", "plan").data == {"topic": "tides"}
    assert shell("list", "log").data == ["one"]


def test_mistakes_get_a_sentence_and_a_code(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    shell("set", "plan", "1")
    shell("export", shell.namespace, str(file))

    again = shell("export", shell.namespace, str(file))
    nobody = shell("export", "nobody-at-all", str(tmp_path / "b.jsonl"))
    missing = shell("import", str(tmp_path / "b.jsonl"))
    file.write_text("nonsense\n")
    foreign = shell("import", str(file))
    unsaid = shell("copy")

    assert (again.code, "exists already" in again.err) == (4, True)
    assert (nobody.code, "nothing was ever written" in nobody.err) == (3, True)
    assert missing.code == 3
    assert (foreign.code, "backfill" in foreign.err) == (2, True)
    assert (unsaid.code, "--from" in unsaid.err) == (2, True)


def test_an_archive_of_another_namespace_is_refused_where_one_is_named(shell: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "a.jsonl")
    shell("set", "plan", "1")
    shell("export", shell.namespace, file)

    done = run(["--data-dir", str(shell.data_dir), "--namespace", "other", "import", file])

    assert done == 2


def test_what_lasts_is_copied_to_a_file_of_its_own_and_back(shell: Shell, tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/other.db"
    key = f"knowledge:{shell.namespace}:fact"
    shell("set", key, '"deep"')

    there = shell("copy", "--to", store, "knowledge").data
    shell("delete", key)
    back = shell("copy", "--from", store, "knowledge").data

    assert there[0]["imported"] >= 1
    assert back[0]["imported"] == 1
    assert shell("get", key).data == "deep"
    shell("delete", key)


def test_a_copy_that_copies_nothing_says_so(shell: Shell, tmp_path: Path) -> None:
    shell("set", "plan", "1")
    store = f"sqlite://{tmp_path}/other.db"

    nobody = shell("copy", "--to", store, "nobody-at-all")
    again = shell("copy", "--from", store)

    assert (nobody.code, again.code) == (1, 1)
    assert nobody.err == "sharedmem: nothing was copied: the server in use holds nothing of nobody-at-all\n"
    assert again.err == f"sharedmem: nothing was copied: {store} holds no namespace with data\n"


def test_foreign_records_come_in(shell: Shell, tmp_path: Path) -> None:
    records, mapping, rejects = tmp_path / "r.jsonl", tmp_path / "m.yaml", tmp_path / "rejects.jsonl"
    records.write_text('{"id": 1, "text": "hi"}\nnonsense\n{"id": 2, "text": "ho"}\n')
    mapping.write_text(f'key: "{shell.namespace}:shared:{{id}}"\nvalue: text\nttl: 600\n')
    words = ("backfill", str(records), "--mapping", str(mapping))

    dry = shell(*words, "--dry-run").data
    done = shell(*words, "--rejects", str(rejects)).data
    again = shell(*words).data

    assert [one["value"] for one in dry["preview"]] == ["hi", "ho"]
    assert (done["written"], done["rejected"], done["reasons"].keys()) == (2, 1, {"2"})
    assert json.loads(rejects.read_text())["text"] == "nonsense"
    assert (again["written"], again["unchanged"]) == (0, 2)
    assert shell("get", "2").data == "ho"


def test_cron_exports_once_a_day_and_a_restore_is_rehearsed(shell: Shell, tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path / "exports"))
    shell("set", "plan", '{"topic": "tides"}')
    nothing = shell("exports", *folder).data
    early = shell("exports", "drill", *folder)

    (first,) = shell("exports", "run", shell.namespace, *folder, "--plain").data
    (again,) = shell("exports", "run", shell.namespace, *folder, "--plain").data
    (drill,) = shell("exports", "drill", *folder).data
    (listed,) = shell("exports", "list", *folder).data

    assert nothing == []
    assert (early.code, "run `sharedmem exports run` first" in early.err) == (3, True)
    assert (first["exported"]["keys"], again["exported"], again["file"]) == (1, None, first["file"])
    assert (drill["ok"], drill["keys"], drill["missing"]) == (True, 1, 0)
    assert (listed["namespace"], listed["drilled"]) == (shell.namespace, drill["at"])


def test_a_namespace_that_cannot_be_exported_does_not_stop_the_others(shell: Shell, tmp_path: Path) -> None:
    shell("set", "plan", "1")
    unset = shell("exports", "run")

    done = shell("exports", "run", "never-written", shell.namespace, "--folder", str(tmp_path), "--plain")

    assert (unset.code, "--folder" in unset.err) == (9, True)
    assert done.code == 1
    assert "not exported: never-written" in done.err
    assert [one["namespace"] for one in json.loads(done.out)] == [shell.namespace]
    refused = shell("exports", "run", "--folder", str(tmp_path), "--daily", "0")
    assert (refused.code, "daily 0 is refused" in refused.err) == (2, True)


def test_a_drill_that_fails_has_an_exit_code(shell: Shell, tmp_path: Path) -> None:
    shell("set", "plan", "1")
    (done,) = shell("exports", "run", shell.namespace, "--folder", str(tmp_path), "--plain").data
    file = Path(done["file"])
    file.write_text(file.read_text().replace('"body"', '"bodi"'))

    assert shell("exports", "drill", "--folder", str(tmp_path)).code == 2


def test_people_see_tables(shell: Shell, tmp_path: Path) -> None:
    shell("set", "plan", "1")
    place = ("--data-dir", str(shell.data_dir))
    records, mapping = tmp_path / "r.jsonl", tmp_path / "m.yaml"
    records.write_text('{"id": 1, "text": "hi"}\nnonsense\n')
    mapping.write_text(f'key: "{shell.namespace}:shared:{{id}}"\nttl: 600\n')

    done = several_on_a_terminal(
        [*place, "export", shell.namespace, str(tmp_path / "a.jsonl")],
        [*place, "import", str(tmp_path / "a.jsonl")],
        [*place, "backfill", str(records), "--mapping", str(mapping), "--dry-run"],
        [*place, "exports", "run", shell.namespace, "--folder", str(tmp_path / "exports"), "--plain"],
        [*place, "exports", "drill", "--folder", str(tmp_path / "exports")],
        [*place, "exports", "--folder", str(tmp_path / "exports")],
    )

    assert done.out.count(" left 0") == 6, done.out
    words = ("digest", "as new there", "would be written", "is not JSON", "everything came back", "restore rehearsed")
    for word in words:
        assert word in done.out


def test_a_stopped_export_prints_how_to_go_on(shell: Shell, tmp_path: Path) -> None:
    records, mapping = tmp_path / "r.jsonl", tmp_path / "m.yaml"
    records.write_text("".join(f'{{"id": {n}, "text": "{n}"}}\n' for n in range(100_000)))
    mapping.write_text(f'key: "{shell.namespace}:shared:{{id}}"\n')
    place = ("--data-dir", str(shell.data_dir))
    process = start(*place, "backfill", str(records), "--mapping", str(mapping))

    note = tmp_path / "r.jsonl.backfill"
    wait_until(note.exists, description="the backfill notes how far it has come")
    process.send_signal(signal.SIGINT)
    done = finish(process)

    assert (done.code, "the same command goes on" in done.err) == (130, True)
    assert note.exists()
    assert shell("get", "0").data["text"] == "0"
    assert shell("clear", "--yes").code == 0


def wait_until(is_so: Callable[[], bool], *, description: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, description
        time.sleep(0.05)
