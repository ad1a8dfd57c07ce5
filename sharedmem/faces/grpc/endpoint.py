"""Where a server listens, and under which protection."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from sharedmem.errors import ConfigError

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Room for the longest reasoning (1 MiB) and what goes with it, four times over."""
_MOST_MESSAGE_BYTES = 256 * 1024 * 1024
_LEAST_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class Endpoint:
    """An address, and who may come to it.

    Args:
        host: a name or address of this machine; `127.0.0.1` is reached from nowhere else.
        port: 0 takes a free one.
        tls_cert_file: PEM file of the server's certificate, with its chain; with `tls_key_file` it makes TLS.
        tls_key_file: PEM file of its key.
        tls_client_ca_file: PEM file of authorities; clients must then show a certificate that one of them signed.
        max_message_bytes: longer requests are refused with RESOURCE_EXHAUSTED.
        trust_network: listen where other machines reach it even without tokens or TLS.
    """

    host: str = "127.0.0.1"
    port: int = 50_051
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES
    trust_network: bool = False

    @property
    def address(self) -> str:
        """`host:port`, as grpc takes it."""
        return spelled(self.host, self.port)

    def is_tls(self) -> bool:
        """Whether what is said is encrypted."""
        return self.tls_cert_file is not None

    def check(self, *, has_tokens: bool) -> None:
        """Refuse what cannot work, and what would let strangers in.

        Raises:
            ConfigError: a number is out of bounds, TLS is half given, or others could come in unasked.
        """
        if not 0 <= self.port < 65_536:
            raise ConfigError("port", "argument", f"{self.port} is none; give 0 to 65535")
        if not _LEAST_MESSAGE_BYTES <= self.max_message_bytes <= _MOST_MESSAGE_BYTES:
            wish = f"give {_LEAST_MESSAGE_BYTES} to {_MOST_MESSAGE_BYTES} bytes"
            raise ConfigError("max_message_bytes", "argument", f"{self.max_message_bytes} is refused: {wish}")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("tls_cert_file", "argument", "certificate and key belong together; give both or none")
        if self.tls_client_ca_file is not None and not self.is_tls():
            raise ConfigError("tls_client_ca_file", "argument", "it needs the server's own certificate and key too")
        if not (is_loopback(self.host) or self.trust_network or (has_tokens and self.is_tls())):
            advice = "give tokens and a certificate with its key, or trust the network explicitly"
            raise ConfigError("host", "argument", f"other machines reach {self.host!r}: {advice}")

    def credentials(self) -> grpc.ServerCredentials | None:
        """What grpc needs for TLS; None without TLS. Reads files.

        Raises:
            ConfigError: a file cannot be read, holds no PEM, or the key is another certificate's.
        """
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        _check_pair(self.tls_cert_file, self.tls_key_file)
        authorities = None if self.tls_client_ca_file is None else pem("tls_client_ca_file", self.tls_client_ca_file)
        pair = (pem("tls_key_file", self.tls_key_file), pem("tls_cert_file", self.tls_cert_file))
        return grpc.ssl_server_credentials([pair], authorities, authorities is not None)

    def check_free(self) -> None:
        """Whether the address can be listened at: grpc itself says no more than that it failed.

        Raises:
            ConfigError: the port is in use, or the address is not of this machine.
        """
        try:
            kind, *_, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            with contextlib.closing(socket.socket(kind)) as probe:
                # As grpc does it: connections of a server that has just ended are no hindrance.
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


def spelled(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def pem(field: str, path: Path) -> bytes:
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
    pem("tls_cert_file", certificate)
    pem("tls_key_file", key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        problem = f"it is of no use with {certificate} ({error.reason or 'not a key without a password'})"
        raise ConfigError("tls_key_file", f"file {key}", problem) from error
