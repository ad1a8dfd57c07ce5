"""Configuration files of MCP clients: where they are, and how a server is entered without losing anything else."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sharedmem.errors import ConfigError, InvalidError

_BACKUP = ".before-sharedmem"


class ServerEntry(NamedTuple):
    """How a client starts the server."""

    name: str
    command: str
    args: Sequence[str]
    env: Mapping[str, str]

    def fields(self) -> dict[str, Any]:
        """Return the entry as clients write it."""
        return {"command": self.command, "args": list(self.args), **({"env": dict(self.env)} if self.env else {})}


class McpClient(NamedTuple):
    """One kind of client."""

    title: str
    file: Callable[[], Path]
    section: str
    """The name of the object, or table, that holds servers by name."""
    extra: Mapping[str, str] = {}
    """Further fields of an entry."""
    restart: str = "restart it"
    """What makes the client read the file."""

    @property
    def is_toml(self) -> bool:
        """Whether the file is TOML; otherwise it is JSON."""
        return self.section == "mcp_servers"


def _application_data() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
    return Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))


CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient(
        "Claude Code", lambda: Path.cwd() / ".mcp.json", "mcpServers", restart="start it in this folder"
    ),
    "claude-desktop": McpClient(
        "Claude Desktop", lambda: _application_data() / "Claude" / "claude_desktop_config.json", "mcpServers"
    ),
    "cursor": McpClient("Cursor", lambda: Path.home() / ".cursor" / "mcp.json", "mcpServers"),
    "vscode": McpClient(
        "VS Code",
        lambda: Path.cwd() / ".vscode" / "mcp.json",
        "servers",
        {"type": "stdio"},
        restart="open this folder and start the server there",
    ),
    "codex": McpClient(
        "Codex", lambda: Path(os.environ.get("CODEX_HOME", Path.home() / ".codex")) / "config.toml", "mcp_servers"
    ),
}


def client_named(name: str) -> McpClient:
    """Return a kind of client.

    Raises:
        InvalidError: it is not known.
    """
    if name not in CLIENTS:
        raise InvalidError("client", name, f"choose one of {', '.join(CLIENTS)}; others take what --print shows")
    return CLIENTS[name]


def rendered(client: McpClient, entry: ServerEntry) -> str:
    """Return a whole file that holds nothing but the entry."""
    if client.is_toml:
        return _toml_table(entry)
    return _json_text({client.section: {entry.name: {**client.extra, **entry.fields()}}})


def merged(client: McpClient, entry: ServerEntry, file: Path) -> str:
    """Return what a file becomes with the entry; all else in it stays as it is.

    Raises:
        ConfigError: the file cannot be read, or not be changed without risk to what else it holds.
    """
    try:
        before = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return rendered(client, entry)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, str(error)) from error
    return _merged_toml(before, entry, file) if client.is_toml else _merged_json(before, client, entry, file)


def replace_file(file: Path, text: str) -> Path | None:
    """Write a file as a whole, and keep what was there beside it; return where, None if nothing was there.

    Raises:
        ConfigError: it cannot be written.
    """
    backup = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        target = file.resolve()  # a link stays a link
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(text)
            if target.exists():
                backup = target.with_name(target.name + _BACKUP)
                backup.write_bytes(target.read_bytes())
                mode = stat.S_IMODE(target.stat().st_mode)
                backup.chmod(mode)
                Path(temporary).chmod(mode)
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError("client file", str(file), f"it cannot be written ({error.strerror or error})") from error
    return backup


def _merged_json(before: str, client: McpClient, entry: ServerEntry, file: Path) -> str:
    try:
        held = json.loads(before) if before.strip() else {}
    except ValueError as error:
        # Some clients allow comments, which a rewrite would lose.
        raise _unreadable(file, f"not plain JSON: {error}") from error
    servers = held.setdefault(client.section, {}) if isinstance(held, dict) else None
    if not isinstance(servers, dict):
        raise _unreadable(file, f"its {client.section!r} is no object")
    servers[entry.name] = {**client.extra, **entry.fields()}
    return _json_text(held)


def _merged_toml(before: str, entry: ServerEntry, file: Path) -> str:
    try:
        held = tomllib.loads(before)
        servers = held.setdefault("mcp_servers", {})
        servers.pop(entry.name, None)
        kept = _without_table(before, f"mcp_servers.{_toml_key(entry.name)}")
        after = f"{kept.rstrip()}\n\n" * bool(kept.strip()) + _toml_table(entry)
        found = tomllib.loads(after)
        found["mcp_servers"].pop(entry.name)
    except (ValueError, AttributeError, KeyError) as error:
        raise _unreadable(file, f"not as expected: {error}") from error
    if found != held:
        raise _unreadable(file, f"the entry {entry.name!r} is there in a form that is not understood")
    return after


def _without_table(text: str, name: str) -> str:
    """Return TOML without a table and the tables within it."""
    kept: list[str] = []
    waiting: list[str] = []  # comments behind the table may be those of the next one
    is_inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            header = line.strip().strip("[]").strip()
            is_inside = header == name or header.startswith(f"{name}.")
        if is_inside and line.strip() and not line.lstrip().startswith("#"):
            waiting = []
        elif is_inside:
            waiting.append(line)
        else:
            kept += [*waiting, line]
            waiting = []
    return "".join([*kept, *waiting])


def _toml_table(entry: ServerEntry) -> str:
    # A text of JSON is one of TOML.
    name = f"mcp_servers.{_toml_key(entry.name)}"
    lines = [f"[{name}]", f"command = {_quoted(entry.command)}", f"args = [{', '.join(map(_quoted, entry.args))}]"]
    if entry.env:
        lines += ["", f"[{name}.env]", *(f"{key} = {_quoted(value)}" for key, value in entry.env.items())]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if all(each.isalnum() or each in "-_" for each in name) and name.isascii() else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _unreadable(file: Path, problem: str) -> ConfigError:
    return ConfigError("client file", str(file), f"{problem}; nothing was changed: enter what --print shows by hand")
