"""What rate limits answer."""

from __future__ import annotations

from sharedmem.models.record import Record


class Permit(Record):
    """Whether a cost was admitted; true in a condition if it was."""

    allowed: bool
    remaining: int
    """What is left just after this."""
    retry_after: float
    """Seconds until this cost can be admitted, if nobody else is faster; 0 when it was."""

    def __bool__(self) -> bool:
        return self.allowed


class LimitState(Record):
    """A rate limit as it stands."""

    name: str
    algorithm: str
    limit: int
    per: float
    """Seconds in which so much is admitted."""
    burst: int
    """What may be admitted at once: the size of the token bucket, or the limit."""
    remaining: int
    """What would be admitted now."""
    retry_after: float
    """Seconds until a cost of one can be admitted; 0 when it can be now."""
