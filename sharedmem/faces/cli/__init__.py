"""The command line: `sharedmem`, which speaks data to programs and tables to people."""

from sharedmem.faces.cli.main import main, run

__all__ = ["main", "run"]
