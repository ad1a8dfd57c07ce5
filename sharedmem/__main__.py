"""The console script `sharedmem`, and `python -m sharedmem`: the command line, if its extra is installed."""

from __future__ import annotations

import gc
import sys

from sharedmem.errors import UnsupportedError


def main() -> None:
    """Run the command line of this process; without the extra `cli`, print which package to install."""
    # What imports make stays to the end: looking through it for garbage, again and again, took a tenth of a command.
    gc.disable()
    try:
        from sharedmem.faces import cli  # noqa: PLC0415  # an extra; it reports itself how to install it
    except UnsupportedError as error:
        sys.stderr.write(f"sharedmem: {error}\n")
        sys.exit(error.codes.exit_code)
    gc.freeze()
    gc.enable()
    cli.main()


if __name__ == "__main__":
    main()
