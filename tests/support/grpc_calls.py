"""What tests of the gRPC face share: bare calls, as any other client would make them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from sharedmem.faces.grpc.contract import METHODS

Metadata = Sequence[tuple[str, str]]


class GrpcCaller:
    """Makes calls on a bare channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def __call__(
        self, name: str, request: Message, *, token: str | None = None, path: str | None = None, **more: Any
    ) -> Any:
        """Start the call of that name; await it, or iterate over a stream."""
        method = METHODS[name]
        kind: Any = self.channel.unary_stream if method.streams else self.channel.unary_unary
        call = kind(
            path or method.path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=method.gives.FromString,
        )
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        return call(request, metadata=metadata, **more)

    async def refused(self, name: str, request: Message, **more: Any) -> grpc.aio.AioRpcError:
        """The error with which a call ends."""
        try:
            call = self(name, request, **more)
            if METHODS[name].streams:
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError(f"{name} was not refused")


@asynccontextmanager
async def bare_caller(target: str) -> AsyncIterator[GrpcCaller]:
    """A caller without protection."""
    async with grpc.aio.insecure_channel(target) as channel:
        yield GrpcCaller(channel)


def trailer(error: grpc.aio.AioRpcError, name: str) -> str | bytes | None:
    """A trailing metadatum of an error."""
    metadata = error.trailing_metadata()
    return None if metadata is None else dict(iter(metadata)).get(name)
