"""Where a server listens, and its TLS: the same for REST and gRPC."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from sharedmem.config import Settings
from sharedmem.errors import ConfigError


@dataclass(frozen=True)
class ListenAddress:
    """An address, and who may come to it.

    Args:
        host: a name or address of this machine; `127.0.0.1` is reached from nowhere else.
        port: 0 takes a free one.
        tls_cert_file: PEM file of the server's certificate, with its chain; with `tls_key_file` it makes TLS.
        tls_key_file: PEM file of its key.
        tls_client_ca_file: PEM file of authorities; clients must then show a certificate that one of them signed.
        trust_network: listen where other machines reach it even without tokens or TLS.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    trust_network: bool = False

    @property
    def address(self) -> str:
        """`host:port`."""
        return format_address(self.host, self.port)

    def is_tls(self) -> bool:
        """Whether what is said is encrypted."""
        return self.tls_cert_file is not None

    def check(self, *, has_tokens: bool) -> None:
        """Refuse what cannot work, and what would let strangers in.

        Raises:
            ConfigError: a number is out of bounds, TLS is half given, or others could come in unasked.
        """
        if not 0 <= self.port < 65_536:
            raise ConfigError("port", "argument", f"{self.port} is not a port; give 0 to 65535")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("tls_cert_file", "argument", "certificate and key belong together; give both or none")
        if self.tls_client_ca_file is not None and not self.is_tls():
            raise ConfigError("tls_client_ca_file", "argument", "it needs the server's own certificate and key too")
        if not (is_loopback(self.host) or self.trust_network or (has_tokens and self.is_tls())):
            advice = "give tokens and a certificate with its key, or trust the network explicitly"
            raise ConfigError("host", "argument", f"other machines reach {self.host!r}: {advice}")

    def check_files(self) -> None:
        """Whether the files of TLS are of use. Reads them.

        Raises:
            ConfigError: one cannot be read, holds no PEM, or the key is another certificate's.
        """
        if self.tls_cert_file is None or self.tls_key_file is None:
            return
        _check_pair(self.tls_cert_file, self.tls_key_file)
        if self.tls_client_ca_file is not None:
            read_pem("tls_client_ca_file", self.tls_client_ca_file)

    def check_free(self) -> None:
        """Whether the address can be listened at: servers themselves say little more than that it failed.

        Raises:
            ConfigError: the port is in use, or the address is not of this machine.
        """
        try:
            kind, *_, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            with contextlib.closing(socket.socket(kind)) as probe:
                # As servers do it: connections of a server that has just ended are no hindrance.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            field = "host" if isinstance(error, socket.gaierror) else "port"
            problem = f"cannot listen at {self.address}: {error.strerror}; choose another"
            raise ConfigError(field, "argument", problem) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def read_pem(field: str, path: Path) -> bytes:
    """The content of a PEM file.

    Raises:
        ConfigError: it cannot be read, or holds nothing of the kind.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(field, f"file {path}", f"it cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise ConfigError(field, f"file {path}", "it holds no PEM; it should have a line -----BEGIN ...-----")
    return content


def _check_pair(certificate: Path, key: Path) -> None:
    read_pem("tls_cert_file", certificate)
    read_pem("tls_key_file", key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        problem = f"it is of no use with {certificate} ({error.reason or 'not a key without a password'})"
        raise ConfigError("tls_key_file", f"file {key}", problem) from error


def check_access(settings: Settings, *, has_tokens: bool) -> None:
    """Refuse tokens where everybody may do everything.

    Raises:
        ConfigError: the access policy is `open`.
    """
    if has_tokens and settings.access == "open":
        problem = "it is open, so that tokens would separate no callers; set it to namespaced"
        raise ConfigError("access", settings.origin("access"), problem)
