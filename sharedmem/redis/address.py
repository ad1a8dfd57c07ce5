"""The address of a Redis server, and its credentials and TLS files, parsed from a URL: no connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from sharedmem.config import Settings
from sharedmem.errors import ConfigError

Mode = Literal["standalone", "sentinel", "cluster"]
_DEFAULT_PORT = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}
_SCHEMES: dict[str, tuple[Mode, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "unix": ("standalone", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}


@dataclass(frozen=True)
class RedisAddress:
    """One server, sentinel group or cluster."""

    mode: Mode
    hosts: tuple[tuple[str, int], ...] = ()
    path: str | None = None
    """Path of the unix socket, instead of hosts."""
    database: int = 0
    service: str | None = None
    """The name of the master that the sentinels watch."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True

    def __str__(self) -> str:
        """Return the address for display, without the password."""
        if self.path:
            return f"unix://{self.path}"
        scheme = ("rediss" if self.tls else "redis") + ("" if self.mode == "standalone" else f"+{self.mode}")
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{scheme}://{hosts}" + (f"/{self.service}" if self.service else "")

    @property
    def url(self) -> str:
        """The URL with its database, for other clients (without the password)."""
        if self.path:
            return f"unix://{self.path}?db={self.database}"
        return str(self) if self.mode == "cluster" else f"{self}/{self.database}"

    def login_commands(self, login: tuple[str, str] | None = None) -> list[tuple[str | int, ...]]:
        """Return the commands that a new connection begins with; none if there is nothing to say.

        Args:
            login: user and password; None: as in the address.
        """
        commands: list[tuple[str | int, ...]] = []
        if login is not None:
            commands.append(("AUTH", *login))
        elif self.password is not None or self.username is not None:
            user = () if self.username is None else (self.username,)
            commands.append(("AUTH", *user, self.password or ""))  # some users have no password
        if self.database:
            commands.append(("SELECT", self.database))
        return commands

    def at(self, place: tuple[str, int]) -> RedisAddress:
        """Return one server of a cluster, with the same credentials."""
        return replace(self, mode="standalone", hosts=(place,))

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.tls_ca_file)
        if self.tls_cert_file:
            context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        if not self.tls_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def parse_address(url: str, settings: Settings) -> RedisAddress:
    """Return the address from a URL and the settings.

    Args:
        url: `redis[s]://[user:password@]host[:port][/db]`, `unix:///path.sock[?db=n]`,
            `redis[s]+sentinel://host[:port][,host...]/service[/db]`, or `redis[s]+cluster://host[:port][,host...]`.
        settings: user, password and TLS files, if the URL does not contain them.

    Raises:
        ConfigError: the URL has none of these forms.
    """
    origin = settings.origin("redis_url")
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ConfigError("redis_url", origin, f"scheme {parts.scheme!r} is not one of {', '.join(_SCHEMES)}")
    mode, tls = _SCHEMES[parts.scheme]
    username, password = _login(parts, settings)
    service, database = _path(parts, mode, origin)
    return RedisAddress(
        mode=mode,
        hosts=() if parts.scheme == "unix" else _hosts(parts, mode, origin),
        path=unquote(parts.path) if parts.scheme == "unix" else None,
        database=database,
        service=service,
        username=username,
        password=password,
        tls=tls,
        tls_ca_file=_text(settings.tls_ca_file),
        tls_cert_file=_text(settings.tls_cert_file),
        tls_key_file=_text(settings.tls_key_file),
        tls_verify=settings.tls_verify,
    )


def check_tls(address: RedisAddress, settings: Settings) -> None:
    """Read the TLS files once, so that an error names the wrong file, and not only at each connection.

    Raises:
        ConfigError: a file does not exist, or has the wrong content.
    """
    for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
        file = getattr(address, name)
        if address.tls and file is not None and not Path(file).is_file():
            raise ConfigError(name, settings.origin(name), f"there is no file {file!r}")
    try:
        address.ssl_context()
    except OSError as error:  # ssl.SSLError is a subclass
        wrong = "tls_cert_file" if address.tls_cert_file and _reads_as_authority(address) else "tls_ca_file"
        problem = f"{getattr(address, wrong)!r} is not a valid TLS file for this setting: {error}"
        raise ConfigError(wrong, settings.origin(wrong), problem) from error


def _reads_as_authority(address: RedisAddress) -> bool:
    try:
        ssl.create_default_context(cafile=address.tls_ca_file)
    except OSError:
        return False
    return True


def _text(path: object) -> str | None:
    return None if path is None else str(path)


def _login(parts: SplitResult, settings: Settings) -> tuple[str | None, str | None]:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    secret = settings.redis_password
    return (
        unquote(user) or settings.redis_username,
        unquote(password) or (secret.get_secret_value() if secret else None),
    )


def _hosts(parts: SplitResult, mode: Mode, origin: str) -> tuple[tuple[str, int], ...]:
    named = parts.netloc.rpartition("@")[2]
    return tuple(_host(item, mode, origin) for item in (named or "localhost").split(","))


def _host(item: str, mode: Mode, origin: str) -> tuple[str, int]:
    try:
        split = urlsplit(f"//{item}")
        return split.hostname or "localhost", split.port or _DEFAULT_PORT[mode]
    except ValueError as error:
        raise ConfigError("redis_url", origin, f"{item!r} is not a host and port: {error}") from error


def _path(parts: SplitResult, mode: Mode, origin: str) -> tuple[str | None, int]:
    """Return (sentinel service, database)."""
    words = [] if parts.scheme == "unix" else [unquote(word) for word in parts.path.split("/") if word]
    service = None
    if mode == "sentinel":
        if not words:
            raise ConfigError("redis_url", origin, "a sentinel URL ends with the master's name: .../mymaster")
        service, words = words[0], words[1:]
    database = parse_qs(parts.query).get("db", words[:1])[:1] or ["0"]
    if not database[0].isdigit():
        raise ConfigError("redis_url", origin, f"database {database[0]!r} is not a number")
    if mode == "cluster" and database[0] != "0":
        raise ConfigError("redis_url", origin, "a cluster has only database 0")
    return service, int(database[0])
