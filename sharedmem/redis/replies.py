"""Replies of the server, and its errors as the errors of this library.

These exceptions are internal: `public_error` turns them into the errors that callers get.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple, TypeAlias

from sharedmem.errors import (
    AccessDeniedError,
    ConfigError,
    InternalError,
    InvalidError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
    WrongTypeError,
)

Argument: TypeAlias = bytes | str | int
Command: TypeAlias = tuple[Argument, ...]
Reply: TypeAlias = "bytes | int | list[Reply] | ServerError | None"


class ServerError(Exception):
    """The server refused a command: it was not executed, and the connection is still usable.

    Args:
        text: error text of the server; its first word is the code.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0].partition(":")[0].rstrip(",")

    @property
    def is_transient(self) -> bool:
        """Whether the same command may succeed in a moment."""
        return self.code in _TRANSIENT_CODES

    @property
    def is_logged_out(self) -> bool:
        """Whether the connection has no log-in; the server closes it after a long command."""
        return self.code == "NOAUTH" or "Protocol error: unauthenticated" in self.text


class LostError(Exception):
    """The connection was lost, or could not be opened: the command may or may not have been executed."""


class CredentialsError(LostError):
    """There is no log-in now: the provider of credentials fails, or the server does not accept what it gives."""


class Load(NamedTuple):
    """The load of a transport."""

    open: int
    """Number of connections."""
    waiting: int
    """Number of calls without a reply."""


def raise_if_error(reply: Reply) -> Reply:
    """Return the reply, unless it is an error.

    Raises:
        ServerError: the reply is an error.
    """
    if isinstance(reply, ServerError):
        raise reply
    return reply


# Temporary errors: the server starts, fails over, moves slots, or runs a long script.
_TRANSIENT_CODES = frozenset({"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY"})
_UNAVAILABLE = {
    "LOADING": "it is still loading its data; try again in a moment",
    "READONLY": "it is a read-only replica; connect to the master, or through redis+sentinel://",
    "TRYAGAIN": "slots are moving between its nodes; try again in a moment",
    "CLUSTERDOWN": "the cluster has lost slots; check CLUSTER INFO on a node",
    "MASTERDOWN": "its master is away and it may not serve stale data",
    "BUSY": "it runs a long script; try again, or end it with SCRIPT KILL",
    "OOM": "it is out of memory (maxmemory); delete keys, give them a ttl, or raise maxmemory",
    "MISCONF": "it cannot save to its disk and refuses writes; free space there, then check its log",
    "CLOSED": "the namespace is being cleared; try again when that is done",
    "FULL": "too many changes wait for the durable tier; `sharedmem durable status` shows why they are not delivered",
    "NOREPLICAS": "too few replicas are connected for its min-replicas-to-write",
    "STALE": "the call had timed out before the server executed it",
}
_LOGIN = {
    "WRONGPASS": "user or password is wrong; check SHAREDMEM_REDIS_URL, or redis_username and redis_password",
    "NOAUTH": "the server requires a password; put it in the URL or in SHAREDMEM_REDIS_PASSWORD",
}
LOGIN_REFUSALS = frozenset(_LOGIN)
"""Codes of the server for a log-in that it does not accept, or misses."""
_REDIRECTION = frozenset({"MOVED", "ASK"})


def public_error(error: LostError | ServerError, address: str) -> SharedMemoryError:
    """Return the public error for a failure of the connection or the server.

    Args:
        error: the internal error.
        address: the server, for the error.
    """
    if isinstance(error, LostError):
        if (distrust := _certificate_problem(error)) is not None:
            return ConfigError("tls_ca_file", address, distrust)
        question = "" if isinstance(error, CredentialsError) else "; is it running, and is the address right?"
        return UnavailableError(f"Redis at {address}", f"{error}{question}")
    if (advice := _url_advice(error)) is not None:
        return ConfigError("redis_url", address, advice)
    if error.code == "ERR" and "AUTH" in error.text:
        return ConfigError("redis_password", address, "the server has no password set; leave it out")
    if "max number of clients" in error.text:
        return UnavailableError(f"Redis at {address}", "it has too many clients; close some or raise maxclients")
    if error.code in _UNAVAILABLE:
        return UnavailableError(f"Redis at {address}", _UNAVAILABLE[error.code])
    if error.code == "NOPERM":
        return AccessDeniedError("the Redis user", address, "allow what this call needs", error.text)
    if error.code == "ERR" and "unknown command" in error.text:
        return UnsupportedError(error.text.removeprefix("ERR "), "this server lacks the command; see hub.powers")
    return InternalError(f"Redis at {address} replied: {error.text}")


def _url_advice(error: ServerError) -> str | None:
    """Return how to correct the URL, if it is wrong."""
    if error.code in _REDIRECTION:
        return "this server is part of a cluster; begin the URL with redis+cluster://"
    if "cluster support disabled" in error.text:
        return "this server is not a cluster; begin the URL with redis://"
    if "DB index" in error.text:
        return "this server has no database with that number; end the URL with a smaller one, usually /0"
    if "SELECT is not allowed" in error.text:
        return "a cluster has database 0 only; end the URL without a number"
    return _LOGIN.get(error.code)


def _certificate_problem(error: BaseException) -> str | None:
    """Return the problem with a certificate, if it made the connection fail."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted: {cause.verify_message}; set tls_ca_file to the authority that"
            " signed it, and connect with a host name from the certificate"
        )
    if cause is not None and "CERTIFICATE" in str(cause):
        return f"the server does not accept the client certificate ({cause.reason}); set tls_cert_file and tls_key_file"
    return None


def public_key_error(error: ServerError, address: str, *, key: str, held: str, wanted: str) -> SharedMemoryError:
    """Return the public error for a refused call on one key.

    Args:
        error: the error of the server.
        address: the server, for the error.
        key: the logical key of the call.
        held: the Redis type of the key.
        wanted: the type that the call needs, in words.
    """
    if error.code == "WRONGTYPE":
        return WrongTypeError(key, held, wanted)
    if "not an integer" in error.text or "not a valid integer" in error.text:
        return InvalidError("key", key, "its value is not a whole number of 64 bits, so it cannot be incremented")
    if "overflow" in error.text or "out of range" in error.text:
        return InvalidError("key", key, "the result would exceed the range of 64-bit whole numbers")
    return public_error(error, address)
