"""`python -m sharedmem` is the command `sharedmem`."""

from sharedmem.faces.cli import main

main()
