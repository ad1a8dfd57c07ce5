"""Idempotency: a POST with an Idempotency-Key runs once; repeats receive the stored response."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.responses import Response

from sharedmem.errors import LockHeldError, ResultNotKeptError
from sharedmem.faces.rest.context import Call, Handler
from sharedmem.faces.rest.problems import AnswerNotKeptError, FieldsError, ReusedKeyError, UnderWayError

HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
_LONGEST_KEY = 255
_LEASE_S = 30.0


class _FailedError(Exception):
    """The call itself has failed: nothing is kept, and the next one with this key does it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def run_once(call: Call, answer: Handler) -> Response:
    """The answer to a call that has an `Idempotency-Key`; what fails is not kept and may be tried again.

    Two round trips more than the call itself, one when the answer is there already. Large answers lie in the blob
    store.

    Raises:
        FieldsError: the key is none.
        ReusedKeyError: it stands for another request.
        UnderWayError: the first request with it is being answered still.
        AnswerNotKeptError: the first request with it was done, but its answer could not be kept.
    """
    key = _key(call)
    digest = await _digest(call)
    ran = False

    async def run() -> dict[str, Any]:
        nonlocal ran
        ran = True
        try:
            return _stored_response(await answer(call), digest)
        except Exception as error:
            raise _FailedError(error) from error

    try:
        told = await call.store.once(key, run, ttl=call.terms.idempotency_ttl_s, lease=_LEASE_S, wait=0)
    except _FailedError as failed:
        raise failed.cause from None
    except LockHeldError:
        raise UnderWayError from None
    except ResultNotKeptError as error:
        raise AnswerNotKeptError from error
    if told["digest"] != digest:
        raise ReusedKeyError
    headers = told["headers"] if ran else told["headers"] | {REPLAYED: "true"}
    return Response(told["body"], told["status"], headers)


def _key(call: Call) -> str:
    key = call.header(HEADER) or ""
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
        raise FieldsError([(HEADER, f"give 1 to {_LONGEST_KEY} characters that can be printed")])
    # Digested with the caller: nobody can ask for the answers of somebody else.
    return "rest.once." + hashlib.sha256(f"{call.caller}\n{key}".encode()).hexdigest()


async def _digest(call: Call) -> str:
    scope = call.request.scope
    told = hashlib.sha256(f"{scope['method']} {scope['path']}\n".encode())
    told.update(scope["query_string"] + b"\n" + await call.body())
    return told.hexdigest()


def _stored_response(response: Response, digest: str) -> dict[str, Any]:
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return {"digest": digest, "status": response.status_code, "headers": headers, "body": bytes(response.body)}
