"""Sign webhooks and verify them by the Standard Webhooks scheme (https://www.standardwebhooks.com)."""

from __future__ import annotations

import hmac
import re
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping

from sharedmem.errors import InvalidError

ID_HEADER = "webhook-id"
"""The same for every attempt to deliver one message: a receiver that has seen it before can ignore the call."""
TIMESTAMP_HEADER = "webhook-timestamp"
"""Seconds since 1970 at which the attempt was signed."""
SIGNATURE_HEADER = "webhook-signature"
"""`v1,<base64 of HMAC-SHA256 of "<id>.<timestamp>.<body>">`; several are separated by blanks."""

_SECRET_PREFIX = "whsec_"  # noqa: S105  # not a secret
_SECRET_BYTES = range(24, 65)
_LONGEST_HEADER = 1_024
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


def signed_headers(secret: str, message_id: str, body: bytes, *, timestamp: int) -> dict[str, str]:
    """Return the headers of a signed call.

    Args:
        secret: the secret that sender and receiver share: `whsec_` and the base64 of 24 to 64 random bytes.
        message_id: the id of the message, the same for each attempt.
        body: the bytes that are sent.
        timestamp: seconds since 1970.

    Raises:
        InvalidError: the secret is invalid.
    """
    signature = _signature(_key(secret), message_id, str(timestamp), body)
    return {ID_HEADER: message_id, TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: signature}


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = 300.0,
    now_s: float | None = None,
) -> bool:
    """Return whether a call was signed with the secret, is unchanged and is recent. For receivers.

    Args:
        secret: the secret that sender and receiver share (the setting `webhook_secret`).
        headers: of the request; upper and lower case do not matter.
        body: the bytes as they were received, before they are parsed as JSON.
        tolerance_s: seconds that the time of the signature may differ from now.
        now_s: the time in seconds since 1970; None reads the clock.

    Raises:
        InvalidError: the secret is invalid.

    Example:
        if not verify_webhook(SECRET, request.headers, await request.body()):
            return Response(status_code=403)
    """
    key = _key(secret)
    found = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp = found.get(ID_HEADER, ""), found.get(TIMESTAMP_HEADER, "")
    signatures = found.get(SIGNATURE_HEADER, "")
    if not message_id or not _TIMESTAMP.fullmatch(timestamp) or len(signatures) > _LONGEST_HEADER:
        return False
    if abs((time.time() if now_s is None else now_s) - int(timestamp)) > tolerance_s:
        return False
    expected = _signature(key, message_id, timestamp, body).encode()
    return any(hmac.compare_digest(expected, one.encode()) for one in signatures.split(" "))


def _key(secret: str) -> bytes:
    """Return the bytes of a secret.

    Raises:
        InvalidError: it is not `whsec_` and the base64 of 24 to 64 bytes.
    """
    try:
        key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or len(key) not in _SECRET_BYTES:
        raise InvalidError(
            "secret", "...", f"give {_SECRET_PREFIX} and the base64 of 24 to 64 bytes, as the sender has it"
        )
    return key


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return f"v1,{b64encode(signed).decode()}"
