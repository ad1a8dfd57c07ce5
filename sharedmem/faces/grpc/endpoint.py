"""Where the gRPC server listens, and what of TLS grpc is told."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from sharedmem.errors import ConfigError
from sharedmem.faces.endpoint import Address, pem

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Room for the longest reasoning (1 MiB) and what goes with it, four times over."""
_MOST_MESSAGE_BYTES = 256 * 1024 * 1024
_LEAST_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class Endpoint(Address):
    """An address for gRPC, and who may come to it.

    Args:
        host, tls_cert_file, tls_key_file, tls_client_ca_file, trust_network: as `Address`.
        port: 0 takes a free one.
        max_message_bytes: longer requests are refused with RESOURCE_EXHAUSTED.
    """

    port: int = 50_051
    max_message_bytes: int = MAX_MESSAGE_BYTES

    def check(self, *, has_tokens: bool) -> None:
        """Refuse what cannot work, and what would let strangers in.

        Raises:
            ConfigError: a number is out of bounds, TLS is half given, or others could come in unasked.
        """
        if not _LEAST_MESSAGE_BYTES <= self.max_message_bytes <= _MOST_MESSAGE_BYTES:
            wish = f"give {_LEAST_MESSAGE_BYTES} to {_MOST_MESSAGE_BYTES} bytes"
            raise ConfigError("max_message_bytes", "argument", f"{self.max_message_bytes} is refused: {wish}")
        super().check(has_tokens=has_tokens)

    def credentials(self) -> grpc.ServerCredentials | None:
        """What grpc needs for TLS; None without TLS. Reads files.

        Raises:
            ConfigError: a file cannot be read, holds no PEM, or the key is another certificate's.
        """
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        self.check_files()
        authorities = None if self.tls_client_ca_file is None else pem("tls_client_ca_file", self.tls_client_ca_file)
        pair = (pem("tls_key_file", self.tls_key_file), pem("tls_cert_file", self.tls_cert_file))
        return grpc.ssl_server_credentials([pair], authorities, authorities is not None)
