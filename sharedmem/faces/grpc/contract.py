"""The gRPC contract in Python: the methods of memory.proto, messages as records, and errors on their way over the wire.

The server sends each error of ours as the gRPC status of its row in the one table, with the stable code and what the
error knows of its case as trailing metadata; the client makes the same error of it again. What grpc itself refuses is
reported in the same form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
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
from sharedmem.faces.grpc.v1.memory_pb2 import DESCRIPTOR
from sharedmem.models import Record

RecordT = TypeVar("RecordT", bound=Record)
MessageT = TypeVar("MessageT", bound=Message)

_SERVICE = DESCRIPTOR.services_by_name["MemoryService"]
SERVICE: str = _SERVICE.full_name


class Method(NamedTuple):
    """One method of the service."""

    name: str
    takes: type[Message]
    gives: type[Message]
    streams: bool
    """Whether it goes on answering."""

    @property
    def path(self) -> str:
        """How it is called."""
        return f"/{SERVICE}/{self.name}"


METHODS = {
    method.name: Method(
        method.name,
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        method.server_streaming,
    )
    for method in _SERVICE.methods
}
"""Every method, by name."""


def message_of(kind: type[MessageT], record: Record) -> MessageT:
    """Return a record as the message that has its fields; what is None is absent."""
    return kind(**record.model_dump(exclude_none=True))


def plain_fields(answer: object) -> Any:
    """Return an answer as a field of a message takes it: records as mappings."""
    if isinstance(answer, list | tuple):
        return [plain_fields(one) for one in answer]
    return answer.model_dump(exclude_none=True) if isinstance(answer, Record) else answer


def record_of(kind: type[RecordT], message: Message) -> RecordT:
    """A message as the record that has its fields; what is absent is None."""
    return kind.model_validate(message_fields(message))


def message_fields(message: Message) -> dict[str, object]:
    """Return the fields of a message by name, without absent ones."""
    return {
        field.name: _field_value(message, field.name)
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field_value(message: Message, name: str) -> object:
    value = getattr(message, name)
    if isinstance(value, Message):
        return message_fields(value)
    if isinstance(value, str | int | float | bytes):
        return value
    return [message_fields(item) if isinstance(item, Message) else item for item in value]


# -- errors ---------------------------------------------------------------------------------------


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
