"""LangGraph's interfaces of storage on a namespace (extra `langgraph`).

A class is imported on its first use, so that the import of one does not load what the others need.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sharedmem.errors import UnsupportedError

__all__: list[str] = []

_EXTRA = "langgraph"
_MODULES: dict[str, str] = {}  # public name: the module of this package that defines it

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Import a name from the module that defines it."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
            raise UnsupportedError(name, f"pip install 'sharedmem-hub[{_EXTRA}]'")
        return globals().setdefault(name, getattr(import_module(f"{__name__}.{_MODULES[name]}"), name))


def __dir__() -> list[str]:
    return __all__
