"""How many random examples are tried: fewest in `make quick`, and all at night or with SHAREDMEM_TEST_THOROUGH."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

_THOROUGH = os.environ.get("SHAREDMEM_TEST_THOROUGH") == "1"
_budget = SimpleNamespace(share=1)
"""`share`: one in so many of the usual examples is tried."""


def example_count(usual: int, *, thorough: int) -> int:
    """How many examples hypothesis tries.

    Args:
        usual: in every run; `make quick` tries a third of them.
        thorough: when asked for.
    """
    return thorough if _THOROUGH else max(usual // _budget.share, 1)


def try_one_in(share: int) -> None:
    """Try fewer examples in this run than usual, from before tests are collected."""
    _budget.share = share


def seeds(usual: int, *, nightly: int) -> list[Any]:
    """List the seeds of a test that plays one story with several of them.

    Args:
        usual: how many are tried in every run.
        nightly: how many are tried at night.
    """
    at_night = pytest.mark.nightly
    return [pytest.param(seed, marks=[at_night] if seed >= usual else []) for seed in range(nightly)]
