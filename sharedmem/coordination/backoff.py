"""Back-off: how long a task that failed pauses before it is tried again."""

from __future__ import annotations

from sharedmem.coordination.ground import check_seconds
from sharedmem.errors import InvalidError
from sharedmem.models.tasks import Backoff

LONGEST_PAUSE_S = 31 * 86_400.0
_DOUBLED_AT_MOST = 62


def pause_after(attempt: int, backoff: Backoff, luck: float) -> float:
    """Seconds to pause after an attempt, spread so that tasks which failed together do not come back together.

    Args:
        attempt: which attempt has failed, from 1 on.
        backoff: how pauses grow.
        luck: a random number from 0 to 1.
    """
    doubled = min(attempt - 1, _DOUBLED_AT_MOST)
    return luck * min(backoff.longest, backoff.first * 2.0**doubled)


def check_backoff(backoff: Backoff | tuple[float, float]) -> Backoff:
    """A back-off in full form.

    Raises:
        InvalidError: it is none, or its pauses would shrink.
    """
    if isinstance(backoff, tuple) and len(backoff) == 2:
        backoff = Backoff.model_construct(first=backoff[0], longest=backoff[1])
    if not isinstance(backoff, Backoff):
        raise InvalidError("backoff", backoff, "give (seconds at first, seconds at most), or a Backoff")
    check_seconds("backoff", backoff.first, least=0, most=LONGEST_PAUSE_S)
    check_seconds("backoff", backoff.longest, least=backoff.first, most=LONGEST_PAUSE_S)
    return backoff
