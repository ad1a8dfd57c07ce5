"""How much chance is tried: less in every run, so that it ends soon, and all of it with SHAREDMEM_TEST_THOROUGH=1."""

from __future__ import annotations

import os

_THOROUGH = os.environ.get("SHAREDMEM_TEST_THOROUGH") == "1"


def example_count(usual: int, *, thorough: int) -> int:
    """How many examples hypothesis tries.

    Args:
        usual: in every run.
        thorough: when asked for.
    """
    return thorough if _THOROUGH else usual
