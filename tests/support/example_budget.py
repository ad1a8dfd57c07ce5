"""How much chance is tried: less in every run, so that it ends soon; more at night or with SHAREDMEM_TEST_THOROUGH."""

from __future__ import annotations

import os
from typing import Any

import pytest

_THOROUGH = os.environ.get("SHAREDMEM_TEST_THOROUGH") == "1"


def example_count(usual: int, *, thorough: int) -> int:
    """How many examples hypothesis tries.

    Args:
        usual: in every run.
        thorough: when asked for.
    """
    return thorough if _THOROUGH else usual


def seeds(usual: int, *, nightly: int) -> list[Any]:
    """List the seeds of a test that plays one story with several of them.

    Args:
        usual: how many are tried in every run.
        nightly: how many are tried at night.
    """
    at_night = pytest.mark.nightly
    return [pytest.param(seed, marks=[at_night] if seed >= usual else []) for seed in range(nightly)]
