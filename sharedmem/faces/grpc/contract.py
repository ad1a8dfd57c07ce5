"""The gRPC contract in Python: the methods of memory.proto, and conversion between messages and records."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

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
