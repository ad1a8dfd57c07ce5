"""`mcp install`: the server is entered in a client's configuration, and nothing else in it changes."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shell import Shell

from sharedmem.faces.cli.mcp import CLIENTS, ServerEntry, merged, rendered

ENTRY = ServerEntry("sharedmem", "/bin/sharedmem", ["--namespace", 'a "b"', "serve", "mcp"], {"URL": "x\\y"})


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")


@pytest.mark.parametrize(
    ("client", "place"),
    [
        ("claude-code", "project/.mcp.json"),
        ("claude-desktop", "home/.config/Claude/claude_desktop_config.json"),
        ("cursor", "home/.cursor/mcp.json"),
        ("vscode", "project/.vscode/mcp.json"),
        ("codex", "home/.codex/config.toml"),
    ],
)
def test_each_client_gets_it_where_it_looks(shell: Shell, tmp_path: Path, client: str, place: str) -> None:
    told = shell("mcp", "install", client, "--write", "--yes")

    text = (tmp_path / place).read_text()
    held = tomllib.loads(text) if place.endswith("toml") else json.loads(text)
    entry = held[CLIENTS[client].section]["sharedmem"]
    assert (told.code, told.data["file"], told.data["backup"]) == (0, str(tmp_path / place), None)
    assert " ".join(entry["args"]).startswith(("-m sharedmem --namespace", "--namespace"))
    assert shell.namespace in entry["args"]
    assert entry["args"][-3:] == ["serve", "mcp", "--write"]
    assert Path(entry["command"]).is_absolute()
    assert stat.S_IMODE((tmp_path / place).stat().st_mode) == 0o600  # the address of the server may have a password


def test_what_is_there_stays_and_is_kept_beside_it(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    held = {"theme": "dark", "mcpServers": {"other": {"command": "x"}, "sharedmem": {"command": "old"}}}
    file.write_text(json.dumps(held))

    told = shell("mcp", "install", "cursor", "--file", str(file), "--yes")

    now = json.loads(file.read_text())
    assert now["mcpServers"].pop("sharedmem")["args"][-2:] == ["serve", "mcp"]
    assert now == {"theme": "dark", "mcpServers": {"other": {"command": "x"}}}
    assert json.loads(Path(told.data["backup"]).read_text()) == held


def test_it_is_shown_first_and_print_changes_nothing(shell: Shell, tmp_path: Path) -> None:
    unasked = shell("mcp", "install", "cursor")
    printed = shell("mcp", "install", "cursor", "--print")

    assert (unasked.code, "--namespace" in unasked.err, "say --yes" in unasked.err) == (2, True, True)
    assert json.loads(printed.out)["mcpServers"]["sharedmem"]["args"][-2:] == ["serve", "mcp"]
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("client", "content", "problem"),
    [
        ("cursor", "// mine\n{}", "not plain JSON"),
        ("cursor", "[]", "no object"),
        ("vscode", '{"servers": []}', "no object"),
        ("codex", "[mcp_servers", "not as expected"),
        ("codex", 'mcp_servers = { sharedmem = { command = "x" } }', "not as expected"),
    ],
)
def test_a_file_that_could_lose_something_is_left_alone(
    shell: Shell, tmp_path: Path, client: str, content: str, problem: str
) -> None:
    file = tmp_path / "config"
    file.write_text(content)

    told = shell("mcp", "install", client, "--file", str(file), "--yes")

    assert (told.code, problem in told.err, "--print" in told.err) == (9, True, True)
    assert file.read_text() == content


def test_mistakes_get_a_sentence(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")

    client = shell("mcp", "install", "zed")
    name = shell("mcp", "install", "cursor", "--name", "a b")
    tools = shell("mcp", "install", "cursor", "--tools", "magic")
    folder = shell("mcp", "install", "cursor", "--file", str(tmp_path / "plain" / "x.json"), "--yes")

    assert (client.code, "claude-code, claude-desktop" in client.err) == (2, True)
    assert (name.code, "name" in name.err) == (2, True)
    assert (tools.code, "magic" in tools.err) == (2, True)
    assert (folder.code, "cannot be" in folder.err or "Not a directory" in folder.err) == (9, True)


TABLES = st.lists(
    st.sampled_from(
        [
            'model = "o9"\n',
            '# a comment\n[profiles.fast]\nmodel = "x" # [mcp_servers.sharedmem]\n',
            '[mcp_servers.other]\ncommand = "y"\nargs = ["[", "]"]\n',
            '[mcp_servers.sharedmem]\ncommand = "old"\n',
            '[mcp_servers.sharedmem.env]\nA = "b"\n',
            "[[lists]]\nx = 1\n",
        ]
    ),
    unique=True,
).map(lambda tables: "\n".join(sorted(tables, key=lambda table: table.startswith(("[", "#")))))


@given(before=TABLES)
def test_toml_keeps_all_other_tables_and_comments(tmp_path_factory: pytest.TempPathFactory, before: str) -> None:
    file = tmp_path_factory.mktemp("codex") / "config.toml"
    file.write_text(before)

    after = merged(CLIENTS["codex"], ENTRY, file)

    held, found = tomllib.loads(before), tomllib.loads(after)
    assert found["mcp_servers"].pop("sharedmem") == ENTRY.fields()
    held.setdefault("mcp_servers", {}).pop("sharedmem", None)
    assert found == held
    assert after.count("# a comment") == before.count("# a comment")
    assert after.endswith(rendered(CLIENTS["codex"], ENTRY))
