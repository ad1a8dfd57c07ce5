"""The requirement of the conformance suites: pytest, which the extra `testing` installs.

Raises (when imported):
    UnsupportedError: pytest is not installed.
"""

from sharedmem.errors import UnsupportedError

try:
    import pytest
except ImportError as error:
    raise UnsupportedError("a conformance suite", "pip install 'sharedmem-hub[testing]'") from error

__all__ = ["pytest"]
