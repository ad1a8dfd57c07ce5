"""Sign webhook calls and verify their signatures."""

from __future__ import annotations

import hashlib
import hmac
import re
import time

SIGNATURE_HEADER = "X-Sharedmem-Signature"
"""`t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>" in hexadecimal digits>`."""
DELIVERY_HEADER = "X-Sharedmem-Delivery"
"""The same for every attempt to deliver one thing: who has seen it before may leave the call alone."""

_LONGEST_HEADER = 1_024
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


def signature_header(secret: str, body: bytes, *, timestamp: int) -> str:
    """What the header of a call holds.

    Args:
        secret: the key that caller and receiver share.
        body: what is sent, byte for byte.
        timestamp: when, in seconds since 1970.
    """
    return f"t={timestamp},v1={_signature(secret, body, str(timestamp))}"


def verify_signature(
    secret: str, header: str, body: bytes, *, tolerance_s: float = 300.0, now_s: float | None = None
) -> bool:
    """Whether a call comes from who has the secret, unchanged, and was sent just now. For receivers.

    Args:
        secret: the key that caller and receiver share (the setting `webhook_secret`).
        header: value of `X-Sharedmem-Signature`; one of several `v1` in it is enough.
        body: what came, byte for byte, before anybody reads it as JSON.
        tolerance_s: how far in the past or the future it may have been signed.
        now_s: the time in seconds since 1970; None looks at the clock.

    Example:
        if not verify_signature(SECRET, request.headers["X-Sharedmem-Signature"], await request.body()):
            return Response(status_code=403)
    """
    if len(header) > _LONGEST_HEADER:
        return False
    pairs = [part.strip().partition("=") for part in header.split(",")]
    timestamps = [value for name, _, value in pairs if name == "t"]
    if len(timestamps) != 1 or not _TIMESTAMP.fullmatch(timestamps[0]):
        return False
    age_s = (time.time() if now_s is None else now_s) - int(timestamps[0])
    if abs(age_s) > tolerance_s:
        return False
    expected = _signature(secret, body, timestamps[0]).encode()
    shown = [value.encode() for name, _, value in pairs if name == "v1"]
    return any(hmac.compare_digest(expected, one) for one in shown)


def _signature(secret: str, body: bytes, timestamp: str) -> str:
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
