"""The command line: `sharedmem`, which speaks data to programs and tables to people.

Raises (when imported):
    UnsupportedError: the extra `cli` is not installed.
"""

from sharedmem.errors import UnsupportedError

try:
    import rich  # noqa: F401  # the door: tables need it, at the latest
    import typer  # noqa: F401  # likewise: commands are made of it
except ImportError as error:
    raise UnsupportedError("the command line", "pip install 'sharedmem-hub[cli]'") from error

from sharedmem.faces.cli.app import main, run

__all__ = ["main", "run"]
