"""The console script `sharedmem`, and `python -m sharedmem`: the command line, if its extra is installed."""

from __future__ import annotations

import sys

from sharedmem.errors import UnsupportedError


def main() -> None:
    """Run the command line of this process; without the extra `cli`, print which package to install."""
    try:
        from sharedmem.faces import cli  # noqa: PLC0415  # an extra; it reports itself how to install it
    except UnsupportedError as error:
        sys.stderr.write(f"sharedmem: {error}\n")
        sys.exit(error.codes.exit_code)
    cli.main()


if __name__ == "__main__":
    main()
