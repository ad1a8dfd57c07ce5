"""Options of the REST service: body size, depth, time limits, CORS origins."""

from __future__ import annotations

from dataclasses import dataclass

from sharedmem.errors import InvalidError

_MIB = 1024 * 1024


@dataclass(frozen=True)
class RestOptions:
    """What may be chosen.

    Args:
        max_body_bytes: longer bodies are refused with 413, before they are read.
        max_depth: arrays and objects inside of each other; deeper ones are refused with 400.
        body_patience_s: seconds within which a body has to be here, or it is refused with 408.
        longest_wait_s: seconds for which a call may wait for a task, a result or a lock; longer wishes are cut.
        answer_within_s: seconds after which a call is given up with 504.
        cors_origins: pages that browsers may let in (`https://app.example.org`); none by default.
        idempotency_ttl_s: seconds for which the answer to an `Idempotency-Key` is kept.
    """

    max_body_bytes: int = 4 * _MIB
    max_depth: int = 64
    body_patience_s: float = 20.0
    longest_wait_s: float = 30.0
    answer_within_s: float = 90.0
    cors_origins: tuple[str, ...] = ()
    idempotency_ttl_s: float = 86_400.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_depth", "body_patience_s", "answer_within_s", "idempotency_ttl_s"):
            if not getattr(self, name) > 0:
                raise InvalidError(name, getattr(self, name), "give more than 0")
