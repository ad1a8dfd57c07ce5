"""Errors on their way over the wire: a status, the stable code, and what the error knows of its case.

The server tells each error of ours by the gRPC status of its row in the one table, with the trailing metadata below;
the client makes the same error of it again. What grpc itself refuses is reported in the same form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NoReturn

import grpc
from grpc.aio import AioRpcError, Metadata

from sharedmem.errors import (
    AccessDeniedError,
    InternalError,
    InvalidError,
    SharedMemoryError,
    UnavailableError,
    UnsupportedError,
    restored,
)

CODE = "sharedmem-code"
"""The stable code of the error, `version_conflict` and so on."""
RETRY_AFTER = "retry-after-ms"
"""In how many milliseconds it makes sense to try again; absent where it does not."""
FACTS = "sharedmem-error-bin"
"""The attributes of the error as a JSON object."""
_PUSHBACK = "grpc-retry-pushback-ms"
_LONGEST_FACTS = 4096
_NAMED = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer came in time; it may have done its work: look before you repeat it",
    grpc.StatusCode.CANCELLED: "the server broke the call off; look whether it did its work before you repeat it",
}
_UNREACHABLE = "nothing answers there; is `sharedmem serve grpc` running, and are port, TLS and its certificate right?"

Trailers = tuple[tuple[str, str | bytes], ...]


def status_of(error: SharedMemoryError) -> grpc.StatusCode:
    """The status of an error."""
    return grpc.StatusCode[error.codes.grpc_status]


def trailers_of(error: SharedMemoryError) -> Trailers:
    """The trailing metadata of an error."""
    trailers: list[tuple[str, str | bytes]] = [(CODE, error.code)]
    facts = json.dumps(_error_fields(error)).encode()
    if len(facts) <= _LONGEST_FACTS:
        trailers.append((FACTS, facts))
    retry_after = getattr(error, "retry_after", None)
    if isinstance(retry_after, int | float):
        trailers.append((RETRY_AFTER, str(round(retry_after * 1000))))
    if isinstance(error, UnavailableError):
        # The hub has tried again for as long as its settings say: a client that did so too would only wait longer.
        trailers.append((_PUSHBACK, "-1"))
    return tuple(trailers)


def raise_sharedmem_error(error: AioRpcError, call: str, target: str) -> NoReturn:
    """Raise the error that the server meant.

    Args:
        error: what grpc raised.
        call: name of the method.
        target: the server, as its client knows it.

    Raises:
        SharedMemoryError: the class that the server raised, with its attributes; of what grpc refused the nearest.
    """
    trailers = _trailers(error.trailing_metadata())
    code = trailers.get(CODE)
    known = _by_code().get(code) if isinstance(code, str) else None
    if known is not None:
        raise _rebuild_error(known, error.details() or "", trailers) from error
    raise _map_grpc_error(error, call, target) from error


def _error_fields(error: SharedMemoryError) -> dict[str, object]:
    kinds = (str, int, float, tuple, type(None))
    return {name: value for name, value in vars(error).items() if name[0] != "_" and isinstance(value, kinds)}


def _trailers(metadata: Metadata | None) -> dict[str, str | bytes]:
    # Iterated: in older releases of grpc it is a mapping in name only.
    return {} if metadata is None else dict(iter(metadata))


def _by_code() -> dict[str, type[SharedMemoryError]]:
    found: dict[str, type[SharedMemoryError]] = {}
    for known in _subclasses(SharedMemoryError):
        found.setdefault(known.codes.code, known)
    return found


def _subclasses(root: type[SharedMemoryError]) -> Iterator[type[SharedMemoryError]]:
    yield root
    for child in root.__subclasses__():
        yield from _subclasses(child)


def _rebuild_error(
    known: type[SharedMemoryError], sentence: str, trailers: dict[str, str | bytes]
) -> SharedMemoryError:
    # Its constructor would make the sentence anew, of parts that are inside of it already.
    facts = trailers.get(FACTS)
    told = json.loads(facts).items() if isinstance(facts, bytes) else ()
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in told}
    return restored(known, (sentence,), fields)


def _map_grpc_error(error: AioRpcError, call: str, target: str) -> SharedMemoryError:
    """What a refusal of grpc itself comes closest to."""
    status, details = error.code(), error.details() or "no details"
    server = f"{call} at {target}"
    match status:
        case grpc.StatusCode.UNAVAILABLE:
            return UnavailableError(server, f"{_UNREACHABLE} ({details})")
        case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return UnavailableError(server, _NAMED[status])
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return AccessDeniedError("caller", target, f"call {call} at", details)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidError("message", call, f"{details}; send or ask for less at once, or raise max_message_bytes")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedError(server, "the server knows no such call; are both of the same version?")
    return InternalError(f"{server} failed with {status.name}: {details}")
