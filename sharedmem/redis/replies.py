"""Replies of the server, and its errors as the errors of this library.

These exceptions stay inside the house: `wire.faults` turns them into the errors that users see.
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
    """The server refused a command: nothing of it has happened, and the connection is well.

    Args:
        text: the server's words, of which the first is the code.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0].partition(":")[0].rstrip(",")


class LostError(Exception):
    """The connection was lost, or could not be had: the command may or may not have happened."""


class Load(NamedTuple):
    """How busy a transport is."""

    open: int
    """Connections."""
    waiting: int
    """Calls whose answers have not come yet."""


def raise_if_error(reply: Reply) -> Reply:
    """Return the reply, unless it is an error.

    Raises:
        ServerError: it is one.
    """
    if isinstance(reply, ServerError):
        raise reply
    return reply


# The server will think otherwise in a moment: it starts, fails over, moves slots, or runs a long script.
TRANSIENT_CODES = frozenset({"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY"})
_UNAVAILABLE = {
    "LOADING": "it is still loading its data; try again in a moment",
    "READONLY": "it is a read-only replica; connect to the master, or through redis+sentinel://",
    "TRYAGAIN": "slots are moving between its nodes; try again in a moment",
    "CLUSTERDOWN": "the cluster has lost slots; look at CLUSTER INFO on a node",
    "MASTERDOWN": "its master is away and it may not answer for it",
    "BUSY": "it runs a long script; try again, or end it with SCRIPT KILL",
    "OOM": "it is out of memory (maxmemory); delete keys, give them a ttl, or raise maxmemory",
    "MISCONF": "it cannot save to its disk and refuses writes; free space there, then look at its log",
    "CLOSED": "the namespace is being cleared; try again when that is done",
    "FULL": "too many changes wait for the durable tier; `sharedmem durable status` says why they do not get there",
    "NOREPLICAS": "too few replicas are in reach for its min-replicas-to-write",
    "STALE": "the call was given up before the server came to it",
}
_LOGIN = {
    "WRONGPASS": "user or password is wrong; check SHAREDMEM_REDIS_URL, or redis_username and redis_password",
    "NOAUTH": "the server wants a password; put it in the URL or in SHAREDMEM_REDIS_PASSWORD",
}
_REDIRECTION = frozenset({"MOVED", "ASK"})


def public_error(error: LostError | ServerError, address: str) -> SharedMemoryError:
    """Return the public error for a failure of the connection or the server.

    Args:
        error: what came back from the wire.
        address: the server, as people write it.
    """
    if isinstance(error, LostError):
        if (distrust := _certificate_problem(error)) is not None:
            return ConfigError("tls_ca_file", address, distrust)
        return UnavailableError(f"Redis at {address}", f"{error}; is it running, and is the address right?")
    if (advice := _url_advice(error)) is not None:
        return ConfigError("redis_url", address, advice)
    if error.code == "ERR" and "AUTH" in error.text:
        return ConfigError("redis_password", address, "the server has no password set; leave it out")
    if "max number of clients" in error.text:
        return UnavailableError(
            f"Redis at {address}", "it has no room for another client; close some or raise maxclients"
        )
    if error.code in _UNAVAILABLE:
        return UnavailableError(f"Redis at {address}", _UNAVAILABLE[error.code])
    if error.code == "NOPERM":
        return AccessDeniedError("the Redis user", address, "use there what this call needs", error.text)
    if error.code == "ERR" and "unknown command" in error.text:
        return UnsupportedError(error.text.removeprefix("ERR "), "this server lacks the command; see hub.powers")
    return InternalError(f"Redis at {address} answered: {error.text}")


def _url_advice(error: ServerError) -> str | None:
    """Return how the URL should be written, if that is what is wrong."""
    if error.code in _REDIRECTION:
        return "this server is one of a cluster; begin the URL with redis+cluster://"
    if "cluster support disabled" in error.text:
        return "this server is no cluster; begin the URL with redis://"
    if "DB index" in error.text:
        return "this server has no database of that number; end the URL with a smaller one, most often /0"
    if "SELECT is not allowed" in error.text:
        return "a cluster has database 0 only; end the URL without a number"
    return _LOGIN.get(error.code)


def _certificate_problem(error: BaseException) -> str | None:
    """What is wrong with somebody's certificate, if that is why the connection failed."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted: {cause.verify_message}; name the authority that signed it in"
            " tls_ca_file, and connect by the name that it is made out to"
        )
    if cause is not None and "CERTIFICATE" in str(cause):
        return f"the server does not accept our certificate ({cause.reason}); set tls_cert_file and tls_key_file"
    return None


def public_key_error(error: ServerError, address: str, *, key: str, held: str, wanted: str) -> SharedMemoryError:
    """Return the public error for a refused call on one key.

    Args:
        error: what the server said.
        address: the server, as people write it.
        key: the logical key of the call.
        held: the Redis type that the key holds.
        wanted: the type that the call works on, in words.
    """
    if error.code == "WRONGTYPE":
        return WrongTypeError(key, held, wanted)
    if "not an integer" in error.text or "not a valid integer" in error.text:
        return InvalidError(
            "key", key, "what it holds is no whole number of 64 bits, so it cannot be counted up or down"
        )
    if "overflow" in error.text or "out of range" in error.text:
        return InvalidError("key", key, "the result would leave the range of 64-bit whole numbers")
    return public_error(error, address)
